"""Records of attempts: written before the first pod, handed over after the last."""

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
from penstock.model import sentences
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


async def test_record_is_written_before_the_first_pod(world: World) -> None:
    seen: list[list[str]] = []
    world.kube.on_bind = lambda key: seen.append(world.names("running"))
    world.bridge.context.store.reserve(fakes.allocation())
    await world.bridge.launching.launch(fakes.allocation(), fakes.REQUEST, fakes.nobody)
    assert seen == [["17-0.json"]]
    found = world.record(folder="running")
    assert (found.uid, found.stdout, found.image) == (1001, fakes.REQUEST.stdout, "site/default:1")
    assert found.output_dir == f"/nas/results/.outputs/17-0-{found.token}"
    assert len(found.token) == 32


async def test_no_output_folder_before_a_collector_has_run(world: World) -> None:
    """Nobody has created its parent; the job would fail to write there."""
    (world.state / model.COLLECTOR_MARK).unlink()
    assert await world.bridge.attempts.begin(fakes.allocation(), fakes.REQUEST) == ""
    found = world.record(folder="running")
    assert (found.output_dir, found.uncollected) == ("", True)
    (world.state / model.COLLECTOR_MARK).touch()
    assert await world.bridge.attempts.begin(fakes.allocation(), fakes.REQUEST) == "", "it has begun without"
    assert await world.bridge.attempts.begin(fakes.allocation(18), fakes.REQUEST) != ""


async def test_record_has_the_submission_time(world: World) -> None:
    """Slurm may reuse a job id."""
    allocation = dataclasses.replace(fakes.allocation(), submission="1763270000")
    await world.bridge.attempts.begin(allocation, fakes.REQUEST)
    assert world.record(folder="running").submission == "1763270000"


async def test_record_has_the_id_of_an_array_task(world: World) -> None:
    """As slurmctld shows it when the task starts."""
    allocation = dataclasses.replace(fakes.allocation(), array=(12, 5))
    await world.bridge.attempts.begin(allocation, fakes.REQUEST)
    assert world.record(folder="running").shown_id == "12_5"


async def test_record_has_work_directory_and_image(world: World) -> None:
    """The partition's image, and /tmp if pods do not see the work directory."""
    world.bridge.attempts._settings = fakes.policy(fakes.allocation().partition, image="part/own:2")
    request = dataclasses.replace(fakes.REQUEST, workdir=b"/home/alice")
    await world.bridge.attempts.begin(fakes.allocation(), request)
    found = world.record(folder="running")
    assert found.image == "part/own:2"
    assert (found.workdir, found.workdir_is_shared, found.lost_workdir) == (b"/tmp", False, b"/home/alice")


async def test_record_is_handed_over_with_the_last_node(world: World) -> None:
    """Not by the first of two Epilogs."""
    allocation = fakes.allocation(on=("n1", "n2"))
    world.bridge.context.store.reserve(allocation)
    await world.bridge.attempts.begin(allocation, fakes.REQUEST)
    await world.bridge.releasing.release(17, "n2")
    assert (world.names("running"), world.names("ended")) == (["17-0.json"], [])
    await world.bridge.releasing.release(17, "n1")
    assert (world.names("running"), world.names("ended")) == ([], ["17-0.json"])
    assert world.record().closed == 5.0


async def test_record_has_the_end_and_the_pods(world: World) -> None:
    """Exit code, reason, and each pod's last state."""
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
    """It is written to disk at once."""
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


async def test_output_folder_survives_a_restart_of_penstockd(world: World) -> None:
    """The existing pod was told its name."""
    before = await world.bridge.attempts.begin(fakes.allocation(), fakes.REQUEST)
    again = world_in(world.state)
    assert await again.bridge.attempts.begin(fakes.allocation(), fakes.REQUEST) == before
    assert before


async def test_a_recorded_end_survives_penstockd_and_the_pod(world: World) -> None:
    """The evicted pod is gone when penstockd is back; the job is requeued all the same."""
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
async def test_a_recorded_success_survives_the_deleted_pod(world: World, there: bool) -> None:
    """The script answered Slurm's SIGTERM with exit 0; its pod would show a deletion."""
    allocation = fakes.allocation()
    await world.bridge.attempts.begin(allocation, fakes.REQUEST)
    pod = fakes.pod("slurm-job-17", job=allocation.identity, status=fakes.ended(0), deleting=True)
    if there:
        world.bridge.context.pods.put(pod)
    await world.bridge.sessions.ending.record(allocation.identity, Outcome(exit_code=0), (pod,))
    again = world_in(world.state)
    assert again.bridge.attempts.end_of(allocation.identity) == Outcome(exit_code=0)


async def test_sweeper_hands_over_attempts_that_ended_unseen(world: World) -> None:
    """Only if Slurm confirms twice, and no pod is left."""
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


async def test_an_incomplete_job_list_ends_no_attempt(world: World) -> None:
    """Slurm is queried for this job, and a connected launcher counts."""
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
    for restart in (0, 1):
        allocation = fakes.allocation(restart=restart)
        world.bridge.context.store.reserve(allocation)
        await world.bridge.attempts.begin(allocation, fakes.REQUEST)
        await world.bridge.releasing.release(17, "n1")
    assert world.names("ended") == ["17-0.json", "17-1.json"]


async def test_write_errors_stop_no_job(world: World) -> None:
    """The record is kept in memory and written later."""
    allocation = fakes.allocation()
    (world.state / "running").rmdir()
    await world.bridge.attempts.begin(allocation, fakes.REQUEST)
    await world.bridge.attempts.close(allocation.identity)
    assert world.bridge.attempts.under_way() == (allocation.identity,)
    (world.state / "running").mkdir()
    await world.bridge.attempts.close(allocation.identity)
    assert world.names("ended") == ["17-0.json"]


async def test_no_output_folder_if_pods_do_not_see_the_results(tmp_path: Path) -> None:
    kept = attemptfiles.AttemptRecords(
        world_in(tmp_path).bridge.context, state_dir=str(tmp_path), results="/srv/results"
    )
    assert await kept.begin(fakes.allocation(), fakes.REQUEST) == ""


def test_a_missing_state_directory_is_an_error(world: World, tmp_path: Path) -> None:
    """At the start."""
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


async def test_a_reused_job_id_gets_a_new_record(world: World) -> None:
    """slurmctld lost its state: the earlier job's record is handed over; one of a live attempt is not."""
    world.slurm.add(fakes.allocation())
    folder = await world.bridge.attempts.begin(fakes.allocation(), fakes.REQUEST)
    with world.bridge.context.store.attending(17):
        await fakes.admit(world.bridge, fakes.identity())
    assert world.names("running") == ["17-0.json"]
    await fakes.admit(world.bridge, fakes.identity())
    assert (world.names("running"), world.names("ended")) == ([], ["17-0.json"])
    assert world.record().output_dir == folder
    assert await world.bridge.attempts.begin(fakes.allocation(), fakes.REQUEST) != folder


async def test_the_next_attempt_waits_for_the_collector(world: World) -> None:
    """Slurm truncates the output file when it starts."""
    record = world.state / "ended" / "17-0.json"
    record.write_text("{}")
    time = world.bridge.context.time = Collecting(record, after=3.0)
    await world.bridge.attempts.wait_for_collector(fakes.identity(restart=2))
    assert not record.exists()
    assert time.now() - 1000.0 < attemptfiles.COLLECT_SECONDS


async def test_the_wait_for_the_collector_is_bounded(world: World) -> None:
    """Records of other jobs are not waited for."""
    (world.state / "ended" / "17-0.json").write_text("{}")
    (world.state / "ended" / "18-0.json").write_text("{}")
    clock = world.bridge.context.time
    await world.bridge.attempts.wait_for_collector(fakes.identity(18, restart=0))
    assert clock.now() == 1000.0
    await world.bridge.attempts.wait_for_collector(fakes.identity(17, restart=1))
    assert clock.now() - 1000.0 == pytest.approx(attemptfiles.COLLECT_SECONDS, abs=attemptfiles.LOOK_SECONDS)


class Collecting(fakes.ManualClock):
    """A clock; when it passes, a record is collected."""

    def __init__(self, record: Path, after: float) -> None:
        super().__init__()
        self.record, self.at = record, self.time + after

    async def sleep(self, seconds: float) -> None:
        await super().sleep(seconds)
        if self.time >= self.at:
            self.record.unlink(missing_ok=True)


async def test_an_unlaunched_job_gets_a_record_with_the_reason(world: World) -> None:
    """Its files and its end are slurmctld's."""
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


async def test_other_launch_failures_name_slurmds_log(world: World) -> None:
    world.bridge.context.store.reserve(fakes.allocation(17))
    world.slurm.failed[17] = fakes.job(17, state="FAILED", exit_code=0, signal=52, started=4)
    await world.bridge.releasing.release(17, "n1")
    end = world.record().end
    assert end is not None
    assert end.reason == "slurmd on n1 could not start it (JobLaunchFailure, 0:52): its log there says why"


@pytest.mark.parametrize("away", [False, True])
async def test_a_job_cancelled_before_its_launch_leaves_no_record(world: World, away: bool) -> None:
    """Nor one that Slurm does not know; the node is released all the same."""
    world.bridge.context.store.reserve(fakes.allocation(17))
    world.slurm.away = away
    await world.bridge.releasing.release(17, "n1")
    assert world.names("ended") == []
    assert world.bridge.context.store.reservation(17) is None
