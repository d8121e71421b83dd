"""Summaries, compared with golden files."""

from __future__ import annotations

import msgspec
import pytest

from penstock.model import attempts, jobs
from penstock.results import summary
from tests import goldens

DIGEST = "sha256:" + "12ab" * 16
ATTEMPT = attempts.Attempt(
    job_id=23,
    restart=1,
    uid=1001,
    token="0123456789abcdef" * 2,
    launched=1_800_000_010.0,
    partition="gpu",
    submission="1799999990",
    qos="normal",
    shares=tuple(
        attempts.Share(node=node, millicpus=4000, memory=8 * 2**30, gpus=2) for node in ("n1", "n2")
    ),
    image="registry.site/train:2",
    workdir=b"/nas/home/alice",
    workdir_is_shared=True,
    stdout=b"/nas/home/alice/out.txt",
    stderr=b"/nas/home/alice/err\xff.txt",
    outputs=("*.csv",),
    end=attempts.End(
        at=1_800_000_070.0, exit_code=137, signal=9, reason="OOMKilled: the job used more memory"
    ),
    pods=tuple(
        attempts.PodFacts(
            name="slurm-job-23-r1" + (f"-n{rank}" if rank else ""),
            namespace="user-alice",
            rank=rank,
            node=node,
            image="registry.site/train:2",
            image_id=f"registry.site/train@{DIGEST}",
            started="2027-01-15T08:00:11Z",
            ended="2027-01-15T08:01:10Z",
            exit_code=137 if rank == 0 else 0,
            reason="OOMKilled" if rank == 0 else "Completed",
            message=f"signal\n0m0.01s 0m0.02s\n1m30.50s 0m1.25s\nmemory 8589934592 {8 * 2**30}\n"
            if rank == 0
            else "",
        )
        for rank, node in enumerate(("n1", "n2"))
    ),
)
RECORD = jobs.JobRecord(
    job_id=23,
    shown_id="20_3",
    uid=1001,
    state="FAILED",
    end="0:9",
    submitted=1_800_000_000.0,
    started=1_800_000_009.0,
    ended=1_800_000_071.0,
    account="research",
    name="train",
)


def reviewed(name: str, text: str) -> str:
    return goldens.reviewed(f"results/{name}", text)


def whole() -> summary.Summary:
    found = summary.summarise(ATTEMPT, RECORD, user="alice", now=1_800_000_080.0)
    counted = summary.Outputs(patterns=("*.csv",), files=3, bytes=4096)
    return msgspec.structs.replace(
        found, outputs=counted, complete=True, notes=("a.csv: symbolic link, not followed",)
    )


def test_summary_of_failed_array_task() -> None:
    """A requeued array task on two nodes that ran out of memory."""
    data, text = summary.as_json(whole()).decode(), summary.as_text(whole())
    assert data == reviewed("job_summary.json", data)
    assert text == reviewed("job_summary.txt", text)


def test_summary_with_unknown_values() -> None:
    """Nothing is invented."""
    bare = attempts.Attempt(job_id=5, restart=0, uid=1001, token="a" * 32, launched=1.0, partition="gpu")
    found = summary.summarise(bare, None, user="alice", now=1_800_000_080.0)
    found = msgspec.structs.replace(found, problem="No space left on device")
    data, text = summary.as_json(found).decode(), summary.as_text(found)
    assert data == reviewed("unknown_summary.json", data)
    assert text == reviewed("unknown_summary.txt", text)


def test_error_number_of_slurmd_is_not_a_signal() -> None:
    """0:53 of a job without a pod: nothing ran that could be killed."""
    never = msgspec.structs.replace(whole(), state="FAILED", exit_code=0, signal=53, pods=())
    assert "state      FAILED, not started (0:53)\n" in summary.as_text(never)


def test_user_text_is_sanitised() -> None:
    """A job name with a line break and an escape sequence stays one line of plain text."""
    text = summary.as_text(msgspec.structs.replace(whole(), name="x\nstate      COMPLETED\x1b[2J"))
    assert "x?state      COMPLETED?[2J" in text
    assert text.count("\nstate ") == 1


@pytest.mark.parametrize(
    ("words", "seconds"),
    [
        ("0m0.00s 0m0.00s\n0m0.50s 0m0.25s\n", 0.75),
        ("signal\n0m0,010s 0m0,000s\n2m3,000s 0m0,000s", 123.01),
        ("", None),
        ("signal\n", None),
        ("0m1s 0m1s", None),
        ("1 2\n3 4\n", None),
        ("0m1s 0m1s\n" * 3, None),
        ("the script's own last words", None),
    ],
)
def test_cpu_seconds_from_termination_message(words: str, seconds: float | None) -> None:
    """As dash, bash and busybox print it, in any locale; None rather than wrong."""
    assert summary.cpu_seconds(words) == seconds


@pytest.mark.parametrize(
    ("words", "found"),
    [
        ("0m1s 0m1s\n0m1s 0m1s\nmemory 123 4096000\n", 123),
        ("memory 123 4096100", 123),
        ("memory 123 8192000", None),
        ("memory 123 max", None),
        ("memory x 4096000", None),
        ("", None),
    ],
)
def test_memory_counts_only_for_own_cgroup(words: str, found: int | None) -> None:
    """In another cgroup the limit differs, and memory is unknown."""
    assert summary.memory_bytes(words, limit=4_096_000) == found


@pytest.mark.parametrize(
    ("end", "record", "expected"),
    [
        (attempts.End(at=1, exit_code=7), "7:0", (7, 0)),
        (attempts.End(at=1, exit_code=137), "9:0", (137, 0)),
        (attempts.End(at=1, exit_code=137, signal=9), "0:9", (0, 9)),
        (None, "0:15", (0, 15)),
        (None, "", (None, None)),
    ],
)
def test_exit_code_comes_from_container(
    end: attempts.End | None, record: str, expected: tuple[int | None, int | None]
) -> None:
    """From Slurm only if the container's is unknown."""
    found = summary.summarise(
        msgspec.structs.replace(ATTEMPT, end=end),
        msgspec.structs.replace(RECORD, end=record),
        user="alice",
        now=1.0,
    )
    assert (found.exit_code, found.signal) == expected
