"""Differences between Slurm's releases: one table, and golden files for each release that was tried."""

from __future__ import annotations

import ast
import dataclasses
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock import errors
from penstock.model import jobs, releases
from penstock.render import slurmconf
from penstock.slurm import jobtexts, lookup
from tests.unit import test_slurmconf
from tests.unit.slurmtexts import RECORD, Programs, programs

__all__ = ["programs"]
ROOT = Path(__file__).parents[2]
GOLDEN = ROOT / "tests/golden/releases"
RECORDED = ROOT / "tests/recorded"
RENDERERS = {
    "slurm.conf": slurmconf.render_slurm_conf,
    "gres.conf": slurmconf.render_gres_conf,
    "slurmdbd.conf": slurmconf.render_slurmdbd_conf,
    "cgroup.conf": slurmconf.render_cgroup_conf,
}


@pytest.mark.parametrize(
    ("answer", "release"),
    [
        ("slurm-wlm 22.05.8\n", (22, 5)),
        ("slurm 24.11.5", (24, 11)),
        ("slurm 26.05.0-0rc1", (26, 5)),
        ("26.05", (26, 5)),
    ],
)
def test_version_is_parsed(answer: str, release: releases.Release) -> None:
    """As Debian, SchedMD and people write it."""
    assert releases.parse(answer) == release


@pytest.mark.parametrize("answer", ["", "slurm", "slurm x.y", "slurm 2.6.1", "24.11.5 is newer"])
def test_invalid_version_is_an_error(answer: str) -> None:
    with pytest.raises(errors.SlurmError, match="not a version of Slurm"):
        releases.parse(answer)


@given(st.tuples(st.integers(10, 99), st.sampled_from([2, 5, 8, 11])))
def test_version_round_trips(release: releases.Release) -> None:
    assert releases.parse(f"slurm-wlm {releases.text(release)}.3") == release


@given(st.tuples(st.integers(22, 40), st.sampled_from([2, 5, 8, 11])))
def test_every_release_has_traits(release: releases.Release) -> None:
    """Untried ones, too; newer ones count as the newest."""
    found = releases.traits(release)
    assert found.hook_timeouts
    if release >= releases.TRIED[-1]:
        assert found == releases.traits(releases.TRIED[-1])


@pytest.mark.parametrize("release", releases.TRIED, ids=releases.text)
@pytest.mark.parametrize("name", RENDERERS)
def test_rendered_files_match_golden_files(release: releases.Release, name: str) -> None:
    """Releases have their own golden files where they differ from the oldest."""
    text = RENDERERS[name](dataclasses.replace(test_slurmconf.CLUSTER, release=release))
    own = GOLDEN / releases.text(release) / name
    assert text == (own if own.exists() else GOLDEN.parent / name).read_text()


def test_no_golden_file_repeats_the_oldest_release() -> None:
    for own in GOLDEN.glob("*/*"):
        assert own.read_text() != (GOLDEN.parent / own.name).read_text()


def test_only_one_module_compares_releases() -> None:
    """That one, and the tables of options of sbatch and srun."""
    allowed = {"model/releases.py"}
    found = set()
    for path in (ROOT / "src/penstock").rglob("*.py"):
        name = str(path.relative_to(ROOT / "src/penstock"))
        if name.startswith(("sbatch/", "calls/")) or name in allowed:
            continue
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.Compare) and "release" in ast.unparse(node.left).rpartition(".")[2]:
                orders = (ast.Lt, ast.LtE, ast.Gt, ast.GtE)
                found |= {name} if any(isinstance(operator, orders) for operator in node.ops) else set()
    assert found == set()


@pytest.mark.parametrize("step", releases.BATCH_STEP_IDS)
def test_srun_step_is_not_the_batch_script(step: str) -> None:
    """srun steps count from 0; interactive, extern and pending ones have other ids."""
    assert step not in {str(number) for number in range(1000)} | {"4294967290", "4294967292", "-6", "-4"}


def recorded(release: releases.Release) -> str:
    """Output of that release's `scontrol --detail show job` for a job on two nodes."""
    return (RECORDED / f"slurm-{releases.text(release)}" / "job.txt").read_text()


@pytest.mark.parametrize("release", releases.TRIED, ids=releases.text)
def test_scontrol_of_every_release_is_parsed(release: releases.Release) -> None:
    """Shares, partition and QOS of the same job are equal."""
    found = jobtexts.shown(recorded(release), 1)
    shares = [
        (share.node, share.amount.millicpus, share.amount.memory, share.amount.gpus) for share in found.shares
    ]
    assert shares == [("n1", 2000, 3 * 2**30, 2), ("n2", 1000, 3 * 2**30, 2)]
    assert (found.partition, found.qos, found.state) == ("gpu", "normal", "RUNNING")
    assert (found.identity.uid, found.gid, found.account, found.priority) == (0, 0, "root", 10148)
    assert (found.nodes, found.elapsed, found.exit_code, found.signal) == (("n1", "n2"), 1, 0, 0)


async def shown(job: str) -> jobs.Job:
    return await lookup.record("/lab/etc/slurm.conf", job)


def record(**said: str) -> dict[str, str]:
    """sacct's values for a running job."""
    return RECORD | {"State": "RUNNING", "End": "Unknown"} | said


@pytest.mark.parametrize("release", releases.TRIED, ids=releases.text)
async def test_jobs_of_every_release_look_the_same(release: releases.Release, programs: Programs) -> None:
    """Comment and output files, even where a release omits fields."""
    programs.jobs, programs.records = recorded(release), [record(JobIDRaw="1", JobID="1")]
    job = await shown("1")
    assert job.comment == "a b=c"
    assert job.stdout == job.stderr == "/lab/nas/slurm-1.out"
    assert (job.state, job.nodes, job.identity.restart) == ("RUNNING", ("n1", "n2"), 0)


def show_job(head: str, *lines: str) -> str:
    """scontrol's output for a job, followed by these lines."""
    before = (f"JobId={head} JobName=a", "   UserId=ada(7) GroupId=ada(7) MCS_label=N/A")
    return "".join(f"{line}\n" for line in (*before, "   Requeue=1 Restarts=0 ExitCode=0:0", *lines))


@pytest.mark.parametrize(("task", "named"), [("1", "29_1"), ("1-5", "29_[1-5]"), ("", "30")])
async def test_task_is_found_before_the_accounting_knows_it(
    task: str, named: str, programs: Programs
) -> None:
    """slurmdbd is updated later than slurmctld."""
    array = f"ArrayJobId=29 ArrayTaskId={task} " if task else ""
    text = show_job(f"30 {array}".strip(), "   JobState=COMPLETED")
    programs.jobs = text.replace("JobName=a", "JobName=ArrayTaskId=7")
    job = await shown("30")
    assert (job.job_id, job.shown_id, job.state) == (30, named, "COMPLETED")


async def test_last_task_of_an_array(programs: Programs) -> None:
    """It has the array's id, for which scontrol prints all tasks."""
    first = show_job("30 ArrayJobId=29 ArrayTaskId=1", "   JobState=FAILED").replace("0:0", "7:0")
    last = show_job("29 ArrayJobId=29 ArrayTaskId=5", "   JobState=COMPLETED")
    programs.jobs, programs.records = f"{first}\n{last}\n", [RECORD | {"JobIDRaw": "29", "JobID": "29_5"}]
    job = await shown("29_5")
    assert (job.shown_id, job.state, job.exit_code) == ("29_5", "COMPLETED", 0)


async def test_pending_tasks_come_from_slurmctld(programs: Programs) -> None:
    """slurmdbd learns later that one has started: it would count twice."""
    programs.jobs = show_job("29 ArrayJobId=29 ArrayTaskId=3-9%1", "   JobState=PENDING")
    programs.records = [record(JobIDRaw="29", JobID="29_[2-9%1]", State="PENDING")]
    assert (await shown("29")).shown_id == "29_[3-9%1]"


async def test_blank_line_in_a_comment_does_not_end_a_job(programs: Programs) -> None:
    """Slurm prints it raw, before the names of the output files."""
    lines = ("   JobState=RUNNING", "   Comment=one", "", "two", "   StdOut=/nas/a.out", "")
    programs.jobs = show_job("30", *lines)
    job = await shown("30")
    assert (job.state, job.comment, job.stdout) == ("RUNNING", "one", "/nas/a.out")


async def test_forged_job_in_a_comment_hides_nothing(programs: Programs) -> None:
    """The requested job is shown."""
    for forged in ("JobId=9 x", show_job("9", "   JobState=FAILED")):
        programs.jobs = show_job("30", "   JobState=RUNNING", "   Comment=one", "", forged)
        assert [(one.shown_id, one.state) for one in await lookup.records("", "30")] == [("30", "RUNNING")]


async def test_forgotten_job_comes_from_the_accounting(programs: Programs) -> None:
    """With its end, without what only slurmctld knows."""
    programs.records = [RECORD | {"ExitCode": "7:0", "State": "FAILED", "Comment": "because"}]
    job = await shown("20_3")
    assert (job.state, job.exit_code, job.signal, job.comment) == ("FAILED", 7, 0, "because")
    assert (job.submitted, job.started, job.ended, job.elapsed) == (990, 1000, 1050, 50)
    assert (job.user, job.name, job.nodes, job.stdout) == ("alice", "a b", ("n1",), "")
    programs.records = []
    with pytest.raises(errors.NotThere):
        await shown("20_3")


async def test_late_comment_comes_from_the_accounting(programs: Programs) -> None:
    """slurmctld accepts none for an ended job."""
    programs.jobs = show_job("23 ArrayJobId=20 ArrayTaskId=3", "   JobState=FAILED")
    programs.records = [RECORD | {"Comment": "because"}]
    assert (await shown("20_3")).comment == "because"
