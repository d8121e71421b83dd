"""Results and output as values: found, read, followed."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any, Literal

import pytest

from penstock import errors
from penstock.model import descriptions, jobs
from penstock.results import tails
from penstock.views import logs, results
from tests.results.stage import Stage
from tests.unit import fakes
from tests.unit.fakes import ManualClock
from tests.unit.viewed import Penstockd, Slurm

AWAY = Penstockd(away=True)


def record(state: str = "COMPLETED", *, job: str = "17", job_id: int = 17, **more: Any) -> jobs.Job:
    return fakes.job(job_id, shown_id=job, state=state, **({"user": "alice"} | more))


def slurm(*records: jobs.Job) -> Slurm:
    """These records in order, the last one forever."""
    return Slurm(known=[(one,) for one in records])


def writing(path: str) -> Penstockd:
    """It says that job 17 writes both streams there."""
    return Penstockd((descriptions.JobView(17, stdout=path.encode(), stderr=path.encode()),))


class Reader:
    """Somebody who reads the output of job 17, in time that passes only by waiting."""

    def __init__(self, stage: Stage) -> None:
        self.stage = stage
        self.text, self.restarts = "", 0

    async def read(
        self,
        slurm: Slurm,
        penstockd: Penstockd = AWAY,
        *,
        follow: bool = False,
        stream: Literal["stdout", "stderr"] = "stdout",
        meanwhile: Callable[[], object] = lambda: None,
    ) -> str:
        """All of it; `meanwhile` something happens at each wait."""

        class Clock(ManualClock):
            async def sleep(self, seconds: float) -> None:
                await super().sleep(max(seconds, logs.ASK_SLURM))
                meanwhile()

        self.text, self.restarts = "", 0
        folder = self.stage.results
        found = logs.Output(slurm, penstockd, folder, "17", stream, Clock())
        async for piece in found.read(follow=follow):
            self.text += piece.data.decode()
            self.restarts += piece.began_again
        return self.text


@pytest.fixture
def reader(stage: Stage) -> Reader:
    return Reader(stage)


async def test_array_tasks_and_earlier_attempts(stage: Stage) -> None:
    """By the array's id, in the order of tasks; by the id of a task."""
    for restart in (0, 1):
        assert stage.collect(stage.attempt(31, restart=restart), shown="20_10")
    assert stage.collect(stage.attempt(32), shown="20_9")
    found = await results.results(slurm(), stage.results, "20", verify=False)
    assert [(one.summary.job, one.attempts) for one in found.results] == [
        ("20_9", ()),
        ("20_10", ("attempt-0",)),
    ]
    known = slurm(record(job="20_10", job_id=31))
    (task,) = (await results.results(known, stage.results, "31", verify=False)).results
    assert task == found.results[1]


async def test_changes_are_found_by_verify_only(stage: Stage) -> None:
    """Without verify results are good if they are complete."""
    assert stage.collect(stage.attempt())
    assert (await results.results(slurm(), stage.results, "17", verify=True)).are_good
    (stage.results / "17" / "stdout.log").write_text("changed")
    assert (await results.results(slurm(), stage.results, "17", verify=False)).are_good
    assert not (await results.results(slurm(), stage.results, "17", verify=True)).are_good


@pytest.mark.parametrize("state", ["PENDING", "CANCELLED"])
async def test_array_that_never_started_has_no_results(stage: Stage, reader: Reader, state: str) -> None:
    """Slurm has one record of all its tasks, whose name is not a folder's."""
    known = slurm(record(state, job="17_[5-9]"))
    with pytest.raises(results.NoResults, match=f"no results of job 17, which is {state}"):
        await results.results(known, stage.results, "17", verify=False)
    with pytest.raises(errors.NotThere, match=r"^stdout path of job .* is unknown"):
        await reader.read(known)


async def test_broken_results_are_an_error(stage: Stage) -> None:
    """The owner has changed or removed the summary."""
    assert stage.collect(stage.attempt())
    (stage.results / "17" / "job_summary.json").write_text("{")
    with pytest.raises(errors.PenstockError, match="is not valid"):
        await results.results(slurm(), stage.results, "17", verify=False)
    (stage.results / "17" / "job_summary.json").unlink()
    with pytest.raises(errors.PenstockError, match=r"it has no job_summary\.json"):
        await results.results(slurm(), stage.results, "17", verify=False)


async def test_output_of_collected_job(stage: Stage, reader: Reader) -> None:
    """From the results, also if the original is gone."""
    assert stage.collect(stage.attempt(out="collected\n"))
    (stage.home / "slurm-17.out").unlink()
    assert await reader.read(slurm(record())) == "collected\n"
    assert await reader.read(slurm(record()), stream="stderr") == ""


async def test_output_of_running_job(stage: Stage, reader: Reader) -> None:
    """From the path that penstockd reports, or Slurm if penstockd does not answer."""
    out = str(stage.file("live.txt", "live\n"))
    assert await reader.read(slurm(record("RUNNING")), writing(out)) == "live\n"
    assert await reader.read(slurm(record("RUNNING", stdout=out))) == "live\n"
    with pytest.raises(errors.NotThere, match=r"^stdout path of job .* is unknown"):
        await reader.read(slurm(record("PENDING")), Penstockd())


async def test_pending_job_is_followed_from_first_line(stage: Stage, reader: Reader) -> None:
    """Slurm does not expand all patterns of a pending job: the path reported later counts."""
    stage.file("live-17-train.txt", "first\n")
    waiting = record("PENDING", stdout=str(stage.home / "live-17-%x.txt"))
    live = record("RUNNING", stdout=str(stage.home / "live-17-train.txt"))
    known = slurm(waiting, waiting, live, record(stdout=live.stdout))
    assert await reader.read(known, follow=True) == "first\n"


async def test_unknown_output_path_is_an_error(reader: Reader) -> None:
    """Slurm has forgotten the path, and there are no results; also with follow."""
    with pytest.raises(errors.NotThere, match=r"^stdout path of job 17 is unknown$"):
        await reader.read(slurm(record()), follow=True)


async def test_short_job_is_shown_from_its_results(stage: Stage, reader: Reader) -> None:
    """It ended before its path was known."""
    assert stage.collect(stage.attempt(out="fast\n"))
    assert await reader.read(slurm(record("PENDING"), record()), Penstockd(), follow=True) == "fast\n"


async def test_follow_waits_for_results(stage: Stage, reader: Reader) -> None:
    """The job ended before its path was known, and its results come a moment later."""
    waits: list[None] = []

    def collect() -> None:
        waits.append(None)
        if len(waits) == 3:
            assert stage.collect(stage.attempt(out="late\n"))

    known = slurm(record("PENDING"), record())
    assert await reader.read(known, Penstockd(), follow=True, meanwhile=collect) == "late\n"


async def test_output_is_followed_to_end_of_job(stage: Stage, reader: Reader) -> None:
    """New output is read, also of a second attempt that truncates the file."""
    out = stage.file("live.txt", "first attempt\n")
    states = (record("RUNNING"), record("RUNNING"), record("PENDING"), record("RUNNING"), record())
    texts = iter(["second\n", "second\nand last\n"])
    meanwhile = lambda: out.write_text(next(texts, "second\nand last\n"))  # noqa: E731  # used once
    await reader.read(slurm(*states), writing(str(out)), follow=True, meanwhile=meanwhile)
    assert (reader.text, reader.restarts) == ("first attempt\nsecond\nand last\n", 1)


async def test_missing_output_is_an_error(reader: Reader) -> None:
    """Not written yet, or on another host; with the state of the job."""
    gone = writing("/nonexistent/out")
    with pytest.raises(errors.NotThere, match=r"^/nonexistent/out does not exist: job 17 is RUNNING$"):
        await reader.read(slurm(record("RUNNING")), gone)
    with pytest.raises(errors.NotThere) as told:
        await reader.read(slurm(record("FAILED", comment="no such folder")), gone, follow=True)
    assert told.value.hint == "no such folder"


@pytest.mark.parametrize("follow", [False, True])
async def test_uncollected_output_is_an_error(stage: Stage, reader: Reader, follow: bool) -> None:
    """An empty collected file with a note gives the note as the reason."""
    assert stage.collect(stage.attempt(stdout=b"/nonexistent/out", stderr=b"/nonexistent/out"))
    known = slurm(record("FAILED", comment="slurmd could not open its output"))
    with pytest.raises(errors.NotThere) as told:
        await reader.read(known, follow=follow)
    assert (told.value.message, told.value.hint) == (
        "job 17 has no stdout: /nonexistent/out could not be read: No such file or directory",
        "slurmd could not open its output",
    )


async def test_output_of_other_user_is_refused(
    stage: Stage, reader: Reader, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The kernel refuses; the message names the job's user."""
    out = stage.file("live.txt", "secret\n")

    def refused(*_: object) -> None:
        raise PermissionError

    monkeypatch.setattr(Path, "open", refused)
    with pytest.raises(errors.PenstockError, match="no permission to read") as told:
        await reader.read(slurm(record("RUNNING", stdout=str(out))))
    assert (reader.text, told.value.hint) == ("", "The job belongs to alice.")


def test_tail_of_growing_and_replaced_file(tmp_path: Path) -> None:
    """Every byte once; a new file from its beginning."""
    path = tmp_path / "out"
    tail = tails.Tail(path)
    assert list(tail.more()) == []
    path.write_text("one")
    assert b"".join(tail.more()) == b"one"
    with path.open("a") as stream:
        stream.write(" two")
    assert b"".join(tail.more()) == b" two"
    path.write_text("x")
    assert (b"".join(tail.more()), tail.began_again) == (b"x", 1)
    (tmp_path / "new").write_text("another file")
    (tmp_path / "new").replace(path)
    assert (b"".join(tail.more()), tail.began_again) == (b"another file", 2)
