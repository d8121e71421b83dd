"""penstockd's record of an attempt: there before its first pod, handed over after its last."""

from __future__ import annotations

import dataclasses
from pathlib import Path

import msgspec
import pytest

from penstock import errors
from penstock.bridge import attemptfiles
from penstock.bridge import bridge as bridging
from penstock.kube import kinds, podview, reflectors, types
from penstock.model import attempts as model
from penstock.model import jobspec, launches, sentences
from penstock.model.reasons import Outcome, OutcomeKind
from tests.unit import fakes


@dataclasses.dataclass
class World:
    """A bridge that keeps records in a folder."""

    state: Path
    kube: fakes.FakeKube
    slurm: fakes.FakeSlurm
    bridge: bridging.Bridge

    def names(self, folder: str) -> list[str]:
        return sorted(path.name for path in (self.state / folder).iterdir())

    def record(self, name: str = "17-0.json", folder: str = "ended") -> model.Attempt:
        return msgspec.json.decode((self.state / folder / name).read_bytes(), type=model.Attempt)


def world_in(state: Path) -> World:
    clock, slurm, kube = fakes.ManualClock(), fakes.FakeSlurm(), fakes.FakeKube()
    pods = reflectors.Reflector(kube, kinds.PODS, types.Pod, indexes=podview.INDEXES, time=clock)
    nodes = reflectors.Reflector(kube, kinds.NODES, types.Node, time=clock)
    nodes.objects = {"/n1": fakes.node("n1")}
    for picture in (pods, nodes):
        picture.listed.set()
    bridge = fakes.bridge(
        slurm=slurm,
        kube=kube,
        pods=pods,
        nodes=nodes,
        time=clock,
        wall_clock=lambda: 5.0,
        state_dir=str(state),
        results="/nas/results",
    )
    return World(state, kube, slurm, bridge)


@pytest.fixture
def world(tmp_path: Path) -> World:
    (tmp_path / model.COLLECTOR_MARK).touch()
    return world_in(tmp_path)


async def test_record_is_there_before_the_first_pod(world: World) -> None:
    """Whatever happens afterwards, the attempt is known."""
    seen: list[list[str]] = []
    world.kube.on_bind = lambda key: seen.append(world.names("running"))
    world.bridge.context.store.reserve(fakes.allocation())
    await world.bridge.launching.launch(fakes.allocation(), fakes.REQUEST, fakes.nobody)
    assert seen == [["17-0.json"]]
    found = world.record(folder="running")
    assert (found.uid, found.stdout, found.image) == (1001, fakes.REQUEST.stdout, "site/default:1")
    assert found.output_dir == f"/nas/results/.outputs/17-0-{found.token}"
    assert len(found.token) == 32


async def test_no_folder_for_outputs_is_promised_before_a_collector_was_at_work(world: World) -> None:
    """Nobody has made the place for it: the job would complain in its output."""
    (world.state / model.COLLECTOR_MARK).unlink()
    assert await world.bridge.attempts.begin(fakes.allocation(), fakes.REQUEST) == ""
    found = world.record(folder="running")
    assert (found.output_dir, found.uncollected) == ("", True)
    (world.state / model.COLLECTOR_MARK).touch()
    assert await world.bridge.attempts.begin(fakes.allocation(), fakes.REQUEST) == "", "it has begun without"
    assert await world.bridge.attempts.begin(fakes.allocation(18), fakes.REQUEST) != ""


async def test_record_says_when_its_job_was_submitted(world: World) -> None:
    """Attempts of one job are told from those of another that had its number."""
    allocation = dataclasses.replace(fakes.allocation(), submission="1763270000")
    await world.bridge.attempts.begin(allocation, fakes.REQUEST)
    assert world.record(folder="running").submission == "1763270000"


async def test_record_has_the_name_of_an_arrays_task(world: World) -> None:
    """As slurmctld knows it when the task starts."""
    allocation = dataclasses.replace(fakes.allocation(), array=(12, 5))
    await world.bridge.attempts.begin(allocation, fakes.REQUEST)
    assert world.record(folder="running").shown_id == "12_5"


async def test_record_says_where_the_job_ran_and_in_which_image(world: World) -> None:
    """The partition's own image, and /tmp where pods do not see the folder that it was submitted in."""
    world.bridge.attempts._settings = fakes.policy(fakes.allocation().partition, image="part/own:2")
    request = dataclasses.replace(fakes.REQUEST, workdir=b"/home/alice")
    await world.bridge.attempts.begin(fakes.allocation(), request)
    found = world.record(folder="running")
    assert found.image == "part/own:2"
    assert (found.workdir, found.workdir_is_shared, found.lost_workdir) == (b"/tmp", False, b"/home/alice")


async def test_record_is_handed_over_with_the_last_node(world: World) -> None:
    """The first of two Epilogs hands over nothing."""
    allocation = fakes.allocation(on=("n1", "n2"))
    world.bridge.context.store.reserve(allocation)
    await world.bridge.attempts.begin(allocation, fakes.REQUEST)
    await world.bridge.releasing.release(17, "n2")
    assert (world.names("running"), world.names("ended")) == (["17-0.json"], [])
    await world.bridge.releasing.release(17, "n1")
    assert (world.names("running"), world.names("ended")) == ([], ["17-0.json"])
    assert world.record().closed == 5.0


async def test_end_and_pods_are_in_the_record(world: World) -> None:
    """Exit code, reason, and each pod as it was last seen."""
    allocation = fakes.allocation()
    world.bridge.context.store.reserve(allocation)
    await world.bridge.attempts.begin(allocation, fakes.REQUEST)
    pod = fakes.pod("slurm-job-17", job=allocation.identity, status=fakes.running())
    world.bridge.context.pods.put(pod)
    await world.bridge.sessions.ending.record(
        allocation.identity, Outcome(kind=OutcomeKind.AGENT_FAILED, exit_code=7, detail="because"), (pod,)
    )
    assert world.record(folder="running").end == model.End(
        at=5.0, exit_code=7, kind=OutcomeKind.AGENT_FAILED, reason="because"
    )
    end = fakes.ended(7, message="0m1s 0m2s")
    world.bridge.context.pods.put(fakes.pod("slurm-job-17", job=allocation.identity, status=end, version="2"))
    await world.bridge.releasing.release(17, "n1")
    (facts,) = world.record().pods
    assert (facts.name, facts.exit_code, facts.message) == ("slurm-job-17", 7, "0m1s 0m2s")


async def test_a_reason_that_slurmctld_did_not_take_is_left_to_the_collector(world: World) -> None:
    """It is in the record on the disk at once."""
    allocation = fakes.allocation()
    await world.bridge.attempts.begin(allocation, fakes.REQUEST)
    await world.bridge.attempts.untold(allocation.identity)
    assert world.record(folder="running").end is None
    await world.bridge.sessions.ending.record(
        allocation.identity, Outcome(kind=OutcomeKind.AGENT_FAILED, exit_code=7, detail="because"), ()
    )
    await world.bridge.attempts.untold(allocation.identity)
    end = model.End(at=5.0, exit_code=7, kind=OutcomeKind.AGENT_FAILED, reason="because", untold=True)
    assert world.record(folder="running").end == end


async def test_attempt_begun_by_a_killed_penstockd_keeps_its_folder(world: World) -> None:
    """The pod that is there already has been told its name."""
    before = await world.bridge.attempts.begin(fakes.allocation(), fakes.REQUEST)
    again = world_in(world.state)
    assert await again.bridge.attempts.begin(fakes.allocation(), fakes.REQUEST) == before
    assert before


async def test_an_end_that_was_seen_outlives_penstockd_and_the_pod(world: World) -> None:
    """An evicted pod is gone when penstockd is back; that its job is to run again is known all the same."""
    allocation = fakes.allocation()
    await world.bridge.attempts.begin(allocation, fakes.REQUEST)
    assert world.bridge.attempts.end_of(allocation.identity) is None
    evicted = Outcome(
        kind=OutcomeKind.EVICTED, exit_code=143, detail="Evicted: the node was needed", requeue=True
    )
    await world.bridge.sessions.ending.record(allocation.identity, evicted, ())
    again = world_in(world.state)
    found = again.bridge.attempts.end_of(allocation.identity)
    assert found is not None
    assert (found.kind, found.exit_code, found.requeue) == (OutcomeKind.EVICTED, 143, True)
    assert sentences.outcome(found) == sentences.outcome(evicted)
    assert again.bridge.attempts.end_of(fakes.identity(17, restart=1)) is None


@pytest.mark.parametrize("there", [True, False])
async def test_a_success_whose_pod_goes_outlives_them_too(world: World, there: bool) -> None:
    """Of a script that answered Slurm's SIGTERM with exit 0: its pod, if there, would tell of a deletion."""
    allocation = fakes.allocation()
    await world.bridge.attempts.begin(allocation, fakes.REQUEST)
    pod = fakes.pod("slurm-job-17", job=allocation.identity, status=fakes.ended(0), deleting=True)
    if there:
        world.bridge.context.pods.put(pod)
    await world.bridge.sessions.ending.record(allocation.identity, Outcome(exit_code=0), (pod,))
    again = world_in(world.state)
    assert again.bridge.attempts.end_of(allocation.identity) == Outcome(exit_code=0)


async def test_sweeper_hands_over_what_nobody_saw_end(world: World) -> None:
    """Only when Slurm said so twice, and never while a pod is left."""
    allocation = fakes.allocation()
    await world.bridge.attempts.begin(allocation, fakes.REQUEST)
    sweeper = world.bridge.sweeper
    world.slurm.add(allocation)
    await sweeper.sweep()
    await sweeper.sweep()
    assert world.names("ended") == []
    world.slurm.live.clear()
    pod = fakes.pod("slurm-job-17", job=allocation.identity, deleting=True)
    world.bridge.context.pods.put(pod)
    for _ in range(3):
        await sweeper.sweep()
    assert world.names("ended") == []
    world.bridge.context.pods.gone(pod)
    await sweeper.sweep()
    assert world.names("ended") == ["17-0.json"]


async def test_list_that_lacks_a_job_ends_no_attempt(world: World) -> None:
    """Slurm is asked for this very job, and its launcher counts, too."""
    allocation = fakes.allocation()
    await world.bridge.attempts.begin(allocation, fakes.REQUEST)
    sweeper = world.bridge.sweeper
    with world.bridge.context.store.attending(17):
        for _ in range(3):
            await sweeper.sweep()
    assert world.names("ended") == []
    await sweeper.sweep()
    assert world.names("ended") == ["17-0.json"]


async def test_requeued_job_has_a_record_for_each_attempt(world: World) -> None:
    """Under the same id, told apart by the restart count."""
    for restart in (0, 1):
        allocation = fakes.allocation(restart=restart)
        world.bridge.context.store.reserve(allocation)
        await world.bridge.attempts.begin(allocation, fakes.REQUEST)
        await world.bridge.releasing.release(17, "n1")
    assert world.names("ended") == ["17-0.json", "17-1.json"]


async def test_disk_that_takes_nothing_stops_no_job(world: World) -> None:
    """The record is kept in memory and written when that works again."""
    allocation = fakes.allocation()
    (world.state / "running").rmdir()
    await world.bridge.attempts.begin(allocation, fakes.REQUEST)
    await world.bridge.attempts.close(allocation.identity)
    assert world.bridge.attempts.under_way() == (allocation.identity,)
    (world.state / "running").mkdir()
    await world.bridge.attempts.close(allocation.identity)
    assert world.names("ended") == ["17-0.json"]


async def test_without_a_results_folder_that_pods_see_there_is_no_output_folder(tmp_path: Path) -> None:
    """Nothing is promised that a pod could not reach."""
    kept = attemptfiles.AttemptRecords(
        world_in(tmp_path).bridge.context, state_dir=str(tmp_path), results="/srv/results"
    )
    assert await kept.begin(fakes.allocation(), fakes.REQUEST) == ""


def test_state_directory_that_is_not_there_is_said(world: World, tmp_path: Path) -> None:
    """At the start, in words."""
    with pytest.raises(errors.UsageError, match="No such file"):
        attemptfiles.AttemptRecords(world.bridge.context, state_dir=str(tmp_path / "none"))


def test_digest_and_times_of_a_pod() -> None:
    """As the kubelet reports them."""
    text = (
        b'{"metadata": {"name": "p", "labels": {"penstock.dev/rank": "1"}}, "status": {"containerStatuses": '
        b'[{"name": "job", "imageID": "reg/x@sha256:12", "state": {"terminated": {"exitCode": 3, '
        b'"startedAt": "2026-01-01T00:00:00Z", "finishedAt": "2026-01-01T00:00:09Z", "reason": "Error"}}}]}}'
    )
    facts = attemptfiles.facts_of(msgspec.json.decode(text, type=types.Pod))
    assert (facts.rank, facts.image_id, facts.exit_code) == (1, "reg/x@sha256:12", 3)
    assert (facts.started, facts.ended) == ("2026-01-01T00:00:00Z", "2026-01-01T00:00:09Z")


async def test_a_number_that_is_given_anew_begins_anew(world: World) -> None:
    """slurmctld lost its state: the job before keeps its record and folder; one under way is left alone."""
    world.slurm.add(fakes.allocation())
    folder = await world.bridge.attempts.begin(fakes.allocation(), fakes.REQUEST)
    with world.bridge.context.store.attending(17):
        await fakes.admit(world.bridge, fakes.identity())
    assert world.names("running") == ["17-0.json"]
    await fakes.admit(world.bridge, fakes.identity())
    assert (world.names("running"), world.names("ended")) == ([], ["17-0.json"])
    assert world.record().output_dir == folder
    assert await world.bridge.attempts.begin(fakes.allocation(), fakes.REQUEST) != folder


async def test_the_next_attempt_waits_until_the_one_before_is_collected(world: World) -> None:
    """Slurm empties the output file when it starts: what it had is gone then."""
    record = world.state / "ended" / "17-0.json"
    record.write_text("{}")
    time = world.bridge.context.time = Collecting(record, after=3.0)
    await world.bridge.attempts.wait_for_collector(fakes.identity(restart=2))
    assert not record.exists()
    assert time.now() - 1000.0 < attemptfiles.COLLECT_SECONDS


async def test_a_collector_that_is_away_is_not_waited_for_for_long(world: World) -> None:
    """Nor is one waited for that has nothing to do with this job."""
    (world.state / "ended" / "17-0.json").write_text("{}")
    (world.state / "ended" / "18-0.json").write_text("{}")
    clock = world.bridge.context.time
    await world.bridge.attempts.wait_for_collector(fakes.identity(18, restart=0))
    assert clock.now() == 1000.0
    await world.bridge.attempts.wait_for_collector(fakes.identity(17, restart=1))
    assert clock.now() - 1000.0 == pytest.approx(attemptfiles.COLLECT_SECONDS, abs=attemptfiles.LOOK_SECONDS)


class Collecting(fakes.ManualClock):
    """Time in which a record is collected."""

    def __init__(self, record: Path, after: float) -> None:
        super().__init__()
        self.record, self.at = record, self.time + after

    async def sleep(self, seconds: float) -> None:
        await super().sleep(seconds)
        if self.time >= self.at:
            self.record.unlink(missing_ok=True)


async def test_a_job_that_slurmd_could_not_start_leaves_a_record_with_the_reason(world: World) -> None:
    """Nobody launched it: its files and its end are slurmctld's word."""
    allocation = fakes.allocation(17)
    world.bridge.context.store.reserve(allocation)
    world.slurm.failed[17] = fakes.job(
        17,
        state="FAILED",
        exit_code=0,
        signal=53,
        started=4,
        workdir="/w",
        stdin="/dev/null",
        stdout="/no/out",
        stderr="/no/err",
    )
    await world.bridge.releasing.release(17, "n1")
    found = world.record()
    assert found.end is not None
    assert (found.unlaunched, found.end.signal, found.launched, found.stdout) == (True, 53, 4.0, b"/no/out")
    words = "slurmd on n1 could not open its output /no/out or error /no/err"
    assert found.end.reason.startswith(words)
    assert [step.name for step in world.bridge.context.store.job(17).steps] == ["not started", "released"]


async def test_other_failures_of_slurmd_are_told_as_far_as_they_are_known(world: World) -> None:
    """The number, and where to look."""
    world.bridge.context.store.reserve(fakes.allocation(17))
    world.slurm.failed[17] = fakes.job(17, state="FAILED", exit_code=0, signal=52, started=4)
    await world.bridge.releasing.release(17, "n1")
    end = world.record().end
    assert end is not None
    assert end.reason == "slurmd on n1 could not start it (JobLaunchFailure, 0:52): its log there says why"


@pytest.mark.parametrize("away", [False, True])
async def test_a_job_that_was_cancelled_before_its_launch_leaves_no_record(world: World, away: bool) -> None:
    """Nor one of which Slurm does not tell: its node is given back all the same."""
    world.bridge.context.store.reserve(fakes.allocation(17))
    world.slurm.away = away
    await world.bridge.releasing.release(17, "n1")
    assert world.names("ended") == []
    assert world.bridge.context.store.reservation(17) is None


def task(*patterns: str, number: str = "3", workdir: bytes = b"/nas/home") -> launches.LaunchRequest:
    """A task of an array with these outputs, or a job without one."""
    array = (b"SLURM_ARRAY_JOB_ID=20", b"SLURM_ARRAY_TASK_ID=" + number.encode()) if number else ()
    return dataclasses.replace(
        fakes.REQUEST,
        environment=(b"SLURM_JOB_ID=23", *array),
        workdir=workdir,
        pod=jobspec.PodSpec(outputs=patterns),
    )


@pytest.mark.parametrize(
    ("pattern", "number", "expected"),
    [
        ("part-%a.csv", "3", "part-3.csv"),
        ("%A/%3a/%j-*", "3", "20/003/23-*"),
        ("100%%a", "3", "100%a"),
        ("%x-%n", "3", "%x-%n"),
        ("%A-%j", "", "23-23"),
        ("%a", "", "4294967294"),
    ],
)
def test_outputs_are_named_as_in_output_files(pattern: str, number: str, expected: str) -> None:
    """Slurm's own rules, as far as they name job, array and task."""
    assert task(pattern, number=number).outputs == (expected,)


async def test_a_task_collects_no_files_of_its_siblings(world: World) -> None:
    """They work in the same folder; where the container has its own, every pattern means its own files."""
    patterns = ("*.csv", "part-%a.*", "%j/**", "%A-all", "%%a")
    world.bridge.context.store.reserve(fakes.allocation(17))
    await world.bridge.attempts.begin(fakes.allocation(17), task(*patterns))
    found = world.bridge.context.store.job(17).attempt
    assert found is not None
    assert (found.outputs, found.outputs_left) == (("part-3.*", "23/**"), ("*.csv", "%A-all", "%%a"))
    await world.bridge.attempts.begin(fakes.allocation(18), task(*patterns, workdir=b"/app"))
    inside = world.bridge.context.store.job(18).attempt
    assert inside is not None
    assert (inside.outputs_left, inside.outputs[0]) == ((), "*.csv")
    await world.bridge.attempts.begin(fakes.allocation(19), task(*patterns, number=""))
    alone = world.bridge.context.store.job(19).attempt
    assert alone is not None
    assert (alone.outputs_left, alone.outputs[0]) == ((), "*.csv")
