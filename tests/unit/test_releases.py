"""What differs between Slurm's releases: one table, and reviewed files for each release that was tried."""

from __future__ import annotations

import ast
import asyncio
import dataclasses
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock import errors
from penstock.model import releases
from penstock.render import slurmconf
from penstock.slurm import commands, parsing, showing
from tests.unit import test_slurmconf

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
def test_releases_are_understood(answer: str, release: releases.Release) -> None:
    """As Debian and SchedMD write them, and as a person does."""
    assert releases.parse(answer) == release


@pytest.mark.parametrize("answer", ["", "slurm", "slurm x.y", "slurm 2.6.1", "24.11.5 is newer"])
def test_nonsense_is_no_release(answer: str) -> None:
    """One line instead of a traceback."""
    with pytest.raises(errors.SlurmError, match="no version of Slurm"):
        releases.parse(answer)


@given(st.tuples(st.integers(10, 99), st.sampled_from([2, 5, 8, 11])))
def test_what_is_written_is_read_again(release: releases.Release) -> None:
    """The text of a release stands for that release and no other."""
    assert releases.parse(f"slurm-wlm {releases.text(release)}.3") == release


@given(st.tuples(st.integers(22, 40), st.sampled_from([2, 5, 8, 11])))
def test_every_release_has_traits(release: releases.Release) -> None:
    """Also one that nobody has tried, and those newer than all we know count as the newest."""
    found = releases.traits(release)
    assert found.hook_timeouts
    if release >= releases.TRIED[-1]:
        assert found == releases.traits(releases.TRIED[-1])


@pytest.mark.parametrize("release", releases.TRIED, ids=releases.text)
@pytest.mark.parametrize("name", RENDERERS)
def test_every_release_gets_the_reviewed_files(release: releases.Release, name: str) -> None:
    """What differs from the oldest release has a golden file of its own; the rest is the same."""
    text = RENDERERS[name](dataclasses.replace(test_slurmconf.CLUSTER, release=release))
    own = GOLDEN / releases.text(release) / name
    assert text == (own if own.exists() else GOLDEN.parent / name).read_text()


def test_no_golden_file_repeats_the_oldest_release() -> None:
    """What is there is there because it differs."""
    for own in GOLDEN.glob("*/*"):
        assert own.read_text() != (GOLDEN.parent / own.name).read_text()


def test_nobody_else_asks_which_release_there_is() -> None:
    """No module but this one and the compiler's option table compares a release with a number."""
    allowed = {"model/releases.py"}
    found = set()
    for path in (ROOT / "src/penstock").rglob("*.py"):
        name = str(path.relative_to(ROOT / "src/penstock"))
        if name.startswith("sbatch/") or name in allowed:
            continue
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.Compare) and "release" in ast.unparse(node.left).rpartition(".")[2]:
                orders = (ast.Lt, ast.LtE, ast.Gt, ast.GtE)
                found |= {name} if any(isinstance(operator, orders) for operator in node.ops) else set()
    assert found == set()


@pytest.mark.parametrize("step", releases.BATCH_STEP_IDS)
def test_no_step_of_srun_is_taken_for_the_batch_script(step: str) -> None:
    """Steps are counted from nought; interactive, extern and pending ones have other numbers."""
    assert step not in {str(number) for number in range(1000)} | {"4294967290", "4294967292", "-6", "-4"}


def recorded(release: releases.Release) -> str:
    """What that release's `scontrol --detail show job` said of a job on two nodes."""
    return (RECORDED / f"slurm-{releases.text(release)}" / "job.txt").read_text()


@pytest.mark.parametrize("release", releases.TRIED, ids=releases.text)
def test_every_releases_scontrol_is_understood(release: releases.Release) -> None:
    """The share of each node, the partition and the QOS of the same job are read as the same."""
    row = ["gpu", "RUNNING", "normal", "root", "0", "n[1-2]", "1", "1763270000", "penstock", "1", "N/A", ""]
    details = parsing.details(row, parsing.shares(recorded(release)))
    shares = [
        (share.node, share.amount.millicpus, share.amount.memory, share.amount.gpus)
        for share in details.shares
    ]
    assert shares == [("n1", 2000, 3 * 2**30, 2), ("n2", 1000, 3 * 2**30, 2)]
    assert (details.partition, details.qos, details.state) == ("gpu", "normal", "RUNNING")


@pytest.mark.parametrize("release", releases.TRIED, ids=releases.text)
def test_every_releases_job_is_shown_alike(
    release: releases.Release, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Comment and output files have the same words, whatever the release leaves out."""

    async def run(argv: tuple[str, ...], *, slurm_conf: str) -> str:
        if argv[0] == "scontrol":
            return recorded(release)
        separator = next(word for word in argv if word.startswith("--delimiter=")).partition("=")[2]
        fields = [
            "1",
            "1",
            "root",
            "rec",
            "gpu",
            "RUNNING",
            "0:0",
            "00:00:01",
            "n[1-2]",
            "1",
            "2",
            "Unknown",
            "",
        ]
        return "".join(f"{field}{separator}" for field in fields) + "\n"

    monkeypatch.setattr(commands, "run", run)
    job = asyncio.run(showing.record("/lab/etc/slurm.conf", "1"))
    assert job.comment == "a b=c"
    assert job.stdout == job.stderr == "/lab/nas/slurm-1.out"
    assert (job.state, job.nodes, job.restarts) == ("RUNNING", ("n1", "n2"), 0)


@pytest.mark.parametrize(("task", "shown"), [("1", "29_1"), ("1-5", "29_[1-5]"), ("", "30")])
def test_a_task_has_its_name_before_the_accounting_knows_it(
    task: str, shown: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """slurmdbd hears of things later than slurmctld: the task's results are found all the same."""

    async def run(argv: tuple[str, ...], *, slurm_conf: str) -> str:
        array = f"ArrayJobId=29 ArrayTaskId={task} " if task else ""
        head = f"JobId=30 {array}JobName=ArrayTaskId=7\n"
        return head + "   UserId=ada(7)\n   JobState=COMPLETED\n" if argv[0] == "scontrol" else ""

    monkeypatch.setattr(commands, "run", run)
    job = asyncio.run(showing.record("/lab/etc/slurm.conf", "30"))
    assert (job.job_id, job.shown_id, job.state) == (30, shown, "COMPLETED")


def test_the_last_task_of_an_array_is_itself(monkeypatch: pytest.MonkeyPatch) -> None:
    """It has the array's number, by which scontrol knows all of them."""

    async def run(argv: tuple[str, ...], *, slurm_conf: str) -> str:
        if argv[0] == "scontrol":
            first = "JobId=30 ArrayJobId=29 ArrayTaskId=1 JobName=a\n   JobState=FAILED ExitCode=7:0\n"
            last = "JobId=29 ArrayJobId=29 ArrayTaskId=5 JobName=a\n   JobState=COMPLETED ExitCode=0:0\n"
            return f"{first}\n{last}\n"
        separator = next(word for word in argv if word.startswith("--delimiter=")).partition("=")[2]
        fields = ["29", "29_5", "ada", "a", "gpu", "COMPLETED", "0:0", "00:00:01", "n1", "1", "2", "3", ""]
        return "".join(f"{field}{separator}" for field in fields) + "\n"

    monkeypatch.setattr(commands, "run", run)
    job = asyncio.run(showing.record("/lab/etc/slurm.conf", "29_5"))
    assert (job.shown_id, job.state, job.exit_code) == ("29_5", "COMPLETED", 0)


def test_tasks_that_wait_are_those_that_slurmctld_names(monkeypatch: pytest.MonkeyPatch) -> None:
    """slurmdbd hears later that one of them has started: it would count twice."""

    async def run(argv: tuple[str, ...], *, slurm_conf: str) -> str:
        if argv[0] == "scontrol":
            return "JobId=29 ArrayJobId=29 ArrayTaskId=3-9%1 JobName=a\n   JobState=PENDING\n"
        separator = next(word for word in argv if word.startswith("--delimiter=")).partition("=")[2]
        fields = ["29", "29_[2-9%1]", "ada", "a", "gpu", "PENDING", "0:0", "00:00:00", "", "1", "", "", ""]
        return "".join(f"{field}{separator}" for field in fields) + "\n"

    monkeypatch.setattr(commands, "run", run)
    assert asyncio.run(showing.record("/lab/etc/slurm.conf", "29")).shown_id == "29_[3-9%1]"


def test_a_comment_with_a_blank_line_is_not_where_a_job_ends(monkeypatch: pytest.MonkeyPatch) -> None:
    """Slurm prints it as it is, before the names of the output files."""

    async def run(argv: tuple[str, ...], *, slurm_conf: str) -> str:
        head = "JobId=30 JobName=a\n   UserId=ada(7)\n   JobState=RUNNING\n   Comment=one\n\ntwo\n"
        return f"{head}   StdOut=/nas/a.out\n\n" if argv[0] == "scontrol" else ""

    monkeypatch.setattr(commands, "run", run)
    job = asyncio.run(showing.record("/lab/etc/slurm.conf", "30"))
    assert (job.state, job.comment, job.stdout) == ("RUNNING", "one", "/nas/a.out")
