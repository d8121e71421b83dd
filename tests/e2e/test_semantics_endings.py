"""How jobs end before their time: signals, time limit, scancel, preemption, lost nodes, memory.

Slurm looks at time limits twice a minute and kills thirty seconds after it asks, so all jobs of this module
are started together and each test reads what became of its own.
"""

from __future__ import annotations

import dataclasses
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from tests.e2e import semantics
from tests.e2e.semantics import Record

Lab = semantics.Lab
DONE = Record("COMPLETED", "0:0")
LOOP = "for i in $(seq 1200); do sleep 0.1; done\n"
STUBBORN = "where=$SLURM_JOB_PARTITION; f=alive-$where; trap 'date +%s.%N >>term-$where' TERM\n"
SLOWLY = "trap 'sleep 3; echo tidy; exit 3' TERM\necho up\n"
KILL_WAIT = 30
GRACE_TIME = 4


@dataclasses.dataclass(frozen=True)
class Case:
    """A script that says `up` when it is ready, and what is then done to its job."""

    body: str
    act: Callable[[Lab, str], object] = lambda _lab, _job_id: None
    options: tuple[str, ...] = ()


def scancel(*options: str) -> Callable[[Lab, str], object]:
    """As the owner; unchecked, because Slurm answers with an error when there are no steps to signal."""
    return lambda lab, job_id: lab.run_as_user(("scancel", *options, job_id), check=False)


def scancel_steps(lab: Lab, job_id: str) -> None:
    """Then the script may go on: it has none, and must not have heard it."""
    scancel("--signal=USR1")(lab, job_id)
    (Path(lab.job(job_id)["WorkDir"]) / f"go-{job_id}").touch()


def end_soon(lab: Lab, job_id: str) -> None:
    """Only an administrator can set a limit under a minute, and so make a test of it short."""
    lab.run(("scontrol", "update", f"JobId={job_id}", "EndTime=now+3"))


def end_in_a_minute(lab: Lab, job_id: str) -> None:
    lab.run(("scontrol", "update", f"JobId={job_id}", "EndTime=now+75"))


CASES = {
    "signal-trapped": Case(
        f"trap 'echo got; exit 0' USR1\necho up\n{LOOP}", scancel("--batch", "--signal=USR1")
    ),
    "signal-not-trapped": Case(f"echo up\n{LOOP}", scancel("--batch", "--signal=USR2")),
    "interrupt-trapped": Case(
        f"trap 'echo got; exit 5' INT\necho up\n{LOOP}", scancel("--batch", "--signal=INT")
    ),
    "alarm-not-trapped": Case(f"echo up\n{LOOP}", scancel("--batch", "--signal=ALRM")),
    "ended-not-trapped": Case(f"echo up\n{LOOP}", scancel("--batch", "--signal=TERM")),
    "ended-alone": Case(  # its child lives on, and ends when the script has heard the signal
        "f=heard-$SLURM_JOB_PARTITION; trap 'touch $f' TERM\n"
        'sh -c "until [ -e $f ]; do sleep 0.1; done; echo child" &\n'
        "echo up\nwait $!\nwait $!\necho got\nexit 4\n",
        scancel("--batch", "--signal=TERM"),
    ),
    "signal-to-steps-only": Case(
        "trap 'echo got' USR1\necho up\n"
        "until [ -e go-$SLURM_JOB_ID ]; do sleep 0.1; done\nsleep 2\necho on\n",
        scancel_steps,
    ),
    "cancelled": Case(f"echo up\n{LOOP}", scancel()),
    "cancelled-trapped": Case(f"trap 'echo tidy; exit 3' TERM\necho up\n{LOOP}", scancel()),
    "cancelled-stubborn": Case(  # its children are ended now and then, and complain
        f"{STUBBORN}echo up\n"
        "while :; do { date +%s.%N >$f.new; mv $f.new $f; } 2>/dev/null; sleep 0.2; done\n",
        scancel(),
    ),
    "cancelled-of-two": Case(f"{SLOWLY}{LOOP}", scancel(), ("--nodes=2",)),
    "time-limit-of-two": Case(f"{SLOWLY}{LOOP}", end_soon, ("--nodes=2",)),
    "killed": Case(f"trap 'echo no' TERM\necho up\n{LOOP}", scancel("--signal=KILL")),
    "killed-in-full": Case(f"echo up\n{LOOP}", scancel("--full", "--signal=KILL")),
    "time-limit": Case(f"trap 'echo late; exit 0' TERM\necho up\n{LOOP}", end_soon),
    "warned": Case(
        f"trap 'echo warned; exit 0' USR1\necho up\n{LOOP}", end_in_a_minute, ("--signal=B:USR1@60",)
    ),
}


@dataclasses.dataclass(frozen=True)
class Ending:
    """What became of a case in one partition."""

    record: Record
    output: str


@pytest.fixture(scope="module")
def folder(lab: Lab) -> Path:
    return semantics.folder(lab)


@pytest.fixture(scope="module")
def endings(lab: Lab, folder: Path, preempting: Preemption) -> dict[tuple[str, str], Ending]:
    """Every case by plain Slurm and as a pod, all at once, and beside the preemption, which takes as long."""
    jobs = {
        (name, partition): lab.sbatch(
            f"#!/bin/bash\n{case.body}",
            f"--partition={partition}",
            f"--output={name}.{partition}",
            "--mem=100M",
            *case.options,
            cwd=folder,
        )
        for name, case in CASES.items()
        for partition in (semantics.PLAIN, semantics.PODS)
    }
    try:
        for (name, partition), job_id in jobs.items():
            # Not all are up at once: they are more than there are CPUs, and those that end make room.
            semantics.wait_for_text(folder / f"{name}.{partition}", "up\n")
            CASES[name].act(lab, job_id)
        return _follow(lab, jobs, folder)
    finally:
        lab.run(("scancel", *jobs.values()), check=False)


def _follow(lab: Lab, jobs: dict[tuple[str, str], str], folder: Path) -> dict[tuple[str, str], Ending]:
    begun = time.monotonic()
    left, found = dict(jobs), {}
    while left:
        ended = semantics.ended(lab, left.values())
        for key in [key for key, job_id in left.items() if job_id in ended]:
            record = ended[left.pop(key)]
            lab.wait_for(jobs[key], record.state)  # no longer COMPLETING
            found[key] = Ending(record, (folder / ".".join(key)).read_text())
        assert time.monotonic() - begun < 300, f"still there: {left}"
        time.sleep(semantics.POLL)
    return found


def said(text: str) -> list[str]:
    """What the script itself said: without Slurm's announcements and the shell's complaint about its child.

    Each line once: who traps SIGTERM and goes on hears it again when the pod is removed.
    """
    others = ("slurmstepd", "error: ***", "Terminated")
    lines = (line for line in text.splitlines() if not any(word in line for word in others))
    return list(dict.fromkeys(lines))


@pytest.mark.parametrize("name", CASES)
def test_pod_ends_like_a_plain_job(endings: dict[tuple[str, str], Ending], name: str) -> None:
    """Same state and exit code, and the script saw the same signals."""
    plain, pod = endings[name, semantics.PLAIN], endings[name, semantics.PODS]
    assert pod.record == plain.record
    assert said(pod.output) == said(plain.output)


@pytest.mark.parametrize(
    ("name", "record", "last"),
    [
        ("signal-trapped", DONE, "got"),
        ("interrupt-trapped", Record("FAILED", "5:0"), "got"),
        ("signal-not-trapped", Record("FAILED", "0:12"), "up"),
        ("ended-alone", Record("FAILED", "4:0"), "got"),
        ("time-limit", Record("TIMEOUT", "0:0"), "late"),
        ("time-limit-of-two", Record("TIMEOUT", "0:0"), "tidy"),
        ("warned", DONE, "warned"),
    ],
)
def test_plain_slurm_ends_as_expected(
    endings: dict[tuple[str, str], Ending], name: str, record: Record, last: str
) -> None:
    """Agreement alone could be two equal failures."""
    assert endings[name, semantics.PODS].record == record
    assert said(endings[name, semantics.PODS].output)[-1] == last


@pytest.mark.parametrize("partition", [semantics.PLAIN, semantics.PODS])
def test_sigkill_after_kill_wait(
    endings: dict[tuple[str, str], Ending], folder: Path, partition: str
) -> None:
    """SIGKILL comes KillWait after SIGTERM, not before and not much later."""
    asked, last = (
        float((folder / f"{name}-{partition}").read_text().split()[0]) for name in ("term", "alive")
    )
    assert KILL_WAIT - 2 < last - asked < KILL_WAIT + 10


# -- preemption --------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def classes(lab: Lab) -> None:
    """QOS as an administrator makes them: urgent pushes spare back to the queue and scrap out of it."""
    known = lab.run(("sacctmgr", "--noheader", "--parsable2", "show", "qos", "format=name")).stdout.split()
    if "urgent" not in known:
        lab.run(("sacctmgr", "-i", "add", "qos", "spare", "preemptmode=requeue", "gracetime=0"))
        lab.run(("sacctmgr", "-i", "add", "qos", "scrap", "preemptmode=cancel", f"gracetime={GRACE_TIME}"))
        lab.run(("sacctmgr", "-i", "add", "qos", "urgent", "preempt=spare,scrap", "priority=1000"))
        names = "qos=normal,urgent,spare,scrap"
        lab.run(("sacctmgr", "-i", "modify", "user", "where", f"name={lab.user}", "set", names))


@dataclasses.dataclass(frozen=True)
class Preemption:
    """Jobs that had all GPUs of a node, by QOS, and those that take them."""

    folder: Path
    victims: dict[str, str]
    urgent: list[str]


VICTIM = (
    "#!/bin/bash\necho up-${SLURM_RESTART_COUNT:-0} >>log-$SLURM_JOB_QOS\n"
    "heard() { date +%s.%N >>term-$SLURM_JOB_QOS; [ $SLURM_JOB_QOS = scrap -a $((n++)) = 0 ] || exit 0; }\n"
    "trap heard TERM\n"
    f'[ -n "$SLURM_RESTART_COUNT" ] && exit 0\n{LOOP}'
)
NODES = {"spare": "n1", "scrap": "n2"}


@pytest.fixture(scope="module")
def preempting(lab: Lab, classes: None) -> Preemption:
    """The victims run, and the urgent jobs are in the queue."""
    folder = semantics.folder(lab)
    victims = {
        qos: lab.sbatch(VICTIM, f"--qos={qos}", "--gres=gpu:4", f"--nodelist={node}", cwd=folder)
        for qos, node in NODES.items()
    }
    for qos in victims:
        semantics.wait_for_text(folder / f"log-{qos}", "up-0")
    script = "#!/bin/sh\ndate +%s.%N >begin-$SLURMD_NODENAME\n"
    urgent = [
        lab.sbatch(script, "--qos=urgent", "--gres=gpu:4", f"--nodelist={node}", cwd=folder)
        for node in NODES.values()
    ]
    return Preemption(folder, victims, urgent)


def test_preemption(lab: Lab, preempting: Preemption) -> None:
    """The urgent jobs get the GPUs when the pods that had them are gone; those are requeued or cancelled."""
    folder, victims = preempting.folder, preempting.victims
    ended = semantics.records(lab, (*preempting.urgent, victims["scrap"]))
    assert {ended[job_id] for job_id in preempting.urgent} == {DONE}
    assert ended[victims["scrap"]].state == "PREEMPTED"
    asked, ended_at, *_ = map(float, (folder / "term-scrap").read_text().split())
    assert ended_at - asked > GRACE_TIME - 1, "asked once, then GraceTime, then ended"
    assert float((folder / "begin-n2").read_text()) > ended_at
    lab.wait_for(victims["spare"], "COMPLETED")
    assert (folder / "log-spare").read_text() == "up-0\nup-1\n"


# -- memory, suspension --------------------------------------------------------------------------


def test_out_of_memory_has_the_reason(lab: Lab) -> None:
    """The memory limit holds, and the reason is in the output and in Slurm's comment."""
    folder = semantics.folder(lab)
    script = "#!/bin/sh\nexec python3 -c 'x = bytearray(300 * 2**20); print(len(x))'\n"
    job_id = lab.sbatch(script, "--mem=60M", "--output=o", cwd=folder)
    assert semantics.record(lab, job_id) == Record("FAILED", "0:9")
    assert "OOMKilled" in (folder / "o").read_text()
    assert "OOMKilled" in semantics.field(lab, job_id, "Comment")


def test_suspend_is_reported_as_unsupported(lab: Lab) -> None:
    """The pod continues and says so, its room is not given away though Slurm would, and it ends as usual."""
    folder = semantics.folder(lab)
    whole = ("-n8", "--nodelist=n3", "--mem=100M")
    script = "#!/bin/sh\necho up\nuntil [ -e go ]; do sleep 0.1; done\necho end\n"
    job_id = lab.sbatch(script, *whole, "--output=o", cwd=folder)
    semantics.wait_for_text(folder / "o", "up")
    lab.run(("scontrol", "suspend", job_id))
    semantics.wait_for_text(folder / "o", "suspending does not reach pods")
    other = lab.sbatch("#!/bin/sh\ntrue\n", *whole, cwd=folder)
    semantics.wait_until(
        lambda: semantics.field(lab, other, "Comment").startswith("waits for cpu on n3"), "the other waits"
    )
    assert semantics.pods(lab, other) == []
    lab.run(("scancel", other))
    lab.run(("scontrol", "resume", job_id))
    lab.run_as_user(("touch", str(folder / "go")))
    assert semantics.record(lab, job_id) == DONE
    assert (folder / "o").read_text().endswith("end\n")
