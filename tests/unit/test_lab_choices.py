"""What a lab is made of: lab.json, ports, users, and what follows from them."""

from __future__ import annotations

import json
import pwd
import socket
from collections.abc import Iterator
from pathlib import Path

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock import errors
from penstock.model import cluster as model
from penstock.model.podpolicy import PodPolicy
from penstock.render import slurmconf
from penstock.site import clusters, daemonsettings, loader, nodegroups, schema
from penstock_lab import bringup, components, passwd, paths, ports, sitefile, spec, users

PLACE = paths.LabPaths(Path("/lab"))
LAB = spec.LabSpec(name="default", port_base=21000, user="alice", user_created=False)


def site_of(lab: spec.LabSpec, *, address: str | None = None) -> schema.Site:
    """The site that the lab's own site.yaml describes."""
    return loader.loads(sitefile.render(PLACE, lab, address=address).encode())


def described(lab: spec.LabSpec, *, address: str | None = None) -> model.SlurmCluster:
    """The cluster that its slurm.conf is rendered from."""
    site = site_of(lab, address=address)
    return clusters.describe(site, nodegroups.groups(site), release=(22, 5))


@pytest.fixture
def listener() -> Iterator[socket.socket]:
    """Somebody who has a port."""
    with socket.socket() as holder:
        holder.bind(("127.0.0.1", 0))
        holder.listen()
        yield holder


class TestSpec:
    @given(
        lab=st.builds(
            spec.LabSpec,
            name=st.from_regex(paths.NAME_PATTERN, fullmatch=True),
            port_base=st.integers(1024, 60000),
            user=st.text(),
            user_created=st.booleans(),
            nodes=st.integers(1, spec.MAX_NODES),
            complete=st.booleans(),
        )
    )
    def test_lab_json_round_trip(self, lab: spec.LabSpec, tmp_path_factory: pytest.TempPathFactory) -> None:
        """lab.json is the lab's only state of its own."""
        assert msgspec.json.decode(msgspec.json.encode(lab), type=spec.LabSpec) == lab

    @given(nodes=st.integers(1, spec.MAX_NODES))
    def test_every_port_is_used_once_and_lies_in_the_block(self, nodes: int) -> None:
        """A fixed --port-base says exactly which ports a lab takes."""
        lab = msgspec.structs.replace(LAB, nodes=nodes)
        used = [lab.controller_port, lab.accounting_port, lab.devcluster_port]
        used += [node.port for node in lab.node_specs]
        assert sorted(used) == list(range(21000, 21000 + spec.port_count(nodes)))

    @pytest.mark.parametrize("text", ["", "{", "[]", '{"name": "x"}', '{"name": 3}', "\0"])
    def test_a_broken_file_says_how_to_get_rid_of_the_lab(
        self, text: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """One line and a hint that works."""
        monkeypatch.setattr(paths, "MAX_DIRECTORY_BYTES", 1000)
        place = paths.LabPaths(tmp_path)
        place.spec.write_text(text)
        with pytest.raises(errors.LabError, match=r"lab\.json cannot be read") as caught:
            spec.load(place)
        assert "down --force" in caught.value.hint

    def test_missing_lab_json_is_no_lab(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        """With its own exit code."""
        monkeypatch.setattr(paths, "MAX_DIRECTORY_BYTES", 1000)
        with pytest.raises(spec.NoLab, match="there is no lab in") as caught:
            spec.load(paths.LabPaths(tmp_path))
        assert caught.value.exit_code == 3


class TestWishes:
    def test_only_what_was_asked_for_is_compared(self) -> None:
        """`up` without options repairs any lab."""
        assert bringup.Wishes().given() == {}
        assert bringup.Wishes(nodes=2, gpus=0, bridge=False).given() == {
            "nodes": 2,
            "gpus": 0,
            "bridge": False,
        }


class TestPorts:
    def test_a_row_that_does_not_fit_says_where_it_would(self) -> None:
        """The kernel has no port 65536."""
        ports.require_row(65_530, 6)
        with pytest.raises(errors.UsageError, match="7 consecutive ports are needed, and from 65530 on"):
            ports.require_row(65_530, 7)

    def test_port_with_listener_is_in_use(self, listener: socket.socket) -> None:
        """Reported with the component and the process that has it."""
        port = listener.getsockname()[1]
        assert not ports.is_free(port)
        assert ports.is_listening(port)
        with pytest.raises(errors.LabError, match=rf"port {port} for slurmctld is in use by .*\(pid \d+\)"):
            ports.require_free([("slurmctld", port)])

    def test_a_port_is_free_again_when_its_holder_is_gone(self, listener: socket.socket) -> None:
        """Looking at a port must not occupy it."""
        port = listener.getsockname()[1]
        listener.close()
        for _ in range(2):
            assert ports.is_free(port)
        assert not ports.is_listening(port)

    @given(count=st.integers(1, 20))
    def test_a_chosen_block_is_free_and_away_from_outgoing_connections(self, count: int) -> None:
        """All of it in the range we search."""
        with ports.Claims() as claims:
            base = claims.choose_base(count)
        assert base >= ports.SEARCH_RANGE.start
        assert base + count <= ports.SEARCH_RANGE.stop

    @given(apart=st.integers(-40, 40), count=st.integers(1, 30))
    def test_concurrent_choices_do_not_overlap(self, apart: int, count: int) -> None:
        """An overlapping range is refused until the other one is released."""
        with ports.Claims() as first, ports.Claims() as second:
            base = first.choose_base(count)
            row, other = range(base, base + count), range(base + apart, base + apart + count)
            assert not (set(row) & set(other) and second.claim(other))
        with ports.Claims() as third:
            assert third.claim(row)

    def test_no_free_ports_is_an_error(self, monkeypatch: pytest.MonkeyPatch) -> None:
        """Rather than search forever."""
        monkeypatch.setattr(ports, "is_free", lambda port: False)
        with (
            ports.Claims() as claims,
            pytest.raises(errors.LabError, match="no 7 consecutive free ports") as caught,
        ):
            claims.choose_base(7)
        assert "--port-base" in caught.value.hint


class TestUsers:
    @pytest.mark.parametrize("environment", [{}, {"SUDO_USER": ""}, {"SUDO_USER": "root"}])
    def test_no_sudo_user(self, environment: dict[str, str]) -> None:
        """Root at the console, or root who called sudo."""
        assert users.person_behind_sudo(environment) == ""

    def test_sudo_user(self) -> None:
        """The caller of sudo is the lab's user."""
        assert users.person_behind_sudo({"SUDO_USER": "daemon"}) == "daemon"

    def test_unknown_sudo_user_is_an_error(self) -> None:
        """No lab for a user that does not exist."""
        with pytest.raises(errors.UsageError, match="there is no user nobody-at-all"):
            users.person_behind_sudo({"SUDO_USER": "nobody-at-all"})

    def test_a_taken_name_gets_a_number(self, monkeypatch: pytest.MonkeyPatch) -> None:
        """Two labs of the same name in different places have different users."""
        root = pwd.getpwuid(0)
        taken = [pwd.struct_passwd((name, *root[1:])) for name in ("penstock-a", "penstock-a-2")]
        monkeypatch.setattr(pwd, "getpwall", lambda: taken)
        assert users.free_name("a") == "penstock-a-3"
        assert users.free_name("b") == "penstock-b"

    def test_other_users_are_never_removed(self) -> None:
        """Only a home in this lab makes a user ours."""
        assert users.created_uid(PLACE, "daemon") is None
        users.remove_created(PLACE, "daemon")
        assert pwd.getpwnam("daemon").pw_name == "daemon"

    def test_programs_run_with_their_users_groups_only(self) -> None:
        """Root's groups must not leak into a daemon."""
        identity = passwd.identity("daemon")
        entry = pwd.getpwnam("daemon")
        assert identity["user"] == entry.pw_uid
        assert 0 not in identity["extra_groups"]
        assert passwd.identity(None) == passwd.identity("root") == {}


class TestComponents:
    def test_a_lab_has_all_its_daemons_in_an_order_they_can_start_in(self) -> None:
        """What a daemon needs is a step that exists, or another daemon before it."""
        names = [component.name for component in components.all_components(PLACE, LAB)]
        assert names[:6] == ["munged", "mariadbd", "slurmdbd", "slurmctld", "devcluster", "penstockd"]
        assert names[6:] == ["intake", "slurmd-n1", "slurmd-n2", "slurmd-n3", "slurmd-n4", "collector"]

    def test_without_the_bridge_there_is_only_slurm(self) -> None:
        """For tests of the lab itself."""
        lab = msgspec.structs.replace(LAB, bridge=False, nodes=1)
        names = [component.name for component in components.all_components(PLACE, lab)]
        assert names == ["munged", "mariadbd", "slurmdbd", "slurmctld", "slurmd-n1"]

    def test_daemons_run_as_root_only_if_needed(self) -> None:
        """The others have their own users; penstockd switches to slurm by itself."""
        roots = {
            component.name for component in components.all_components(PLACE, LAB) if component.user == "root"
        }
        slurmds = {"slurmd-n1", "slurmd-n2", "slurmd-n3", "slurmd-n4"}
        assert roots == {"devcluster", "penstockd", "intake", "collector"} | slurmds
        penstockd = components.all_components(PLACE, LAB)[5]
        assert penstockd.argv[-2:] == ("--user", "slurm")

    def test_the_dev_cluster_is_started_as_it_expects(self) -> None:
        """The options are a contract between two programs."""
        devcluster = components.all_components(PLACE, LAB)[4]
        assert devcluster.argv[1:] == (
            "-m", "penstock_lab.devcluster", "--data-dir", "/lab/devcluster", "--port", "21002",
            "--tls-cert", "/lab/etc/devcluster.crt", "--tls-key", "/lab/etc/devcluster.key",
            "--tokens", "/lab/etc/devcluster-tokens.csv", "--nodes", "/lab/etc/devcluster-nodes.json",
        )  # fmt: skip


class TestConfiguration:
    def test_penstockd_is_told_everything_it_needs(self) -> None:
        """All keys, and the same KillWait as Slurm."""
        cluster = described(LAB, address="127.0.0.1")
        config = daemonsettings.penstockd(site_of(LAB), slurm_uid=64030)
        assert msgspec.convert(config["pods"], PodPolicy).kill_wait == cluster.kill_wait
        assert json.loads(json.dumps(config)) == {
            "socket": "/lab/run/penstockd/penstockd.sock",
            "kubeconfig": "/lab/etc/penstockd.kubeconfig",
            "slurm_conf": "/lab/etc/slurm.conf",
            "start_timeout": 60,
            "hook_uids": [64030, 0],
            "pods": {
                "cluster": "default",
                "shared_mounts": ["/lab/nas"],
                "default_image": "lab/host-userland:1",
                "namespace_pattern": "user-{user}",
                "namespace_quota": {"pods": "2000", "secrets": "4000"},
                "reserved_namespaces": ["penstock-system"],
                "pod_security": "privileged",
                "partitions": {"gpu": {}, "cpu": {}},
            },
            "log_level": "info",
            "state_dir": "/lab/attempts",
            "results": "/lab/nas/results",
            "log_format": "text",
        }

    def test_the_default_lab_is_the_reviewed_slurm_conf(self) -> None:
        """From lab.json through site.yaml to the very bytes that were reviewed."""
        golden = Path(__file__).parents[1] / "golden" / "slurm.conf"
        rendered = slurmconf.render_slurm_conf(described(LAB, address="127.0.0.1"))
        assert rendered.replace("/lab/log/slurm/", "/lab/log/") == golden.read_text()

    def test_a_lab_without_the_bridge_has_no_hooks(self) -> None:
        """And one with it has."""
        plain = msgspec.structs.replace(LAB, bridge=False)
        assert described(plain).hooks is None
        assert described(LAB).hooks is not None

    def test_daemons_listen_on_one_address_if_possible(self) -> None:
        """A machine whose host name is not loopback gets daemons that can be reached."""
        there = described(LAB, address="127.0.1.1")
        assert (there.address, there.listen_on_address_only) == ("127.0.1.1", True)
        elsewhere = described(LAB)
        assert (elsewhere.address, elsewhere.listen_on_address_only) == ("127.0.0.1", False)
