"""Reading all jobs of Slurm at once, with text in them that means harm."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as some

from penstock import errors
from penstock.slurm import auditing

SEPARATOR = "|0123456789abcdef|"
BLOCK = """JobId={job} JobName={name}
   UserId=alice(1001) GroupId=alice(1001) MCS_label=N/A
   Priority=1 Nice=0 Account=research QOS=normal
   JobState=RUNNING Reason=None Dependency=(null)
   Partition=gpu AllocNode:Sid=localhost:1
     Nodes=n[1-2] CPU_IDs=0-1 Mem=2048 GRES=gpu:1(IDX:0)
   MinCPUsNode=1
"""


def row(*words: object) -> str:
    return "".join(f"{word}{SEPARATOR}" for word in words) + "\n"


def test_a_job_is_read_with_its_record() -> None:
    """A wait status is an exit code and a signal."""
    text = row(17, 1001, 2, "FAILED", "gpu", 7 << 8, "OOMKilled") + row(
        18, 0, 0, "CANCELLED", "cpu", 15, "(null)"
    )
    first, second = auditing.parse_queue(text, SEPARATOR)
    assert (first.job_id, first.live.identity.restart, first.exit_code, first.signal) == (17, 2, 7, 0)
    assert first.comment == "OOMKilled"
    assert (second.signal, second.comment) == (15, "")


@given(some.text(some.characters(codec="utf-8")))
def test_no_comment_can_look_like_a_job(comment: str) -> None:
    """Line breaks and bars are text; only the separator of this very call separates."""
    text = row(17, 1001, 0, "RUNNING", "gpu", 0, comment) + row(18, 1001, 0, "PENDING", "gpu", 0, "")
    assert [job.job_id for job in auditing.parse_queue(text, SEPARATOR)] == [17, 18]


@pytest.mark.parametrize("text", ["nonsense", f"17{SEPARATOR}", row(*"abcdefg"), row(1, 2, 3, 4, 5, "x", 7)])
def test_what_is_not_understood_is_an_error(text: str) -> None:
    """Never a job that is not there, never one less."""
    with pytest.raises(errors.SlurmError):
        auditing.parse_queue(text, SEPARATOR)


def test_sacct_s_way_of_writing_an_end_is_read_too() -> None:
    """Releases differ."""
    assert auditing.wait_status("7:0") == (7, 0)
    assert auditing.wait_status("0:15") == (0, 15)


def test_a_name_with_line_breaks_makes_a_second_block_and_not_another_share() -> None:
    """The forged block is seen as one of a job that is printed twice."""
    forged = BLOCK.format(job=18, name="x\n\n" + BLOCK.format(job=17, name="forged"))
    text = BLOCK.format(job=17, name="true") + "\n" + forged
    assert [job_id for job_id, _ in auditing.blocks(text)] == [17, 18, 17]
    assert list(auditing.blocks("")) == []
