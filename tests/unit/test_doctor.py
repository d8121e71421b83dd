"""What the doctor concludes from what both sides say, with nobody to ask."""

from __future__ import annotations

from pathlib import Path

import msgspec
import pytest

from penstock import pings
from penstock.doctor import all_checks, checks, penstock_side
from penstock.doctor.live import Live, once
from penstock.kube import kubeconfig, types
from penstock.model import cluster, nodes
from penstock.model.jobs import LiveJob
from penstock.render import pods as rendering
from penstock.views import nodes as view
from tests.install import clusters, sites
from tests.unit import fakes

CHECKS = {check.name: check for check in all_checks.ALWAYS}


def slurm_node(*, used_cpus: int) -> nodes.Node:
    return nodes.Node(
        name="n1", state="MIXED", amount=fakes.amount(cpus=8, gib=1), used=fakes.amount(cpus=used_cpus)
    )


def job_pod(job_id: int, *, deleting: bool = False) -> types.Pod:
    """The pod, with two CPUs, of a job on n1."""
    pod = fakes.pod(f"slurm-{job_id}", cpus="2", deleting=deleting)
    labels = rendering.labels_of(fakes.identity(job_id), "hall")
    return msgspec.structs.replace(pod, metadata=msgspec.structs.replace(pod.metadata, labels=labels))


class Busy(Live):
    """A site with one node whose answers change from one question to the next; the last one stays."""

    def __init__(
        self,
        *,
        pods: list[list[types.Pod]],
        used_cpus: tuple[int, ...] = (0,),
        jobs: tuple[tuple[int, ...], ...] = ((),),
    ) -> None:
        super().__init__(sites.site())
        self.told = {"pods": pods, "slurm_nodes": list(used_cpus), "live_jobs": list(jobs)}
        self.asked: list[str] = []
        self.answers["settings"] = ({"ClusterName": "hall"}, None)
        self.answers["kube_nodes"] = ({"n1": fakes.node()}, None)
        self.answers["bridged_nodes"] = ({"n1": cluster.NodeSpec(name="n1", port=0)}, None)

    def _next(self, name: str) -> object:
        self.asked.append(name)
        answers: list[object] = self.told[name]  # type: ignore[assignment]
        return answers.pop(0) if len(answers) > 1 else answers[0]

    @once
    def pods(self) -> list[types.Pod]:
        return self._next("pods")  # type: ignore[return-value]

    @once
    def slurm_nodes(self) -> dict[str, nodes.Node]:
        return {"n1": slurm_node(used_cpus=self._next("slurm_nodes"))}  # type: ignore[arg-type]

    @once
    def live_jobs(self) -> dict[int, LiveJob]:
        numbers: tuple[int, ...] = self._next("live_jobs")  # type: ignore[assignment]
        return {number: fakes.job(number, state="RUNNING") for number in numbers}


def found(live: Live, *names: str) -> list[tuple[str, str]]:
    results = checks.run([CHECKS[name] for name in names], live)
    return [(result.status, result.message) for result in results]


@pytest.mark.parametrize("answer", [{}, {"status": None}, {"status": {}}])
def test_who_does_not_say_what_is_allowed_has_said_nothing(answer: dict[str, object]) -> None:
    """A proxy that answers everything with an empty object: no traceback, and no missing right either."""

    class Stranger(clusters.Cluster):
        def request(self, method: str, path: str, **more: object) -> dict[str, object]:
            return answer

    live = Live(sites.site())
    live.answers["as_penstockd"] = (Stranger(kubeconfig.Access(server="http://nowhere")), None)
    assert found(live, "rbac") == [("unknown", "the Kubernetes API does not say who may do what")]


def test_a_slurm_conf_may_have_any_bytes(tmp_path: Path) -> None:
    """Also in what it includes: Slurm does not mind a comment in Latin-1."""
    conf = tmp_path / "slurm.conf"
    conf.write_bytes("# Rechner im Büro\nClusterName=x\ninclude more.conf\n".encode("latin-1"))
    (tmp_path / "more.conf").write_bytes("# Köln\nKillWait=30\n".encode("latin-1"))
    read = Live(sites.site(("/etc/slurm/slurm.conf", str(conf)))).conf
    assert (read.get("ClusterName"), read.get("KillWait")) == ("x", "30")


def test_a_job_that_starts_while_the_doctor_looks_is_no_double_booking() -> None:
    """Slurm's nodes are remembered from an early check, pods are asked for by a late one."""
    live = Busy(pods=[[job_pod(17)]], used_cpus=(0, 2), jobs=((17,),))
    assert found(live, "drained", "orphans", "double-booking")[-1] == ("ok", "")


def test_jobs_that_come_and_go_at_both_looks_are_no_double_booking() -> None:
    """One started after Slurm was asked, another before pods were asked for again."""
    live = Busy(pods=[[job_pod(17)], [job_pod(18)]], used_cpus=(0, 0))
    assert found(live, "double-booking") == [("ok", "")]


def test_a_pod_that_outlives_its_job_is_a_double_booking() -> None:
    """Both looks show it; what started in between is not counted."""
    live = Busy(pods=[[job_pod(17)], [job_pod(17), job_pod(18)]])
    assert found(live, "double-booking") == [
        ("failed", "n1: pods of jobs ask for cpu 2, Slurm gave 0"),
    ]
    assert live.asked == ["slurm_nodes", "pods", "slurm_nodes", "pods"]


def test_a_site_that_is_well_is_looked_at_once() -> None:
    """A second list of all pods costs a large site something."""
    live = Busy(pods=[[job_pod(17)]], used_cpus=(2,), jobs=((17,),))
    assert found(live, "orphans", "double-booking") == [("ok", ""), ("ok", "")]
    assert live.asked == ["pods", "live_jobs", "slurm_nodes"]


def test_a_job_that_ends_while_the_doctor_looks_leaves_no_orphan() -> None:
    """Its pod was there when pods were asked for, and its number gone when Slurm was."""
    for after in ([], [job_pod(17, deleting=True)]):
        assert found(Busy(pods=[[job_pod(17)], after]), "orphans") == [("ok", "")]


def test_a_pod_without_a_job_is_an_orphan() -> None:
    """At both looks."""
    message = "pod default/slurm-17 belongs to job 17, which is over or runs another attempt"
    assert found(Busy(pods=[[job_pod(17)]]), "orphans") == [("failed", message)]


async def test_both_views_of_a_node_agree_while_jobs_start_and_end() -> None:
    """Pods are asked for before Slurm, and a disagreement is looked at again."""
    starting = Busy(pods=[[], [job_pod(17)]], used_cpus=(2,))
    ending = Busy(pods=[[job_pod(17)], []], used_cpus=(0,))
    for live in (starting, ending):
        assert (await view.nodes(live)).nodes[0].disagreements == ()
    assert (starting.asked, ending.asked[:2]) == (["pods", "slurm_nodes"], ["pods", "slurm_nodes"])


async def test_both_views_of_a_node_disagree_about_a_pod_that_stays() -> None:
    """A pod that outlived its job."""
    live = Busy(pods=[[job_pod(17)]])
    assert (await view.nodes(live)).nodes[0].disagreements == (
        "cpu: 2 requested by pods of jobs, 0 allocated by Slurm",
    )


@pytest.mark.parametrize(
    ("times", "told"),
    [
        ((0.1,), ("ok", "")),
        ((3.0, 1.5, 0.1), ("ok", "")),
        ((3.0, 1.5, 1.2, 0.1), ("warning", "penstockd took 1.2 s to answer")),
    ],
)
def test_one_slow_answer_is_a_busy_moment(
    times: tuple[float, ...], told: tuple[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of the host's, as any host has: penstockd is slow when it is so again and again."""
    answers = iter(times)
    monkeypatch.setattr(pings, "ping", lambda path: (pings.WELL, next(answers)))
    assert found(Live(sites.site()), "penstockd") == [told]


def test_a_penstockd_that_was_just_started_is_given_a_moment(monkeypatch: pytest.MonkeyPatch) -> None:
    """It says so until it knows what runs; only one that goes on saying it is not well."""
    answers = iter(["starting", "starting", pings.WELL])
    monkeypatch.setattr(pings, "ping", lambda path: (next(answers), 0.01))
    monkeypatch.setattr("time.sleep", lambda seconds: None)
    assert penstock_side._ping("/s") == (pings.WELL, 0.01)
    monkeypatch.setattr(penstock_side, "STARTING_SECONDS", 0.0)
    monkeypatch.setattr(pings, "ping", lambda path: ("starting", 0.01))
    assert penstock_side._ping("/s") == ("starting", 0.01)
