"""I4, the API's side: away, slow or lying. What runs runs on, what is new waits, nothing healthy is deleted,
and all converges when the API is well again, without anybody's help.
"""

from __future__ import annotations

import functools
import json

import pytest
from tests.e2e import semantics, storms
from tests.e2e.storms import Rule

from penstock.bridge import follower
from penstock_lab.faultproxy import controlsocket

Lab = semantics.Lab
DONE = semantics.Record("COMPLETED", "0:0")
HELLO = "#!/bin/sh\necho hello\n"


@pytest.fixture(scope="session")
def lab(stormy_lab: Lab) -> Lab:
    """The lab of all tests here."""
    return stormy_lab


AWAY = {
    "unreachable": Rule(fault="unreachable"),
    "answers 500": Rule(fault="status", status=500),
    "asks for patience": Rule(fault="status", status=429, seconds=1),
    "hangs": Rule(fault="hang"),
}


def test_api_outage(lab: Lab, switch: controlsocket.Control) -> None:
    """Running jobs continue, also those that end meanwhile; new ones wait and run afterwards."""
    lives, ends = storms.start(lab), storms.start(lab, "-N2")
    waiting = []
    for number, rule in enumerate(AWAY.values()):
        with switch.during(rule):
            waiting.append(lab.sbatch(HELLO))
            if number == 0:
                ends.end()
            storms.stays_so(lives.is_untouched, seconds=2)
            assert semantics.pods(lab, waiting[-1]) == []
    ends.check_true_end()
    assert set(semantics.records(lab, waiting).values()) == {DONE}
    assert lives.is_untouched()
    lives.end()
    lives.check_true_end()
    assert storms.drained(lab) == []


def struck(switch: controlsocket.Control, rule: Rule) -> int:
    """How often such a fault has met a request so far."""
    return switch.figures().struck.get(rule.fault, 0)


def jobs_come_and_go(lab: Lab) -> str:
    """A gang and one that fails end as they should; the gang."""
    gang, short = lab.sbatch(HELLO, "-N2"), lab.sbatch("#!/bin/sh\nexit 4\n")
    found = semantics.records(lab, (gang, short))
    assert found == {gang: DONE, short: semantics.Record("FAILED", "4:0")}
    return gang


def test_slow_api(lab: Lab, switch: controlsocket.Control) -> None:
    """Responses and jobs take longer; nothing else changes."""
    lives, slow = storms.start(lab), Rule(fault="delay", seconds=1)
    before = struck(switch, slow)
    with switch.during(slow):
        jobs_come_and_go(lab)
        assert lives.is_untouched()
        lives.end()
        lives.check_true_end()
    assert struck(switch, slow) > before


def test_lost_api_responses(lab: Lab, switch: controlsocket.Control) -> None:
    """The API acts and the response is lost, truncated or late: no pod twice."""
    folder = semantics.folder(lab)
    broken = (
        Rule(fault="swallow", chance=0.3),
        Rule(fault="half", chance=0.2),
        Rule(fault="cut", chance=0.2),
        Rule(fault="delay", seconds=0.3, chance=0.5),
    )
    before = {rule: struck(switch, rule) for rule in broken}
    with switch.during(*broken):
        job_ids = [
            lab.sbatch("#!/bin/sh\necho ran >> ran.$SLURM_JOB_ID\nexit 3\n", "--output=/dev/null", cwd=folder)
            for _ in range(8)
        ]
        semantics.wait_until(lambda: all(struck(switch, rule) > before[rule] for rule in broken), "all met")
    found = semantics.records(lab, job_ids)
    assert set(found.values()) == {semantics.Record("FAILED", "3:0")}
    assert [(folder / f"ran.{job_id}").read_text() for job_id in job_ids] == ["ran\n"] * 8


LISTS = (Rule(fault="empty", verbs=("list",)), Rule(fault="partial", keep=0.5, verbs=("list",)))


def is_refused_again(lab: Lab, job_id: str) -> bool:
    """Whether the penstockd that runs now has refused the job, which is tried as soon as Slurm can."""
    lab.run(("scontrol", "update", f"JobId={job_id}", "StartTime=now"), check=False)
    (shown,) = json.loads(lab.penstock("show", job_id, "--format", "json").stdout)["jobs"]
    return "refused" in [step["name"] for step in shown["timeline"]]


def test_incomplete_lists(lab: Lab, switch: controlsocket.Control) -> None:
    """Neither a running nor a new penstockd trusts them: nothing is deleted or overbooked."""
    pod = storms.foreign_pod("notebook", "n3", gpus=3)
    lab.run(("kubectl", "apply", "-f", "-"), stdin=json.dumps(pod))
    lives, *ending = storms.start(lab, "--gres=gpu:1"), storms.start(lab), storms.start(lab, "-N2")
    try:
        greedy = lab.sbatch(HELLO, "--gres=gpu:3", "-w", "n3")
        semantics.wait_until(lambda: "notebook" in semantics.field(lab, greedy, "Comment"), "refused")
        for lie, ends in zip(LISTS, ending, strict=True):
            with switch.during(lie, Rule(fault="gone", times=2)):
                with storms.away(lab, "penstockd"):
                    ends.end()
                semantics.wait_until(
                    functools.partial(is_refused_again, lab, greedy), "refused by the new one"
                )
                ends.check_true_end()
                storms.stays_so(lives.is_untouched, seconds=2)
                assert semantics.pods(lab, greedy) == []
                gone = functools.partial(lambda job_id: semantics.pods(lab, job_id) == [], ends.job_id)
                semantics.wait_until(gone, "the ended job's pods are gone")
    finally:
        lab.run(("kubectl", "delete", "pod", "notebook", "--wait=true"))
    lives.end()
    lives.check_true_end()
    storms.hurry(lab, greedy)
    assert semantics.record(lab, greedy) == DONE


def test_empty_list_ends_no_job(lab: Lab, switch: controlsocket.Control) -> None:
    """Also when the job's own pod is checked: it is read by name."""
    job, before = storms.start(lab), struck(switch, LISTS[0])
    with switch.during(LISTS[0], Rule(fault="gone", times=2)):
        storms.stays_so(job.is_untouched, seconds=follower.FIRST_LOOK + 2)
    assert struck(switch, LISTS[0]) > before
    job.end()
    job.check_true_end()


WATCHES = {
    "dropped": Rule(fault="drop", chance=0.7),
    "stale": Rule(fault="stale"),
    "reordered": Rule(fault="reorder", chance=0.5),
    "frozen": Rule(fault="freeze"),
    "expired": Rule(fault="gone", chance=0.5),
}


@pytest.mark.parametrize(
    "name", [pytest.param(name, marks=storms.LONG if name == "frozen" else ()) for name in WATCHES]
)
def test_false_watch_events(lab: Lab, switch: controlsocket.Control, name: str) -> None:
    """Jobs start, end and are released as with correct events."""
    lives = storms.start(lab)
    with switch.during(WATCHES[name]):
        gang = jobs_come_and_go(lab)
        assert lives.is_untouched()
    lives.end()
    lives.check_true_end()
    semantics.wait_until(lambda: semantics.pods(lab, gang) == [], "the gang is gone")
