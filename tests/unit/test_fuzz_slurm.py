"""Whatever Slurm's commands print: data, or an error in words. Nothing else comes out, and nothing is forged.

Texts are what Slurm really prints, cut, doubled and sprinkled with anything: that goes deeper into a parser
than noise does.
"""

from __future__ import annotations

import contextlib

import pytest
from hypothesis import given
from hypothesis import strategies as some

from penstock import errors
from penstock.slurm import accounting, fields, hostlists, jobtexts, nodetexts, tokensearch
from tests.unit import slurmtexts, test_accounting
from tests.unit.slurmtexts import SEPARATOR, SHOW_JOB

NODE = (
    "NodeName=n1 Arch=x86_64 CPUAlloc=2 CPUTot=8 Gres=gpu:a100:4 RealMemory=32768 AllocMem=100 "
    "State=MIXED+DRAIN AllocTRES=cpu=2,mem=100M,gres/gpu=1 Reason=penstock: pods of job 1 [slurm@now]\n"
)
ANYTHING = some.text(max_size=12) | some.sampled_from(
    ["\n", "=", "|", SEPARATOR, "\x1f", "²", "-", ",", "[", "JobId=9 ", "   JobState=RUNNING ", "9" * 5000]
)


@some.composite
def spoiled(draw: some.DrawFn, text: str) -> str:
    """The text with a few pieces replaced, left out or said twice."""
    for _ in range(draw(some.integers(1, 4))):
        one, other = sorted(draw(some.tuples(*[some.integers(0, len(text))] * 2)))
        piece = draw(ANYTHING | some.just("") | some.just(text[one:other] * 2))
        text = text[:one] + piece + text[other:]
    return text


@given(spoiled(SHOW_JOB))
def test_scontrol_show_job_is_parsed_or_an_error(text: str) -> None:
    """No share is negative, and the name is all that follows JobName=."""
    for found in jobtexts.all_shown(text):
        assert all(min(s.amount.millicpus, s.amount.memory, s.amount.gpus) >= 0 for s in found.shares)
    for job_id, block in jobtexts.blocks(text):
        with contextlib.suppress(errors.SlurmError):
            found = jobtexts.shown_in(block)
            assert found.job_id == job_id
            assert found.name == block.partition("\n")[0].partition(" JobName=")[2].strip()


@given(spoiled(SHOW_JOB * 2))
def test_blocks_are_parts_of_the_text(text: str) -> None:
    """`scontrol show job` of all jobs, split where a job begins."""
    found = list(jobtexts.blocks(text))
    assert all(block in text for _, block in found)
    assert sum(len(block) for _, block in found) <= len(text)


@pytest.mark.parametrize("names", [jobtexts.LIVE_COLUMNS, (*jobtexts.COLUMNS, jobtexts.USER_COLUMN)])
@given(some.data())
def test_squeue_is_parsed_or_an_error(names: tuple[str, ...], data: some.DataObject) -> None:
    """With the columns of penstockd and of all other callers."""
    text = data.draw(spoiled(slurmtexts.printed([slurmtexts.ROW], names)))
    with contextlib.suppress(errors.SlurmError):
        for said in fields.rows(text, SEPARATOR, names):
            read = jobtexts.live_job if names == jobtexts.LIVE_COLUMNS else jobtexts.job
            assert read(said).job_id >= 0


@given(spoiled(slurmtexts.printed([slurmtexts.RECORD], accounting.COLUMNS)))
def test_sacct_rows_are_parsed_or_skipped(text: str) -> None:
    with contextlib.suppress(errors.SlurmError):
        for said in fields.rows(text, SEPARATOR, accounting.COLUMNS):
            found = accounting.record(said)
            assert found is None or found.job_id >= 0


@given(spoiled(test_accounting.REMEMBERED), some.integers(0, 3))
def test_slurmctlds_record_is_that_users_or_none(text: str, restart: int) -> None:
    """`scontrol show job`, for the results."""
    with contextlib.suppress(errors.SlurmError):
        found = accounting._remembered(jobtexts.shown(text, 23), uid=1001, restart=restart)
        assert found is None or (found.uid, found.job_id) == (1001, 23)


@given(spoiled(NODE))
def test_scontrol_show_node_is_parsed_or_an_error(line: str) -> None:
    with contextlib.suppress(errors.SlurmError):
        assert nodetexts.node(line).name is not None


@given(spoiled("n[1-3,07],login"))
def test_host_lists_are_parsed_or_an_error(text: str) -> None:
    with contextlib.suppress(errors.SlurmError):
        assert all(isinstance(name, str) for name in hostlists.expand(text))


@given(spoiled("17"), spoiled("/spool/0123456789abcdef0123456789abcdef/job.sh"))
def test_only_tokens_that_were_asked_for_are_found(number: str, command: str) -> None:
    """By these the intake finds its jobs."""
    token = "0123456789abcdef0123456789abcdef"
    assert set(tokensearch.matches([(number, command)], {token})) <= {token}


@given(some.lists(some.lists(some.text(some.characters(codec="utf-8")), min_size=9, max_size=9), max_size=3))
def test_job_names_cannot_shift_columns(jobs: list[list[str]]) -> None:
    """Neither line breaks nor earlier separators."""
    text = "".join("".join(f"{word}{SEPARATOR}" for word in job) + "\n" for job in jobs)
    found = fields.rows(text, SEPARATOR, "abcdefghi")
    assert [list(row.values()) for row in found] == [[word.strip() for word in job] for job in jobs]


def test_separator_is_unpredictable() -> None:
    """Otherwise a name could contain it, and become two columns."""
    made = {fields.made_up() for _ in range(100)}
    assert len(made) == 100
    assert min(map(len, made)) >= 16


@pytest.mark.parametrize("text", ["x", f"1{SEPARATOR}2", f"1{SEPARATOR}2{SEPARATOR}"])
def test_a_list_that_lacks_columns_is_an_error(text: str) -> None:
    """Never a job made of two halves."""
    with pytest.raises(errors.SlurmError):
        fields.rows(text, SEPARATOR, "abcdefghi")


def test_job_name_cannot_forge_a_state() -> None:
    """`penstock show` shows slurmctld's state."""
    found = jobtexts.shown(SHOW_JOB.replace("wrap", "x JobState=COMPLETED Restarts=no"), 1)
    assert (found.state, found.job_id) == ("RUNNING", 1)
    assert found.name == "x JobState=COMPLETED Restarts=no"
