"""Timeline, metrics and views: what people are told about jobs."""

from __future__ import annotations

import asyncio
import dataclasses
import json
import logging

import pytest

from penstock.bridge import bridge as bridging
from penstock.bridge import timeline
from penstock.cli import jobs
from penstock.daemon import describing, logs, metrics
from penstock.kube import reflecting, types
from penstock.model import views
from tests.unit import fakes


def test_the_longest_untouched_job_is_forgotten_first(monkeypatch: pytest.MonkeyPatch) -> None:
    """Memory stays bounded, owners included."""
    monkeypatch.setattr(timeline, "LATEST_JOBS", 2)
    story = timeline.Timeline(lambda: 0.0)
    for job_id in (1, 2, 1, 3):
        story.own(job_id, 1001)
        story.note(job_id, "admitted")
    assert (len(story.of(1)), story.of(2), len(story.of(3))) == (2, (), 1)
    assert (story.owner(1), story.owner(2)) == (1001, None)


def test_a_job_that_is_refused_for_days_is_remembered_in_part(monkeypatch: pytest.MonkeyPatch) -> None:
    """Its latest steps."""
    monkeypatch.setattr(timeline, "LATEST_STEPS", 3)
    story = timeline.Timeline(lambda: 0.0)
    for number in range(5):
        story.note(1, views.REFUSED, str(number))
    assert [step.text for step in story.of(1)] == ["2", "3", "4"]


def test_durations_are_of_the_latest_attempt() -> None:
    """An earlier attempt's end is not this one's."""
    now = iter((1.0, 2.0, 3.0, 7.0))
    story = timeline.Timeline(lambda: next(now))
    for name in ("launched", "ended", "launched"):
        story.note(1, name)
    assert story.seconds_between(1, "launched", "ended") is None
    story.note(1, "ended")
    assert story.seconds_between(1, "launched", "ended") == 4.0


@pytest.fixture
def bridge() -> bridging.Bridge:
    kube, clock = fakes.FakeKube(), fakes.ManualClock()
    return bridging.Bridge(
        slurm=fakes.FakeSlurm(),
        kube=kube,
        pods=reflecting.Reflector(kube, "pods", types.Pod, time=clock),
        nodes=reflecting.Reflector(kube, "nodes", types.Node, time=clock),
        settings=fakes.SETTINGS,
        time=clock,
        start_timeout=300,
        wall_clock=lambda: 5.0,
    )


def test_a_job_is_described_to_its_owner_and_to_the_site(bridge: bridging.Bridge) -> None:
    """Everybody else gets an empty view, not a hint."""
    identity = dataclasses.replace(fakes.identity(1))
    bridge.pods.objects["default/p"] = fakes.pod(
        "p", job=identity, status=fakes.ended(137, reason="OOMKilled")
    )
    bridge.timeline.own(1, 1001)
    bridge.timeline.note(1, "admitted")
    for uid, sees_all, expected in ((1001, False, (1, 1)), (0, True, (1, 1)), (1002, False, (0, 0))):
        (view,) = describing.describe(bridge, (1,), uid=uid, sees_all=sees_all)
        assert (len(view.pods), len(view.timeline)) == expected
    assert describing.describe(bridge, (), uid=1001, sees_all=False)[0].pods[0].reason == "OOMKilled"
    assert describing.describe(bridge, (), uid=1002, sees_all=False) == []


async def test_a_pod_that_does_not_start_comes_with_the_warnings_about_it(bridge: bridging.Bridge) -> None:
    """Each once, the latest last; of a pod that runs nobody is asked."""
    bridge.pods.objects["default/p"] = fakes.pod("p", job=fakes.identity(1), status=types.PodStatus())
    bridge.pods.objects["default/q"] = fakes.pod("q", job=fakes.identity(2), status=fakes.running())
    kube = bridge.follower.kube
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
    found = describing.describe(bridge, (1, 2), uid=1001, sees_all=False)
    waiting, running = await describing.with_warnings(bridge, found)
    assert waiting.pods[0].warnings == ("Failed: no such folder", "FailedMount: no such folder")
    assert running.pods[0].warnings == ()


def test_warnings_of_pods_are_shown_once_for_all_of_them(capsys: pytest.CaptureFixture[str]) -> None:
    """With the first pod's name, and how many more there are."""
    pods = [
        views.PodView(f"p{n}", "u", n, 0, "n1", "Pending", "i", warnings=("FailedMount: x",)) for n in (0, 1)
    ]
    jobs._print_warnings(pods)
    said = capsys.readouterr().out
    assert (said.count("FailedMount: x"), "p0 and 1 more" in said) == (1, True)


def test_a_job_that_was_sent_back_is_among_those_that_are_listed(bridge: bridging.Bridge) -> None:
    """With what it waits for, to its owner and to the site, until something else happens to it."""
    bridge.timeline.own(1, 1001)
    bridge.timeline.note(1, views.REFUSED, "waits for gpu on n1")
    for uid, sees_all, expected in (
        (1001, False, ["waits for gpu on n1"]),
        (0, True, ["waits for gpu on n1"]),
    ):
        found = describing.describe(bridge, (), uid=uid, sees_all=sees_all)
        assert [view.waits_for for view in found] == expected
        assert [view.timeline for view in found] == [()], "only a job asked for comes with its story"
    assert describing.describe(bridge, (), uid=1002, sees_all=False) == []
    assert describing.describe(bridge, (1,), uid=1002, sees_all=False)[0].waits_for == ""
    bridge.timeline.note(1, "admitted")
    assert describing.describe(bridge, (), uid=0, sees_all=True) == []


@pytest.mark.parametrize(
    ("reason", "label"),
    [
        ("waits for gpu on n3: 1 free", "gpu"),
        ("waits for Kubernetes: the API", "kubernetes"),
        ("oh", "other"),
    ],
)
def test_refusals_are_counted_by_kind(reason: str, label: str) -> None:
    """Few labels, however many nodes and jobs."""
    figures = metrics.Metrics()
    figures.refusal(reason)
    assert figures.registry.get_sample_value("penstock_refused_total", {"reason": label}) == 1


async def test_metrics_are_served_to_prometheus(unused_tcp_port: int) -> None:
    """Plain HTTP on loopback."""
    figures = metrics.Metrics()
    figures.admitted.inc()
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


def test_log_lines_for_machines_carry_the_job() -> None:
    """Whoever collects logs can ask for one job."""
    record = logging.LogRecord("penstock.x", logging.INFO, "f", 1, "job %d runs as %s", (17, "pod"), None)
    found = json.loads(logs.JsonLines().format(record))
    assert (found["job"], found["level"], found["message"]) == (17, "info", "job 17 runs as pod")
    record = logging.LogRecord("penstock.x", logging.INFO, "f", 1, "listening", (), None)
    assert "job" not in json.loads(logs.JsonLines().format(record))
