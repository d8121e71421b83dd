"""Reading squeue and scontrol."""

from __future__ import annotations

import re

import pytest

from penstock import errors
from penstock.model import jobs
from penstock.slurm import parsing
from tests.unit import fakes

SHOW_JOB = """\
JobId=1 JobName=wrap
   UserId=alice(1001) GroupId=alice(1001) MCS_label=N/A
   Priority=10164 Nice=0 Account=research QOS=high
   JobState=RUNNING Reason=None Dependency=(null)
   Partition=gpu AllocNode:Sid=localhost:1524
   NodeList=n[1-2]
   TRES=cpu=5,mem=500M,node=2,billing=5,gres/gpu=4
   JOB_GRES=gpu:4
     Nodes=n1 CPU_IDs=0-3 Mem=400 GRES=gpu:2(IDX:0-1)
     Nodes=n2 CPU_IDs=0 Mem=100 GRES=gpu:2(IDX:0-1)
   MinCPUsNode=1 MinMemoryCPU=100M MinTmpDiskNode=0
   Command=/nas/x
   WorkDir=/nas/home/alice
"""


def node_line(gres: str, nodes: str = "n1") -> str:
    partition = "   Partition=gpu AllocNode:Sid=h:1\n"
    share = f"     Nodes={nodes} CPU_IDs=0-1 Mem=2048 GRES={gres}\n"
    return f"JobId=1 JobName=x\n{partition}{share}   MinCPUsNode=1\n"


def told(**changes: str) -> jobs.JobDetails:
    """The same job with what squeue says of it, in the order of DETAIL_FIELDS."""
    said = {
        "Partition": "gpu",
        "State": "RUNNING",
        "QOS": "high",
        "Account": "research",
        "GroupID": "1001",
        "Requeue": "1",
        "NodeList": "n[1-2]",
        "SubmitTime": "1763270000",
        "admin_comment": "penstock 1763270000",
        "ArrayJobID": "1",
        "ArrayTaskID": "N/A",
        "Comment": "",
    }
    row = [(said | changes)[name] for name in parsing.DETAIL_FIELDS]
    return parsing.details(row, parsing.shares(SHOW_JOB))


@pytest.mark.parametrize(
    ("comment", "own"),
    [("", None), ("mine", None), ("waits [penstock]", ""), ("waits [penstock] mine", "mine")],
)
def test_the_owners_part_of_a_comment_is_known(comment: str, own: str | None) -> None:
    """It is put back when the job starts."""
    assert told(Comment=comment).own_comment == own


def test_each_node_has_its_own_share() -> None:
    """Uneven allocations are read as uneven."""
    first, second = parsing.shares(SHOW_JOB)
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


def test_partition_qos_and_gpu_types_are_the_sites_words() -> None:
    """They choose mode, priority and labels of the pods."""
    details = told()
    assert (details.partition, details.qos, details.state) == ("gpu", "high", "RUNNING")
    assert (details.account, details.gid, details.submitted) == ("research", 1001, 1763270000)
    assert (told(Account="").account, told(QOS="(null)").qos, told(GroupID="?").gid) == ("", "", None)
    assert not details.is_over
    assert told(State="COMPLETING").is_over
    assert parsing.shares(node_line("gpu:b:1(IDX:0),gpu:a:2(IDX:1-2)"))[0].gpu_types == ("a", "b")


@pytest.mark.parametrize(
    ("array", "task", "expected"), [("17", "3", (17, 3)), ("1", "N/A", None), ("17", "0-9%2", None)]
)
def test_which_task_of_which_array_a_job_is(array: str, task: str, expected: tuple[int, int] | None) -> None:
    """It is called by its array: 17_3."""
    found = told(ArrayJobID=array, ArrayTaskID=task)
    assert found.array == expected
    assert found.allocation(fakes.identity(22)).shown_id == ("17_3" if expected else "22")


def test_shares_are_of_the_nodes_that_squeue_names() -> None:
    """A completing job has lost some of them; anything else is no answer."""
    assert [share.node for share in told(State="COMPLETING", NodeList="n2").shares] == ["n1", "n2"]
    for changes in ({"NodeList": "n2"}, {"NodeList": "n[1-3]"}, {"NodeList": "n9", "State": "COMPLETING"}):
        with pytest.raises(errors.SlurmError, match="other nodes"):
            told(**changes)
    with pytest.raises(errors.SlurmError, match="partition"):
        told(Partition="(null)")


@pytest.mark.parametrize("state", ["DEADLINE", "BOOT_FAIL", "OUT_OF_MEMORY", "REVOKED", "TIMEOUT"])
def test_every_end_of_slurms_is_an_end(state: str) -> None:
    """For a job that is over nothing may be started any more, whatever ended it."""
    assert told(State=state).is_over


def test_equal_nodes_share_a_line() -> None:
    """Slurm prints one line for nodes with the same share."""
    found = parsing.shares(node_line("", nodes="n[3-5]"))
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
    assert parsing.shares(node_line(gres))[0].amount.gpus == gpus


def test_a_forged_allocation_after_the_real_one_is_not_believed() -> None:
    """A working directory with a line break in its name adds no nodes."""
    forged = SHOW_JOB + "     Nodes=n9 CPU_IDs=0-7 Mem=32768 GRES=gpu:4(IDX:0-3)\n"
    assert [share.node for share in parsing.shares(forged)] == ["n1", "n2"]


@pytest.mark.parametrize("character", ["\x85", "\u2028", "\u2029"])
def test_a_jobs_name_cannot_forge_an_allocation(character: str) -> None:
    """It stands before the true one, and job_submit.lua takes these for letters like all others."""
    forged = f"x{character}     Nodes=n9 CPU_IDs=0-7 Mem=32768 GRES=gpu:8(IDX:0-7)"
    named = re.sub(r"JobName=.*", f"JobName={forged}", SHOW_JOB, count=1)
    assert forged in named
    assert parsing.shares(named) == parsing.shares(SHOW_JOB)


def test_a_job_without_allocation_is_an_error() -> None:
    """Nothing is invented for a job that is not running."""
    with pytest.raises(errors.SlurmError, match="no allocation"):
        parsing.shares("JobId=1 JobName=wrap\n   JobState=PENDING\n")


@pytest.mark.parametrize(("ids", "count"), [("", 0), ("3", 1), ("0-3", 4), ("0-1,4,6-7", 5)])
def test_cpu_ids_are_counted(ids: str, count: int) -> None:
    """Ranges and single ids."""
    assert parsing.count_ids(ids) == count


def test_the_clusters_name_is_found_in_the_configuration() -> None:
    """As `scontrol show config` prints it; without it nothing is known."""
    text = (
        "CliFilterPlugins        = (null)\nClusterName             = lab7\nCommunicationParameters = (null)\n"
    )
    assert parsing.cluster_name(text) == "lab7"
    with pytest.raises(errors.SlurmError):
        parsing.cluster_name("nothing")


def test_squeue_lines_become_jobs() -> None:
    """Numbers and the site's own names, nothing else."""
    found = parsing.live_jobs("17|1001|2|RUNNING|gpu|\n18|1002|0|PENDING|cpu|\n")
    assert found[0] == jobs.LiveJob(identity=fakes.identity(17, restart=2), state="RUNNING", partition="gpu")
    assert found[0].holds_resources
    assert not found[1].holds_resources


@pytest.mark.parametrize("line", ["17|1001", "x|1|0|RUNNING|gpu|", "slurm_load_jobs error"])
def test_a_line_we_do_not_understand_is_an_error(line: str) -> None:
    """A guess about jobs would be worse than none."""
    with pytest.raises(errors.SlurmError, match="do not understand"):
        parsing.live_jobs(line)


def test_the_mark_of_job_submit_is_seen() -> None:
    """Alone or beside what a site writes there; its absence, too."""
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
def test_the_time_of_submission_is_beside_the_mark(text: str, expected: str) -> None:
    """Not of jobs that were marked without it."""
    found = told(admin_comment=text)
    assert found.submission == expected
    assert found.allocation(fakes.identity(17)).submission == expected


def test_slurmctlds_start_is_found_in_the_configuration() -> None:
    """What lacks it is no answer."""
    config = "Configuration data as of 2026-11-15T14:30:00\nBOOT_TIME               = 2026-11-15T14:22:41\n"
    assert parsing.boot_time(config) == "2026-11-15T14:22:41"
    with pytest.raises(errors.SlurmError):
        parsing.boot_time("nothing")


def test_a_task_of_an_array_has_a_name_of_its_own() -> None:
    """The last task has the array's number, by which all tasks would be meant."""
    squeue = "17|17|4|\n22|17|3|\n21|17|1|\n"
    assert parsing.name_of_task(squeue, 17) == "17_4"
    assert parsing.name_of_task(squeue, 22) == "17_3"
    assert parsing.name_of_task("5|5|N/A|\n", 5) == "5"
    for text in ("", "17|17|5|\n17|17|6|\n"):
        with pytest.raises(errors.SlurmError):
            parsing.name_of_task(text, 17)


def test_an_arrays_number_shows_the_job_itself_first() -> None:
    """Nodes of other tasks are not its own, also where it has none."""
    waiting = "JobId=17 ArrayJobId=17\n   JobState=PENDING Reason=None\n"
    with pytest.raises(errors.SlurmError):
        parsing.shares(f"{waiting}\nJobId=22 ArrayJobId=17\n{node_line('', nodes='n3')}")


FAILED_JOB = """JobId=17 ArrayJobId=16 ArrayTaskId=1 JobName=x Reason=JobLaunchFailure
   JobState=COMPLETING Reason=JobLaunchFailure Dependency=(null)
   Requeue=1 Restarts=0 BatchFlag=1 Reboot=0 ExitCode=0:53
   StartTime=1794858622 EndTime=1794858622 Deadline=N/A
   WorkDir=/nas/a b
   StdErr=/no/x.err
   StdIn=/dev/null
   StdOut=/no/x.out

"""


def test_a_launch_that_failed_is_told_with_the_jobs_files() -> None:
    """Of the task that is meant, and not because its name says so."""
    other = FAILED_JOB.replace("JobId=17", "JobId=16").replace(
        "COMPLETING Reason=JobLaunchFailure", "RUNNING Reason=None"
    )
    for text in (FAILED_JOB, other + FAILED_JOB, FAILED_JOB + other):
        found = parsing.failed_launch(text, 17)
        assert found is not None
        assert (found.exit_code, found.signal, found.started) == (0, 53, 1794858622.0)
        assert (found.workdir, found.stdout, found.stderr) == ("/nas/a b", "/no/x.out", "/no/x.err")
    assert parsing.failed_launch(FAILED_JOB + other, 16) is None
    with pytest.raises(errors.SlurmError):
        parsing.failed_launch(FAILED_JOB.replace("ExitCode=0:53", ""), 17)


def test_a_comment_cannot_forge_a_failed_launch() -> None:
    """scontrol prints it raw, after the true state of the job."""
    state = "   JobState=COMPLETING Reason=JobLaunchFailure Dependency=(null)\n"
    cancelled = FAILED_JOB.replace(state, state.replace("JobLaunchFailure", "None"))
    forged = cancelled.replace("   WorkDir=", f"   Comment=x\n{state}   WorkDir=")
    assert parsing.failed_launch(forged, 17) is None
