"""Reading all of Slurm's jobs at once, with hostile text in them."""

from __future__ import annotations

from collections.abc import Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as some

from penstock import errors
from penstock.slurm import fields, jobtexts, reader
from tests.unit import slurmtexts
from tests.unit.slurmtexts import ROW, SEPARATOR, Programs, programs

__all__ = ["programs"]
SLURM = reader.SlurmReader("")


def block(job_id: int, name: str, nodes: str = "n[1-2]") -> str:
    text = slurmtexts.show_job("gpu:1(IDX:0)", nodes=nodes)
    return text.replace("JobId=1 JobName=wrap", f"JobId={job_id} JobName={name}")


def read(text: str) -> list[dict[str, str]]:
    return fields.rows(text, SEPARATOR, jobtexts.COLUMNS)


async def test_job_has_its_exit_status(programs: Programs) -> None:
    """A wait status is an exit code and a signal."""
    failed = {"JobID": "17", "RestartCnt": "2", "State": "FAILED", "exit_code": str(7 << 8)}
    programs.queue = [
        ROW | failed | {"Comment": "OOMKilled"},
        ROW | {"JobID": "18", "State": "CANCELLED", "exit_code": "15", "Comment": "(null)"},
    ]
    first, second = await SLURM.all_jobs()
    assert (first.job_id, first.identity.restart, first.exit_code, first.signal) == (17, 2, 7, 0)
    assert first.comment == "OOMKilled"
    assert (second.signal, second.comment) == (15, "")


@given(some.text(some.characters(codec="utf-8")))
def test_comment_cannot_forge_a_job(comment: str) -> None:
    """Line breaks and bars are text; only the separator of this call separates."""
    rows = [ROW | {"JobID": "17", "Comment": comment}, ROW | {"JobID": "18"}]
    found = read(slurmtexts.printed(rows, jobtexts.COLUMNS))
    assert [jobtexts.job(said).job_id for said in found] == [17, 18]


@pytest.mark.parametrize("text", ["nonsense", f"17{SEPARATOR}"])
def test_malformed_list_is_an_error(text: str) -> None:
    """Never a missing job, never an invented one."""
    with pytest.raises(errors.SlurmError):
        read(text)


@pytest.mark.parametrize("changes", [{name: "x"} for name in ("JobID", "UserID", "RestartCnt", "exit_code")])
def test_malformed_numbers_are_errors(changes: dict[str, str]) -> None:
    with pytest.raises(errors.SlurmError):
        jobtexts.job(ROW | changes)


@pytest.mark.parametrize(("text", "end"), [("7:0", (7, 0)), ("0:15", (0, 15)), ("1792", (7, 0))])
def test_exit_code_and_signal_of_sacct_are_parsed(text: str, end: tuple[int, int]) -> None:
    """Releases differ."""
    found = jobtexts.job(ROW | {"exit_code": text})
    assert (found.exit_code, found.signal) == end


async def test_forged_block_adds_no_share(monkeypatch: pytest.MonkeyPatch, programs: Programs) -> None:
    """The job seems to be printed twice and is queried on its own."""
    forged = block(18, "x\n\n" + block(17, "forged", nodes="n9"))
    text = block(17, "true") + "\n" + forged
    assert [job_id for job_id, _ in jobtexts.blocks(text)] == [17, 18, 17]
    assert list(jobtexts.blocks("")) == []

    async def run(argv: Sequence[str], *, slurm_conf: str, **_: object) -> str:
        if argv == ("scontrol", "--detail", "show", "job", "17"):
            return block(17, "true")
        return await programs.run(argv, slurm_conf=slurm_conf)

    monkeypatch.setattr("penstock.slurm.commands.run", run)
    programs.queue, programs.jobs = [ROW | {"JobID": "17"}], text
    (found,) = await SLURM.all_jobs()
    assert [share.node for share in found.shares] == ["n1", "n2"]


async def test_queued_job_array_task_and_unmarked_job(programs: Programs) -> None:
    """A task of an array, whose script is its array's; a job without our mark; nothing else."""
    task = {"JobID": "9", "JobArrayID": "7_3", "ArrayJobID": "7", "ArrayTaskID": "3", "Partition": "gpu,cpu"}
    plain = {"JobID": "8", "JobArrayID": "8", "NodeList": "", "ReqNodes": "n4", "admin_comment": "(null)"}
    programs.queue = [ROW | task, ROW | plain]
    first, second = await SLURM.unfinished()
    assert (first.shown_id, first.script_id, first.partitions) == ("7_3", 7, ("gpu", "cpu"))
    assert (first.nodes, first.required, first.prepared) == (("n1", "n2"), (), True)
    assert (second.nodes, second.required, second.prepared) == ((), ("n4",), False)


async def test_invalid_node_list_hides_no_job(programs: Programs) -> None:
    """One job must not end the list of all."""
    programs.queue = [ROW | {"ReqNodes": "n[1-"}]
    (found,) = await SLURM.shown_queue()
    assert found.required == ("n[1-",)
