"""What people see of jobs: timeline, metrics, views and log."""

from __future__ import annotations

import asyncio
import dataclasses
import io
import json
import logging

import pytest

from penstock import joblog
from penstock.bridge import bridge as bridging
from penstock.bridge import jobstore
from penstock.cli import jobs
from penstock.daemon import logformat, metrics, queries
from penstock.kube import kinds, podview, reflectors, types
from penstock.model import descriptions
from penstock.model.reasons import NODE_LOST, Outcome, Refusal, RefusalKind
from tests.unit import fakes

NO_ROOM = Refusal(kind=RefusalKind.NO_ROOM, node="n1", resource="gpu", wanted="2", free="1")


def test_the_least_recently_used_job_is_forgotten_first(monkeypatch: pytest.MonkeyPatch) -> None:
    """Memory is bounded."""
    monkeypatch.setattr(jobstore, "LATEST_JOBS", 2)
    kept = jobstore.Store(lambda: 0.0)
    for job_id in (1, 2, 1, 3):
        kept.job(job_id).uid = 1001
        kept.note(job_id, "admitted")
    assert kept.find(2) is None
    assert [(job.job_id, job.uid, len(job.steps)) for job in kept.all()] == [(1, 1001, 2), (3, 1001, 1)]


def test_no_job_is_forgotten_below_the_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(jobstore, "LATEST_JOBS", 10)
    kept = jobstore.Store(lambda: 0.0)
    for job_id in range(1, 11):
        kept.note(job_id, "admitted")
        assert len(kept.all()) == job_id
    kept.note(11, "admitted")
    assert [job.job_id for job in kept.all()] == list(range(2, 12))


def test_a_job_that_is_not_idle_is_not_forgotten(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(jobstore, "LATEST_JOBS", 2)
    kept = jobstore.Store(lambda: 0.0)
    kept.reserve(fakes.allocation(1))
    with kept.attending(2):
        for job_id in range(3, 9):
            kept.note(job_id, "admitted")
        assert kept.reservation(1) is not None
        assert kept.is_attended(2)
    assert len(kept.all()) <= 4


def test_timelines_keep_the_latest_steps(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(jobstore, "LATEST_STEPS", 3)
    kept = jobstore.Store(lambda: 0.0)
    for number in range(5):
        kept.note_refusal(1, (NO_ROOM,), str(number))
    assert [step.text for step in kept.job(1).steps] == ["2", "3", "4"]
    assert kept.job(1).refused == 5


@pytest.fixture
def bridge() -> bridging.Bridge:
    kube, clock = fakes.FakeKube(), fakes.ManualClock()
    return fakes.bridge(
        slurm=fakes.FakeSlurm(),
        kube=kube,
        pods=reflectors.Reflector(kube, kinds.PODS, types.Pod, indexes=podview.INDEXES, time=clock),
        nodes=reflectors.Reflector(kube, kinds.NODES, types.Node, time=clock),
        time=clock,
        wall_clock=lambda: 5.0,
    )


def test_a_job_is_described_to_its_owner_and_to_the_site(bridge: bridging.Bridge) -> None:
    """Others get an empty view."""
    identity = dataclasses.replace(fakes.identity(1))
    bridge.context.pods.put(fakes.pod("p", job=identity, status=fakes.ended(137, reason="OOMKilled")))
    bridge.context.store.job(1).uid = 1001
    bridge.context.store.note(1, "admitted")
    for uid, sees_all, expected in ((1001, False, (1, 1)), (0, True, (1, 1)), (1002, False, (0, 0))):
        (view,) = queries.describe(bridge, (1,), uid=uid, sees_all=sees_all)
        assert (len(view.pods), len(view.timeline)) == expected
    assert queries.describe(bridge, (), uid=1001, sees_all=False)[0].pods[0].reason == "OOMKilled"
    assert queries.describe(bridge, (), uid=1002, sees_all=False) == []


async def test_warnings_of_waiting_pods_are_shown(bridge: bridging.Bridge) -> None:
    """Each once, the latest last; not for running pods."""
    bridge.context.pods.put(fakes.pod("p", job=fakes.identity(1), status=types.PodStatus()))
    bridge.context.pods.put(fakes.pod("q", job=fakes.identity(2), status=fakes.running()))
    kube = bridge.context.kube
    assert isinstance(kube, fakes.FakeKube)
    for number, (kind, reason) in enumerate(
        [("Warning", "FailedMount"), ("Normal", "Pulling"), ("Warning", "Failed"), ("Warning", "FailedMount")]
    ):
        kube.objects["events", "default", f"e{number}"] = {
            "type": kind,
            "reason": reason,
            "message": "no\n  such folder",
            "lastTimestamp": f"2026-01-01T00:00:0{number}Z",
        }
    found = queries.describe(bridge, (1, 2), uid=1001, sees_all=False)
    waiting, running = await queries.with_warnings(bridge, found)
    assert waiting.pods[0].warnings == ("Failed: no such folder", "FailedMount: no such folder")
    assert running.pods[0].warnings == ()


def test_equal_warnings_of_pods_are_merged(capsys: pytest.CaptureFixture[str]) -> None:
    """With the first pod's name and the number of others."""
    pods = [
        descriptions.PodView(f"p{n}", "u", n, 0, "n1", "Pending", "i", warnings=("FailedMount: x",))
        for n in (0, 1)
    ]
    jobs._print_warnings(pods)
    said = capsys.readouterr().out
    assert (said.count("FailedMount: x"), "p0 and 1 more" in said) == (1, True)


def test_refused_jobs_are_listed(bridge: bridging.Bridge) -> None:
    """To owner and site, with the reason, until something else happens to the job."""
    bridge.context.store.job(1).uid = 1001
    bridge.context.store.note_refusal(1, (NO_ROOM,), "waits")
    for uid, sees_all, expected in (
        (1001, False, [(NO_ROOM,)]),
        (0, True, [(NO_ROOM,)]),
    ):
        found = queries.describe(bridge, (), uid=uid, sees_all=sees_all)
        assert [view.refusals for view in found] == expected
        assert [view.timeline for view in found] == [()], "only a job asked for comes with its story"
    assert queries.describe(bridge, (), uid=1002, sees_all=False) == []
    assert queries.describe(bridge, (1,), uid=1002, sees_all=False)[0].refusals == ()
    bridge.context.store.note(1, "admitted")
    assert queries.describe(bridge, (), uid=0, sees_all=True) == []


def test_refusals_are_counted_by_kind() -> None:
    figures = metrics.Metrics()
    figures.refused(NO_ROOM)
    labels = {"kind": "no-room", "resource": "gpu"}
    assert figures.registry.get_sample_value("penstock_refused_total", labels) == 1


@pytest.mark.parametrize(
    ("outcome", "how", "kind"),
    [
        (Outcome(exit_code=0), "completed", "exited"),
        (Outcome(exit_code=3), "failed", "exited"),
        (NODE_LOST, "requeued", "node-lost"),
    ],
)
def test_ends_are_counted_by_how_and_kind(outcome: Outcome, how: str, kind: str) -> None:
    figures = metrics.Metrics()
    figures.ended(outcome)
    assert figures.registry.get_sample_value("penstock_ended_total", {"how": how, "kind": kind}) == 1


async def test_metrics_are_served_to_prometheus(unused_tcp_port: int) -> None:
    figures = metrics.Metrics()
    figures.admitted()
    serving = asyncio.create_task(metrics.serve(figures, unused_tcp_port))
    try:
        for _ in range(6000):
            try:
                reader, writer = await asyncio.open_connection("127.0.0.1", unused_tcp_port)
                break
            except ConnectionRefusedError:
                await asyncio.sleep(0.01)
        writer.write(b"GET /metrics HTTP/1.1\r\nHost: x\r\n\r\n")
        answer = (await reader.read()).decode()
        writer.close()
    finally:
        serving.cancel()
        await asyncio.gather(serving, return_exceptions=True)
    assert answer.startswith("HTTP/1.1 200 OK")
    assert "penstock_admitted_total 1.0" in answer


def test_json_log_lines_have_the_job_id() -> None:
    said = io.StringIO()
    handler = logging.StreamHandler(said)
    handler.setFormatter(logformat.JsonLines())
    log = logging.Logger("penstock.x")
    log.addHandler(handler)
    joblog.of(log, 17).warning("runs as %s, 100 %% sure", "pod")
    found = json.loads(said.getvalue())
    assert (found["job"], found["level"]) == (17, "warning")
    assert found["message"] == "job 17: runs as pod, 100 % sure"
    record = logging.LogRecord("penstock.x", logging.INFO, "f", 1, "listening", (), None)
    assert "job" not in json.loads(logformat.JsonLines().format(record))
