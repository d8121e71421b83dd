"""Checks of the doctor on given answers of Slurm and Kubernetes."""

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
    """A job's pod with two CPUs on n1."""
    pod = fakes.pod(f"slurm-{job_id}", cpus="2", deleting=deleting)
    labels = rendering.labels_of(fakes.identity(job_id), "hall")
    return msgspec.structs.replace(pod, metadata=msgspec.structs.replace(pod.metadata, labels=labels))


class Busy(Live):
    """A site with one node whose answers change from query to query; the last answer stays."""

    def __init__(
        self,
        *,
        pods: list[list[types.Pod]],
        used_cpus: tuple[int, ...] = (0,),
        jobs: tuple[tuple[int, ...], ...] = ((),),
    ) -> None:
        super().__init__(sites.site())
        self.replies = {"pods": pods, "slurm_nodes": list(used_cpus), "live_jobs": list(jobs)}
        self.asked: list[str] = []
        self.answers["settings"] = ({"ClusterName": "hall"}, None)
        self.answers["kube_nodes"] = ({"n1": fakes.node()}, None)
        self.answers["bridged_nodes"] = ({"n1": cluster.NodeSpec(name="n1", port=0)}, None)

    def _next(self, name: str) -> object:
        self.asked.append(name)
        answers: list[object] = self.replies[name]  # type: ignore[assignment]
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
def test_access_review_without_an_answer_is_unknown(answer: dict[str, object]) -> None:
    """As from a proxy that answers everything with an empty object: neither a traceback nor a refusal."""

    class Proxy(clusters.Cluster):
        def request(self, method: str, path: str, **more: object) -> dict[str, object]:
            return answer

    live = Live(sites.site())
    live.answers["as_penstockd"] = (Proxy(kubeconfig.Access(server="http://nowhere")), None)
    assert found(live, "rbac") == [("unknown", "the Kubernetes API gave no answer to an access review")]


def test_slurm_conf_may_contain_any_bytes(tmp_path: Path) -> None:
    """Included files as well: Slurm accepts a comment in Latin-1."""
    conf = tmp_path / "slurm.conf"
    conf.write_bytes("# Rechner im Büro\nClusterName=x\ninclude more.conf\n".encode("latin-1"))
    (tmp_path / "more.conf").write_bytes("# Köln\nKillWait=30\n".encode("latin-1"))
    read = Live(sites.site(("/etc/slurm/slurm.conf", str(conf)))).conf
    assert (read.get("ClusterName"), read.get("KillWait")) == ("x", "30")


def test_job_that_starts_between_queries_is_not_a_double_booking() -> None:
    """Slurm's nodes are cached by an early check, pods are queried by a late one."""
    live = Busy(pods=[[job_pod(17)]], used_cpus=(0, 2), jobs=((17,),))
    assert found(live, "drained", "orphans", "double-booking")[-1] == ("ok", "")


def test_different_jobs_at_both_looks_are_not_a_double_booking() -> None:
    """One started after Slurm was queried, another before pods were queried again."""
    live = Busy(pods=[[job_pod(17)], [job_pod(18)]], used_cpus=(0, 0))
    assert found(live, "double-booking") == [("ok", "")]


def test_pod_that_outlives_its_job_is_a_double_booking() -> None:
    """Both looks show it; a pod that was started in between is not counted."""
    live = Busy(pods=[[job_pod(17)], [job_pod(17), job_pod(18)]])
    message = "n1: pods of jobs request cpu 2, Slurm allocated 0"
    assert found(live, "double-booking") == [("failed", message)]
    assert live.asked == ["slurm_nodes", "pods", "slurm_nodes", "pods"]


def test_healthy_site_is_queried_once() -> None:
    """A second list of all pods is expensive at a large site."""
    live = Busy(pods=[[job_pod(17)]], used_cpus=(2,), jobs=((17,),))
    assert found(live, "orphans", "double-booking") == [("ok", ""), ("ok", "")]
    assert live.asked == ["pods", "live_jobs", "slurm_nodes"]


def test_job_that_ends_between_queries_leaves_no_orphan() -> None:
    """Its pod existed when pods were queried, and the job was over when Slurm was."""
    for after in ([], [job_pod(17, deleting=True)]):
        assert found(Busy(pods=[[job_pod(17)], after]), "orphans") == [("ok", "")]


def test_pod_without_a_job_is_an_orphan() -> None:
    message = "pod default/slurm-17 belongs to job 17, which is over or runs another attempt"
    assert found(Busy(pods=[[job_pod(17)]]), "orphans") == [("failed", message)]


async def test_both_views_of_a_node_agree_while_jobs_start_and_end() -> None:
    """Pods are queried before Slurm, and a disagreement is confirmed by a second look."""
    starting = Busy(pods=[[], [job_pod(17)]], used_cpus=(2,))
    ending = Busy(pods=[[job_pod(17)], []], used_cpus=(0,))
    for live in (starting, ending):
        assert (await view.nodes(live)).nodes[0].disagreements == ()
    assert (starting.asked, ending.asked[:2]) == (["pods", "slurm_nodes"], ["pods", "slurm_nodes"])


async def test_both_views_of_a_node_disagree_about_a_pod_that_outlived_its_job() -> None:
    found = (await view.nodes(Busy(pods=[[job_pod(17)]]))).nodes[0].disagreements
    assert found == ("cpu: 2 requested by pods of jobs, 0 allocated by Slurm",)


@pytest.mark.parametrize(
    ("times", "expected"),
    [
        ((0.1,), ("ok", "")),
        ((3.0, 1.5, 0.1), ("ok", "")),
        ((3.0, 1.5, 1.2, 0.1), ("warning", "penstockd took 1.2 s to answer")),
    ],
)
def test_only_repeated_slow_answers_are_a_warning(
    times: tuple[float, ...], expected: tuple[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A single slow answer may be load on the host."""
    answers = iter(times)
    monkeypatch.setattr(pings, "ping", lambda path: (pings.WELL, next(answers)))
    assert found(Live(sites.site()), "penstockd") == [expected]


def test_starting_penstockd_is_polled_until_it_is_well(monkeypatch: pytest.MonkeyPatch) -> None:
    """It answers "starting" until its caches are filled; only after a timeout that is a problem."""
    answers = iter(["starting", "starting", pings.WELL])
    monkeypatch.setattr(pings, "ping", lambda path: (next(answers), 0.01))
    monkeypatch.setattr("time.sleep", lambda seconds: None)
    assert penstock_side._ping("/s") == (pings.WELL, 0.01)
    monkeypatch.setattr(penstock_side, "STARTING_SECONDS", 0.0)
    monkeypatch.setattr(pings, "ping", lambda path: ("starting", 0.01))
    assert penstock_side._ping("/s") == ("starting", 0.01)
