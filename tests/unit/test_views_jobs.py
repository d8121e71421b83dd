"""Jobs of Slurm joined with penstockd's pods."""

from __future__ import annotations

import dataclasses
from typing import Any

import msgspec
import pytest

from penstock import errors
from penstock.model import descriptions
from penstock.model import jobs as model
from penstock.model.reasons import Refusal, RefusalKind
from penstock.views import jobs
from tests.unit import fakes
from tests.unit.viewed import Penstockd, Slurm

POD = descriptions.PodView("slurm-job-17", "user-alice", 0, 0, "n1", "Running", "debian:12")


def queued(
    shown_id: str = "17", *, state: str = "PENDING", reason: str = "", user: str = "alice"
) -> model.Job:
    return fakes.job(17, shown_id=shown_id, user=user, name="x", state=state, reason=reason)


def record(shown_id: str = "17", *, job_id: int = 17, state: str = "PENDING", **more: Any) -> model.Job:
    return fakes.job(job_id, shown_id=shown_id, state=state, **({"user": "alice"} | more))


async def listed(job: model.Job, penstockd: Penstockd | None = None) -> jobs.Job:
    """The only job of the queue."""
    (found,) = (await jobs.queue(Slurm((job,)), penstockd or Penstockd())).jobs
    return found


async def shown(known: model.Job, penstockd: Penstockd | None = None) -> jobs.ShownJob:
    """The only job shown."""
    (found,) = (await jobs.show(Slurm(known=[(known,)]), penstockd or Penstockd(), "17")).jobs
    return found


async def test_running_jobs_come_first_with_pods() -> None:
    """With one query to each side."""
    penstockd = Penstockd((descriptions.JobView(17, pods=(POD,)),))
    slurm = Slurm((queued("16"), queued("17", state="RUNNING"), queued("18", user="bob")))
    found = await jobs.queue(slurm, penstockd)
    assert [job.job for job in found.jobs] == ["17", "16", "18"]
    assert (found.jobs[0].pods, found.problem, penstockd.asked) == ((POD,), "", [()])
    assert [job.job for job in (await jobs.queue(slurm, penstockd, user="bob")).jobs] == ["18"]


async def test_refusal_precedes_reason_of_slurm() -> None:
    """Slurm only knows the time of the next try; a running job has no reason."""
    refusal = Refusal(kind=RefusalKind.NODE_CORDONED, node="n1", since=5.0)
    penstockd = Penstockd((descriptions.JobView(17, refusals=(refusal,)),))
    reason = (await listed(queued(reason="BeginTime"), penstockd)).reason
    assert reason is not None
    assert (reason.source, reason.code) == ("kubernetes", "BeginTime")
    assert reason.text.startswith("waits for node n1: cordoned")
    assert [(one.kind, one.node, one.since.timestamp()) for one in reason.refusals] == [
        ("node-cordoned", "n1", 5.0)
    ]
    assert (await listed(queued(state="RUNNING", reason="None"), penstockd)).reason is None


@pytest.mark.parametrize(
    ("code", "words"),
    [
        ("Resources", "waits until enough"),
        ("ReqNodeNotAvail, UnavailableNodes:n1", "a node that it asked for is down"),
        ("QOSMaxJobsPerUserLimit", "a limit of its quality of service"),
        ("AssocGrpGRESMinutes", "a limit of its user or account"),
        ("SomethingNew", "waits"),
    ],
)
async def test_reason_of_slurm_has_code_and_text(code: str, words: str) -> None:
    """A new code of Slurm's is kept as it is."""
    reason = (await listed(queued(reason=code))).reason
    assert reason is not None
    assert (reason.source, reason.code, words in reason.text) == ("slurm", code, True)


@pytest.mark.parametrize(
    ("tasks", "count"),
    [("3", 1), ("[5-99%2]", 95), ("[1,3,5-7]", 5), ("[0-20:4]", 6), ("[1-9,...]", 1), ("", 1)],
)
async def test_pending_tasks_are_counted(tasks: str, count: int) -> None:
    """Slurm lists them as one job; a truncated list counts as one."""
    found = await shown(record(f"20_{tasks}" if tasks else "20"))
    assert (found.tasks, found.array) == (count, "20" if tasks else None)


@pytest.mark.parametrize(
    ("asker", "sees_all", "hidden"), [("alice", False, False), ("bob", False, True), ("root", True, False)]
)
async def test_pods_of_other_users_are_null(asker: str, sees_all: bool, hidden: bool) -> None:
    """So is their timeline; the site sees all."""
    penstockd = Penstockd(asker=asker, sees_all=sees_all)
    assert ((await listed(queued(state="RUNNING"), penstockd)).pods is None) == hidden
    found = await shown(record(state="RUNNING"), penstockd)
    assert (found.pods is None, found.timeline is None) == (hidden, hidden)


async def test_jobs_are_shown_without_penstockd() -> None:
    """With the reason why pods could not be read."""
    slurm, away = Slurm((queued(),), [(record(),)]), Penstockd(away=True)
    queue, found = await jobs.queue(slurm, away), await jobs.show(slurm, away, "17")
    assert queue.problem == found.problem == "penstockd does not answer on /s: refused"
    assert (queue.jobs[0].state, queue.jobs[0].pods) == ("PENDING", None)
    assert (found.jobs[0].state, found.jobs[0].timeline) == ("PENDING", None)


async def test_comment_lacks_penstocks_reason() -> None:
    """The reason is shown separately."""
    found = await shown(record(comment="waits for gpu on n1 [penstock] mine"))
    assert found.comment == "mine"


async def test_query_to_penstockd_is_limited() -> None:
    """The tasks of a large array beyond the limit are shown without pods."""
    tasks = tuple(record(f"20_{number}", job_id=number) for number in range(jobs.MOST_DESCRIBED + 1))
    penstockd = Penstockd()
    found = await jobs.show(Slurm(known=[tasks]), penstockd, "20")
    assert (len(found.jobs), len(penstockd.asked[0])) == (jobs.MOST_DESCRIBED + 1, jobs.MOST_DESCRIBED)


@pytest.mark.parametrize("job", ["", "x", "17;ls", "-1", "1_2_3", "20_x"])
async def test_invalid_job_id_is_refused(job: str) -> None:
    """Before anything is queried."""
    with pytest.raises(errors.UsageError, match="is not a job id"):
        await jobs.show(Slurm(), Penstockd(), job)


@pytest.mark.parametrize("state", ["STAGE_OUT", "SIGNALING", "STOPPED", "SPECIAL_EXIT", "COMPLETING"])
async def test_exit_code_is_null_until_job_has_ended(state: str) -> None:
    """A job that is being signalled has no exit code yet."""
    known = record(state=state, exit_code=0, signal=0)
    assert (await shown(known)).exit_code is None
    assert (await shown(dataclasses.replace(known, state="OUT_OF_MEMORY"))).exit_code == 0


async def test_times_are_utc_text() -> None:
    """With a Z."""
    story = descriptions.JobView(17, timeline=(descriptions.StepView(1769860800.5, "placed"),))
    found = await shown(record(state="RUNNING"), Penstockd((story,)))
    assert found.timeline is not None
    assert msgspec.json.decode(msgspec.json.encode(found.timeline[0]))["at"] == "2026-01-31T12:00:00.500000Z"
