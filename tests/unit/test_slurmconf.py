"""Slurm's configuration files: golden files, and what Penstock and the scheduler rely on."""

from __future__ import annotations

import dataclasses
import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock import errors
from penstock.model import cluster as model
from penstock.render import slurmconf
from penstock.slurm import conffile
from tests import goldens

PLACES = model.SlurmPlaces(
    munge_socket="/lab/run/munge/munge.sock",
    state_dir="/lab/state",
    spool_dir="/lab/spool",
    pid_dir="/lab/run/slurm",
    log_dir="/lab/log",
    gpu_device_dir="/lab/dev",
)
CLUSTER = model.SlurmCluster(
    name="default",
    nodes=tuple(model.NodeSpec(name=f"n{number}", port=21002 + number) for number in range(1, 5)),
    partitions=(
        model.PartitionSpec(name="gpu", bridged=True, default=True),
        model.PartitionSpec(name="cpu", bridged=True),
        model.PartitionSpec(name="host", bridged=False),
    ),
    controller_port=21000,
    accounting_port=21001,
    places=PLACES,
    hooks=model.BridgeHooks(
        prolog_slurmctld="/lab/libexec/penstock-prolog",
        epilog="/lab/libexec/penstock-epilog",
        task_prolog="/lab/libexec/penstock-task-prolog",
    ),
)


def settings(text: str) -> dict[str, str]:
    """Settings that stand alone on a line, by name."""
    lines = (line for line in text.splitlines() if line and not line.startswith("#"))
    return dict(line.split("=", 1) for line in lines if not re.match(r"(NodeName|PartitionName)=", line))


def rows(text: str, kind: str) -> list[dict[str, str]]:
    """Lines such as NodeName=… as dictionaries."""
    lines = (line for line in text.splitlines() if line.startswith(f"{kind}="))
    return [dict(word.split("=", 1) for word in line.split()) for line in lines]


class TestGolden:
    @pytest.mark.parametrize(
        ("name", "render"),
        [
            ("slurm.conf", slurmconf.render_slurm_conf),
            ("gres.conf", slurmconf.render_gres_conf),
            ("slurmdbd.conf", slurmconf.render_slurmdbd_conf),
            ("cgroup.conf", slurmconf.render_cgroup_conf),
        ],
    )
    def test_the_default_lab_renders_to_the_reviewed_file(self, name: str, render: object) -> None:
        assert callable(render)
        text = render(CLUSTER)
        assert text == goldens.reviewed(name, text)

    def test_rendering_is_pure(self) -> None:
        assert slurmconf.render_slurm_conf(CLUSTER) == slurmconf.render_slurm_conf(
            dataclasses.replace(CLUSTER)
        )


class TestScheduling:
    def test_backfill_and_multifactor_priority(self) -> None:
        """With age, fairshare and job size."""
        conf = settings(slurmconf.render_slurm_conf(CLUSTER))
        assert conf["SchedulerType"] == "sched/backfill"
        assert conf["PriorityType"] == "priority/multifactor"
        for factor in ("Age", "Fairshare", "JobSize"):
            assert int(conf[f"PriorityWeight{factor}"]) > 0

    def test_measured_tuning_is_present(self) -> None:
        """Without these parameters and DefMemPerCPU 200 jobs take 180 s instead of 7 s."""
        conf = settings(slurmconf.render_slurm_conf(CLUSTER))
        wanted = {"bf_interval=5", "sched_min_interval=100000", "batch_sched_delay=0"}
        assert wanted <= set(conf["SchedulerParameters"].split(","))
        assert conf["SelectType"] == "select/cons_tres"

    @given(
        cpus=st.integers(1, 256),
        memory_mb=st.integers(512, 2**22),
        other_cpus=st.integers(1, 256),
    )
    def test_every_cpu_can_be_used_by_jobs_that_ask_for_no_memory(
        self, cpus: int, memory_mb: int, other_cpus: int
    ) -> None:
        """As many one-CPU jobs as a node has CPUs fit into its memory."""
        nodes = (
            model.NodeSpec(name="a", port=1, cpus=cpus, memory_mb=memory_mb),
            model.NodeSpec(name="b", port=2, cpus=other_cpus, memory_mb=memory_mb),
        )
        conf = settings(slurmconf.render_slurm_conf(dataclasses.replace(CLUSTER, nodes=nodes)))
        share = int(conf["DefMemPerCPU"])
        assert share >= 1
        assert share * max(cpus, other_cpus) <= memory_mb

    def test_limits_and_gpus_are_accounted(self) -> None:
        """Limits are enforced, and GPU use is charged."""
        conf = settings(slurmconf.render_slurm_conf(CLUSTER))
        assert set(conf["AccountingStorageEnforce"].split(",")) == {"associations", "limits", "qos", "safe"}
        assert conf["AccountingStorageTRES"] == "gres/gpu"
        assert conf["AccountingStoragePass"] == PLACES.munge_socket


class TestNodes:
    @given(count=st.integers(1, 40), cpus=st.integers(1, 128), gpus=st.integers(0, 16))
    def test_each_node_has_its_own_port_and_all_its_resources(self, count: int, cpus: int, gpus: int) -> None:
        nodes = tuple(
            model.NodeSpec(name=f"n{number}", port=7000 + number, cpus=cpus, gpus=gpus)
            for number in range(count)
        )
        text = slurmconf.render_slurm_conf(dataclasses.replace(CLUSTER, nodes=nodes))
        found = rows(text, "NodeName")
        assert [row["NodeName"] for row in found] == [node.name for node in nodes]
        assert len({row["Port"] for row in found}) == count
        assert all(row["CPUs"] == row["CoresPerSocket"] == str(cpus) for row in found)
        assert all(row.get("Gres") == (f"gpu:{gpus}" if gpus else None) for row in found)

    @pytest.mark.parametrize(("gpus", "files"), [(1, "/lab/dev/gpu0"), (4, "/lab/dev/gpu[0-3]")])
    def test_every_gpu_has_a_device_file(self, gpus: int, files: str) -> None:
        """gres.conf has one file per GPU."""
        nodes = (model.NodeSpec(name="n1", port=1, gpus=gpus),)
        text = slurmconf.render_gres_conf(dataclasses.replace(CLUSTER, nodes=nodes))
        assert f"NodeName=n1 Name=gpu File={files}\n" in text

    def test_a_cluster_without_gpus_names_none(self) -> None:
        """gres.conf exists and is empty."""
        nodes = (model.NodeSpec(name="n1", port=1, gpus=0),)
        assert "Name=gpu" not in slurmconf.render_gres_conf(dataclasses.replace(CLUSTER, nodes=nodes))

    def test_partitions_share_all_nodes_and_one_is_the_default(self) -> None:
        """A job without a partition goes to gpu."""
        found = rows(slurmconf.render_slurm_conf(CLUSTER), "PartitionName")
        assert [row["PartitionName"] for row in found] == ["gpu", "cpu", "host"]
        assert {row["Nodes"] for row in found} == {"n1,n2,n3,n4"}
        assert [row["Default"] for row in found] == ["YES", "NO", "NO"]
        assert {row["MaxTime"] for row in found} == {"7-00:00:00"}


class TestBridge:
    def test_hooks_are_where_the_cluster_says(self) -> None:
        """The three hooks and job_submit.lua are enabled together."""
        conf = settings(slurmconf.render_slurm_conf(CLUSTER))
        assert conf["JobSubmitPlugins"] == "lua"
        assert conf["PrologSlurmctld"] == "/lab/libexec/penstock-prolog"
        assert conf["Epilog"] == "/lab/libexec/penstock-epilog"
        assert conf["TaskProlog"] == "/lab/libexec/penstock-task-prolog"

    def test_without_hooks_nothing_of_the_bridge_remains(self) -> None:
        """A plain Slurm has no trace of Penstock that could fail."""
        conf = settings(slurmconf.render_slurm_conf(dataclasses.replace(CLUSTER, hooks=None)))
        assert not {"JobSubmitPlugins", "PrologSlurmctld", "Epilog", "TaskProlog"} & set(conf)

    def test_a_node_prolog_is_never_configured(self) -> None:
        """A failing node Prolog drains the node and holds the job."""
        conf = settings(slurmconf.render_slurm_conf(CLUSTER))
        assert "Prolog" not in conf
        assert "PrologFlags" not in conf

    def test_requeued_job_starts_soon(self) -> None:
        """It waits for its credential's lifetime."""
        conf = settings(slurmconf.render_slurm_conf(CLUSTER))
        assert conf["AuthInfo"] == "socket=/lab/run/munge/munge.sock,cred_expire=10"

    def test_bridged_and_default_partitions_are_known_by_name(self) -> None:
        """Hooks are rendered from these names."""
        assert CLUSTER.bridged_partitions == ("gpu", "cpu")
        assert CLUSTER.default_partition == "gpu"
        assert dataclasses.replace(CLUSTER, partitions=()).default_partition == ""


class TestReleases:
    def test_hook_timeouts_have_one_name_before_25_05(self) -> None:
        """22.05 knows PrologEpilogTimeout and rejects the later names."""
        conf = settings(slurmconf.render_slurm_conf(CLUSTER))
        assert conf["PrologEpilogTimeout"] == "300"
        assert "EpilogTimeout" not in conf

    def test_hook_timeouts_have_two_names_from_25_05(self) -> None:
        """25.05 split the setting."""
        conf = settings(slurmconf.render_slurm_conf(dataclasses.replace(CLUSTER, release=(25, 5))))
        assert conf["PrologTimeout"] == conf["EpilogTimeout"] == "300"
        assert "PrologEpilogTimeout" not in conf

    @pytest.mark.parametrize(("release", "said"), [((22, 5), False), ((23, 2), False), ((24, 11), True)])
    def test_cgroups_are_switched_off_where_the_release_can(
        self, release: tuple[int, int], said: bool
    ) -> None:
        """Early releases reject the line that later ones need."""
        text = slurmconf.render_cgroup_conf(dataclasses.replace(CLUSTER, release=release))
        assert ("CgroupPlugin=disabled" in text) is said


class TestPrivacy:
    def test_no_password_is_written_anywhere(self) -> None:
        """The database authenticates slurmdbd by uid."""
        text = slurmconf.render_slurmdbd_conf(CLUSTER)
        assert "Pass" not in text
        assert "StorageUser=slurm" in text

    @pytest.mark.parametrize(
        ("password", "line"),
        [
            ("plain", 'StoragePass="plain"'),
            ("a#b c", 'StoragePass="a\\#b c"'),
            ("back\\slash", 'StoragePass="back\\\\slash"'),
        ],
    )
    def test_password_round_trips(self, password: str, line: str) -> None:
        """After a number sign would be a comment, after a blank an error."""
        database = model.Database(password=password)
        text = slurmconf.render_slurmdbd_conf(dataclasses.replace(CLUSTER, database=database))
        assert line in text.splitlines()
        read = conffile.parse(text, include=lambda name: "")
        assert read.get("StoragePass") == password

    @pytest.mark.parametrize("password", ['a"b', "a\nSlurmUser=root"])
    def test_a_password_that_slurm_cannot_read_is_refused(self, password: str) -> None:
        """A line break would start another setting."""
        database = model.Database(password=password)
        with pytest.raises(errors.UsageError, match="password"):
            slurmconf.render_slurmdbd_conf(dataclasses.replace(CLUSTER, database=database))

    def test_daemons_listen_on_the_loopback_address_alone(self) -> None:
        """Every daemon binds to its node's address, 127.0.0.1."""
        conf = slurmconf.render_slurm_conf(CLUSTER)
        assert settings(conf)["CommunicationParameters"] == "NoInAddrAny,NoCtldInAddrAny"
        assert settings(conf)["SlurmctldHost"] == "localhost(127.0.0.1)"
        assert {row["NodeAddr"] for row in rows(conf, "NodeName")} == {"127.0.0.1"}
        assert "CommunicationParameters=NoInAddrAny\n" in slurmconf.render_slurmdbd_conf(CLUSTER)

    def test_a_machine_whose_name_is_elsewhere_gets_no_such_line(self) -> None:
        """There the daemons would listen on an address that nobody uses."""
        cluster = dataclasses.replace(CLUSTER, listen_on_address_only=False)
        assert "CommunicationParameters" not in settings(slurmconf.render_slurm_conf(cluster))
        assert "CommunicationParameters" not in slurmconf.render_slurmdbd_conf(cluster)
