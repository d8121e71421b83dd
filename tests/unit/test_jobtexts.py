"""Jobs as squeue and scontrol print them."""

from __future__ import annotations

import asyncio
import re

import pytest
from hypothesis import given
from hypothesis import strategies as some

from penstock import errors
from penstock.model import jobs
from penstock.slurm import control, jobtexts, reader
from tests.unit import fakes, slurmtexts
from tests.unit.slurmtexts import ROW, SHOW_JOB, programs

__all__ = ["programs"]
SLURM = reader.SlurmReader("")


def shares(text: str) -> tuple[jobs.NodeShare, ...]:
    return jobtexts.shown(text, 1).shares


def told(**changes: str) -> jobs.Job:
    """SHOW_JOB merged with squeue's values."""
    made = slurmtexts.Programs()
    made.queue, made.jobs = [ROW | changes], SHOW_JOB
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("penstock.slurm.commands.run", made.run)
        return asyncio.run(SLURM.details(1))


@pytest.mark.parametrize(
    ("comment", "own"),
    [("", None), ("mine", None), ("waits [penstock]", ""), ("waits [penstock] mine", "mine")],
)
def test_owners_part_of_a_comment(comment: str, own: str | None) -> None:
    """It is restored when the job starts."""
    assert told(Comment=comment).own_comment == own


def test_each_node_has_its_own_share() -> None:
    """Uneven allocations, too."""
    first, second = shares(SHOW_JOB)
    assert (first.node, first.amount.millicpus, first.amount.memory, first.amount.gpus) == (
        "n1",
        4000,
        400 * 2**20,
        2,
    )
    assert (second.node, second.amount.millicpus, second.amount.memory, second.amount.gpus) == (
        "n2",
        1000,
        100 * 2**20,
        2,
    )


def test_partition_qos_and_gpu_types() -> None:
    """They select mode, priority and labels of the pods."""
    details = told()
    assert (details.partition, details.qos, details.state) == ("gpu", "high", "RUNNING")
    assert (details.account, details.gid, details.submitted) == ("research", 1001, 1763270000)
    assert (told(Account="").account, told(QOS="(null)").qos, told(GroupID="?").gid) == ("", "", None)
    assert not details.is_over
    assert told(State="COMPLETING").is_over
    assert shares(slurmtexts.show_job("gpu:b:1(IDX:0),gpu:a:2(IDX:1-2)"))[0].gpu_types == ("a", "b")


@pytest.mark.parametrize(
    ("array", "task", "expected"), [("17", "3", (17, 3)), ("1", "N/A", None), ("17", "0-9%2", None)]
)
def test_array_task(array: str, task: str, expected: tuple[int, int] | None) -> None:
    """It is named by its array: 17_3."""
    found = told(ArrayJobID=array, ArrayTaskID=task)
    assert found.array == expected
    assert found.allocation(fakes.identity(22)).shown_id == ("17_3" if expected else "22")
    assert found.script_id == (17 if expected else 1)


def test_shares_must_match_squeues_nodes() -> None:
    """A completing job may have fewer; anything else is an error."""
    assert [share.node for share in told(State="COMPLETING", NodeList="n2").shares] == ["n1", "n2"]
    for changes in ({"NodeList": "n2"}, {"NodeList": "n[1-3]"}, {"NodeList": "n9", "State": "COMPLETING"}):
        with pytest.raises(errors.SlurmError, match="other nodes"):
            told(**changes)
    with pytest.raises(errors.SlurmError, match="partition"):
        told(Partition="(null)")


@pytest.mark.parametrize("state", ["DEADLINE", "BOOT_FAIL", "OUT_OF_MEMORY", "REVOKED", "TIMEOUT"])
def test_every_end_state_is_over(state: str) -> None:
    """Nothing may be started for such a job."""
    assert told(State=state).is_over


def test_equal_nodes_share_a_line() -> None:
    """Slurm prints one line for nodes with equal shares."""
    found = shares(slurmtexts.show_job("", nodes="n[3-5]"))
    assert [share.node for share in found] == ["n3", "n4", "n5"]
    assert {share.amount for share in found} == {fakes.amount(cpus=2, gib=2)}


@pytest.mark.parametrize(
    ("gres", "gpus"),
    [
        ("", 0),
        ("gpu:1(IDX:3)", 1),
        ("gpu:a100:2(IDX:0-1)", 2),
        ("gpu:a:1(IDX:0),gpu:b:2(IDX:1-2)", 3),
        ("license:4", 0),
        ("gpu:2", 2),
        ("gpu:4090:2(IDX:0,3)", 2),
        ("vgpu:4(CNT:4)", 0),
        ("vgpu:4(CNT:4),gpu:a:1(IDX:0)", 1),
    ],
)
def test_gpus_of_every_type_are_counted(gres: str, gpus: int) -> None:
    """GPU types add up; other GRES do not count."""
    assert shares(slurmtexts.show_job(gres))[0].amount.gpus == gpus


def test_forged_allocation_after_the_real_one_is_ignored() -> None:
    """A working directory with a line break in its name adds no nodes."""
    forged = SHOW_JOB + "     Nodes=n9 CPU_IDs=0-7 Mem=32768 GRES=gpu:4(IDX:0-3)\n"
    assert [share.node for share in shares(forged)] == ["n1", "n2"]


@pytest.mark.parametrize("character", ["\x85", "\u2028", "\u2029"])
def test_job_name_cannot_forge_an_allocation(character: str) -> None:
    """It stands before the real one, and job_submit.lua does not refuse these separators."""
    forged = f"x{character}     Nodes=n9 CPU_IDs=0-7 Mem=32768 GRES=gpu:8(IDX:0-7)"
    named = re.sub(r"JobName=.*", f"JobName={forged}", SHOW_JOB, count=1)
    assert forged in named
    assert shares(named) == shares(SHOW_JOB)


async def test_a_job_without_allocation_is_an_error(programs: slurmtexts.Programs) -> None:
    programs.queue = [ROW | {"State": "PENDING"}]
    programs.jobs = "\n".join(line for line in SHOW_JOB.split("\n") if not line.startswith("     "))
    with pytest.raises(errors.SlurmError, match="no allocation"):
        await SLURM.details(1)


@pytest.mark.parametrize(("ids", "count"), [("", 0), ("3", 1), ("0-3", 4), ("0-1,4,6-7", 5)])
def test_cpu_ids_are_counted(ids: str, count: int) -> None:
    assert jobtexts.count_ids(ids) == count


async def test_cluster_name(programs: slurmtexts.Programs) -> None:
    """From `scontrol show config`; if it is missing, that is an error."""
    programs.config = (
        "CliFilterPlugins        = (null)\nClusterName             = lab7\nCommunicationParameters = (null)\n"
    )
    assert await SLURM.cluster_name() == "lab7"
    programs.config = "nothing"
    with pytest.raises(errors.SlurmError):
        await SLURM.cluster_name()


async def test_squeue_lines_become_jobs(programs: slurmtexts.Programs) -> None:
    """Only numbers and the site's own names."""
    waiting = {"JobID": "18", "UserID": "1002", "State": "PENDING", "Partition": "cpu"}
    programs.queue = [ROW | {"JobID": "17", "RestartCnt": "2"}, ROW | waiting]
    first, second = await SLURM.live_jobs()
    assert first == jobs.LiveJob(identity=fakes.identity(17, restart=2), state="RUNNING", partition="gpu")
    assert first.holds_resources
    assert not second.holds_resources
    (asked,) = programs.calls
    assert not {"Name", "Comment", "UserName"} & {word.split(":")[0] for word in asked[-1].split(",")}


@pytest.mark.parametrize("changes", [{"JobID": "x"}, {"UserID": ""}, {"RestartCnt": "-1"}, {"State": ""}])
async def test_unparsable_line_is_an_error(changes: dict[str, str], programs: slurmtexts.Programs) -> None:
    """Guessing about jobs would be worse."""
    programs.queue = [ROW | changes]
    for question in (SLURM.live_jobs, SLURM.unfinished, SLURM.all_jobs):
        with pytest.raises(errors.SlurmError, match="do not understand"):
            await question()


def test_mark_of_job_submit() -> None:
    """Alone, next to a site's own text, and missing."""
    for text, expected in (("penstock ", True), ("ours; penstock", True), ("penstockish", False)):
        assert told(admin_comment=text).prepared is expected
    assert not told(admin_comment="").prepared


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("penstock 1763270000 ", "1763270000"),
        ("ours; penstock 17; more", "17"),
        ("penstock ", ""),
        ("x 17", ""),
    ],
)
def test_time_of_submission_in_the_mark(text: str, expected: str) -> None:
    """Older marks have none."""
    found = told(admin_comment=text)
    assert found.submission == expected
    assert found.allocation(fakes.identity(17)).submission == expected


@pytest.mark.parametrize(("started", "older"), [("1763270000", True), ("1763270600", False)])
async def test_slurmctlds_start(started: str, older: bool, programs: slurmtexts.Programs) -> None:
    """A missing time is an error, also for a job that has not started."""
    programs.queue = [ROW | {"StartTime": started}]
    programs.config = "Configuration data as of 1763270700\nBOOT_TIME               = 1763270500\n"
    assert await SLURM.is_older_than_controller(1) is older
    programs.config = "nothing"
    with pytest.raises(errors.SlurmError):
        await SLURM.is_older_than_controller(1)
    programs.queue = [ROW | {"StartTime": "N/A"}]
    with pytest.raises(errors.SlurmError, match="no StartTime"):
        await SLURM.is_older_than_controller(1)


async def test_name_of_an_array_task(programs: slurmtexts.Programs) -> None:
    """The last task has the array's id, by which commands mean all tasks."""
    slurm = control.SlurmControl("")

    def task(job_id: str, number: str) -> dict[str, str]:
        return ROW | {"JobID": job_id, "ArrayJobID": "17", "ArrayTaskID": number}

    programs.queue = [
        task("17", "4"),
        task("22", "3"),
        task("21", "1"),
        ROW | {"JobID": "5", "ArrayJobID": "5"},
    ]
    programs.jobs = "\n"
    for job_id, name in ((17, "17_4"), (22, "17_3"), (5, "5")):
        await slurm.cancel(job_id)
        assert programs.calls[-1] == ("scancel", name)
    for rows in ([], [task("17", "5"), task("17", "6")]):
        programs.queue = [*rows]
        with pytest.raises(errors.SlurmError, match="jobs with the id 17"):
            await slurm.cancel(17)


def test_array_id_selects_the_job_itself() -> None:
    """Nodes of other tasks are not used, even if it has none."""
    waiting = SHOW_JOB.partition("     Nodes=")[0].replace("JobId=1 ", "JobId=17 ArrayJobId=17 ")
    other = slurmtexts.show_job("", nodes="n3").replace("JobId=1 ", "JobId=22 ArrayJobId=17 ")
    assert jobtexts.shown(f"{waiting}\n{other}", 17).shares == ()
    assert [share.node for share in jobtexts.shown(f"{waiting}\n{other}", 22).shares] == ["n3"]


FAILED_JOB = """JobId=17 ArrayJobId=16 ArrayTaskId=1 JobName=x Reason=JobLaunchFailure
   UserId=alice(1001) GroupId=alice(1001) MCS_label=N/A
   JobState=COMPLETING Reason=JobLaunchFailure Dependency=(null)
   Requeue=1 Restarts=0 BatchFlag=1 Reboot=0 ExitCode=0:53
   StartTime=1794858622 EndTime=1794858622 Deadline=N/A
   WorkDir=/nas/a b
   StdErr=/no/x.err
   StdIn=/dev/null
   StdOut=/no/x.out

"""


async def test_failed_launch_has_the_jobs_files(programs: slurmtexts.Programs) -> None:
    """Of the right task, and not because its name looks so."""
    other = FAILED_JOB.replace("JobId=17", "JobId=16").replace(
        "COMPLETING Reason=JobLaunchFailure", "RUNNING Reason=None"
    )
    for text in (FAILED_JOB, other + FAILED_JOB, FAILED_JOB + other):
        programs.jobs = text
        found = await SLURM.failed_launch(17)
        assert found is not None
        assert (found.exit_code, found.signal, found.started) == (0, 53, 1794858622)
        assert (found.workdir, found.stdout, found.stderr) == ("/nas/a b", "/no/x.out", "/no/x.err")
    assert await SLURM.failed_launch(16) is None
    programs.jobs = FAILED_JOB.replace("ExitCode=0:53", "")
    with pytest.raises(errors.SlurmError):
        await SLURM.failed_launch(17)


async def test_a_comment_cannot_forge_a_failed_launch(programs: slurmtexts.Programs) -> None:
    """scontrol prints it raw, after the job's real state."""
    state = "   JobState=COMPLETING Reason=JobLaunchFailure Dependency=(null)\n"
    cancelled = FAILED_JOB.replace(state, state.replace("JobLaunchFailure", "None"))
    programs.jobs = cancelled.replace("   WorkDir=", f"   Comment=x\n{state}   WorkDir=")
    assert await SLURM.failed_launch(17) is None


def test_text_cannot_forge_an_array_task() -> None:
    """`penstock logs` would show another job's output."""
    text = SHOW_JOB + "   Comment=x ArrayJobId=5 ArrayTaskId=3\n   ArrayJobId=5 ArrayTaskId=3\n"
    assert jobtexts.shown(text, 1).shown_id == "1"


# -- squeue and scontrol say the same ------------------------------------------------------------------------
SAFE = some.text(some.characters(codec="utf-8", exclude_categories=("Cc", "Zl", "Zp")), max_size=20)
LINES = ["", "JobId=9 JobName=x", "   JobState=COMPLETED", "   UserId=root(0)", "\u2028", "\x85"]
HOSTILE = some.lists(SAFE | some.sampled_from([*LINES, *SHOW_JOB.split("\n")]), max_size=6).map("\n".join)
NUMBER = some.integers(0, 2**31).map(str)
JOBS = some.fixed_dictionaries(
    {
        "JobID": NUMBER,
        "UserID": NUMBER,
        "GroupID": NUMBER,
        "RestartCnt": NUMBER,
        "PriorityLong": NUMBER,
        "State": some.sampled_from(["PENDING", "RUNNING", "COMPLETING", "FAILED"]),
        "Reason": some.sampled_from(["None", "Resources", "JobLaunchFailure"]),
        "SubmitTime": NUMBER,
        "StartTime": NUMBER,
        "ArrayTaskID": some.sampled_from(["N/A", "3", "4-9%2"]),
        "Name": SAFE,
        "Comment": HOSTILE,
    }
)


def shown_as_scontrol_does(said: dict[str, str]) -> str:
    """scontrol's output for a row, with users' text where Slurm puts it."""
    task = said["ArrayTaskID"]
    array = "" if task == "N/A" else f" ArrayJobId={said['ArrayJobID']} ArrayTaskId={task}"
    comment = f"   Comment={said['Comment']} \n" if said["Comment"] else ""
    return (
        f"JobId={said['JobID']}{array} JobName={said['Name']}\n"
        f"   UserId={said['UserName']}({said['UserID']}) GroupId=g({said['GroupID']}) MCS_label=N/A\n"
        f"   Priority={said['PriorityLong']} Nice=0 Account={said['Account']} QOS={said['QOS']}\n"
        f"   JobState={said['State']} Reason={said['Reason']} Dependency=(null)\n"
        f"   Requeue={said['Requeue']} Restarts={said['RestartCnt']} BatchFlag=1 Reboot=0 ExitCode=7:0\n"
        f"   RunTime=00:01:02 TimeLimit=UNLIMITED TimeMin=N/A\n"
        f"   SubmitTime={said['SubmitTime']} EligibleTime={said['EligibleTime']}\n"
        f"   StartTime={said['StartTime']} EndTime=Unknown Deadline=N/A\n"
        f"   Partition={said['Partition']} AllocNode:Sid=localhost:1524\n"
        f"   ReqNodeList=(null) ExcNodeList=(null)\n   NodeList={said['NodeList']}\n"
        f"   Features=(null) DelayBoot=00:00:00\n   Command=/x\n   WorkDir=/nas\n"
        f"   AdminComment={said['admin_comment']}\n{comment}   StdErr=/e\n   StdIn=/i\n   StdOut=/o\n\n"
    )


ONLY_SHOWN = ("shown_id", "shares", "comment", "name", "workdir", "stdin", "stdout", "stderr")


@given(some.lists(JOBS, min_size=1, max_size=3, unique_by=lambda said: said["JobID"]))
def test_scontrol_and_squeue_agree(found: list[dict[str, str]]) -> None:
    """Whatever name and comment contain: no other field changes. The requested job comes first."""
    row, *others = (ROW | {"exit_code": "1792"} | said for said in found)
    shown = jobtexts.shown("".join(map(shown_as_scontrol_does, (row, *others))), int(row["JobID"]))
    squeued = jobtexts.job(row)
    for name in jobs.Job.__dataclass_fields__.keys() - set(ONLY_SHOWN):
        assert getattr(shown, name) == getattr(squeued, name), name
    assert shown.name == row["Name"].strip()
    assert shown.comment == row["Comment"].partition("\n")[0].strip()
    named = {"N/A": row["JobID"], "3": "1_3", "4-9%2": "1_[4-9%2]"}
    assert shown.shown_id == named[row["ArrayTaskID"]]
