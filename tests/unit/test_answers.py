"""sbatch's output and submitted jobs, as the intake interprets and finds them."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.slurm import answers, tokensearch
from tests.unit.slurmtexts import Programs, programs

__all__ = ["programs"]
TOKEN = "0123456789abcdef" * 2
FAILED = "sbatch: error: Batch job submission failed: "
RETRYING = "sbatch: error: Slurm temporarily unable to accept job, sleeping and retrying\n"


class TestAnswers:
    @pytest.mark.parametrize(
        ("out", "err", "code", "kind"),
        [
            ("17\n", "", 0, "accepted"),
            ("17;cluster\n", "sbatch: a word\n", 0, "accepted"),
            ("17\n", "", None, "accepted"),
            ("", "sbatch: error: Batch job submission failed: Invalid account\n", 1, "rejected"),
            ("", "sbatch: error: Batch job submission failed: Invalid account\n", None, "rejected"),
            ("", "sbatch: error: AssocMaxSubmitJobLimit\nsbatch: error: … policy\n", 1, "later"),
            ("", "sbatch: error: QOSMaxSubmitJobPerUserLimit\n", 1, "later"),
            ("", "Unable to contact slurm controller (connect failure)\n", 1, "later"),
            ("", "Socket timed out on send/recv operation\n", 1, "unknown"),
            ("", "", -9, "unknown"),
            ("", "", None, "unknown"),
            ("", "sbatch: half a w", -15, "unknown"),
            ("17\n", "sbatch: Warning: a word\n", 3, "accepted"),
            ("17\n", "", -9, "accepted"),
            ("", FAILED + "Unable to contact slurm controller (connect failure)\n", 1, "later"),
            ("", FAILED + "Unable to contact slurm controller (receive failure)\n", 1, "unknown"),
            ("", FAILED + "Slurm backup controller in standby mode\n", 1, "unknown"),
            ("", FAILED + "Socket timed out on send/recv operation\nsbatch: a plugin's end\n", 1, "unknown"),
            ("", RETRYING + FAILED + "Resource temporarily unavailable\n", 1, "later"),
            ("", RETRYING, 1, "later"),
            ("", RETRYING, None, "unknown"),
            ("", RETRYING + FAILED + "Invalid account\n", 1, "rejected"),
        ],
    )
    def test_what_sbatch_says_is_understood(self, out: str, err: str, code: int | None, kind: str) -> None:
        """Accepted, rejected, later and unknown are distinguished."""
        assert answers.understand(out, err, code=code).kind == kind

    @pytest.mark.parametrize(
        "evil",
        [
            "connect failure Connection refused",
            "Unable to contact slurm controller (connect failure)",
            "AssocMaxSubmitJobLimit",
            "Slurm temporarily unable to accept job, sleeping and retrying",
            f"x\u2028{FAILED}Socket timed out on send/recv operation",
            f"x\r{FAILED}Unable to contact slurm controller (connect failure)",
            "x\vQOSMaxSubmitJobPerUserLimit",
        ],
    )
    @pytest.mark.parametrize("code", [1, None])
    def test_words_of_the_script_are_not_slurms(self, evil: str, code: int | None) -> None:
        """A partition's name can neither delay a file forever nor block other files."""
        quoted = f"sbatch: error: invalid partition specified: {evil}\n"
        for err in (quoted + FAILED + "Invalid partition name specified\n", quoted):
            assert answers.understand("", err, code=code).kind == "rejected"

    def test_only_a_slurmctld_out_of_reach_is_everybodys_trouble(self) -> None:
        """A limit concerns one user."""
        away = answers.understand(
            "", FAILED + "Unable to contact slurm controller (connect failure)\n", code=1
        )
        limit = "sbatch: error: connect failure\nsbatch: error: QOSMaxSubmitJobPerUserLimit\n"
        assert away.away
        assert not answers.understand("", limit, code=1).away

    def test_words_are_the_users(self) -> None:
        said = "sbatch: error: invalid partition\nsbatch: error: Batch job submission failed: X\n"
        assert (
            answers.understand("", said, code=1).words == "invalid partition\nBatch job submission failed: X"
        )

    @given(st.text(), st.text(), st.none() | st.integers(-64, 255))
    def test_a_job_is_believed_only_with_its_number(self, out: str, err: str, code: int | None) -> None:
        """Whatever else is printed."""
        answer = answers.understand(out, err, code=code)
        assert (answer.kind == "accepted") == bool(answer.job_id)
        assert answer.kind != "rejected" or answer.words


class TestFinding:
    def test_jobs_are_found_by_the_token_in_their_path(self) -> None:
        """In squeue's and sacct's form; tasks count as their array, other tokens are ignored."""
        commands = [
            ("12", f"/var/spool/{TOKEN}/a|b.sh"),
            ("13_4", f"sbatch --parsable /s/{'f' * 32}/x"),
            ("nonsense", ""),
            ("", f"/s/{TOKEN}/y"),
        ]
        assert tokensearch.matches(commands, {TOKEN, "f" * 32}) == {TOKEN: "12", "f" * 32: "13"}
        assert tokensearch.matches(commands, {"e" * 32}) == {}

    async def test_what_slurmctld_has_forgotten_the_accounting_knows(self, programs: Programs) -> None:
        """It is asked only then; no script's name can look like another job's."""
        forged = f"/s/{TOKEN}/x\n99|/s/{'f' * 32}/y"
        programs.queue = [{"ArrayJobID": "12", "Command": forged}]
        assert await tokensearch.find(7, {TOKEN}, since=0.0, slurm_conf="") == {TOKEN: "12"}
        assert [argv[0] for argv in programs.calls] == ["squeue"]
        programs.records = [{"JobID": "13_4", "SubmitLine": f"sbatch /s/{'e' * 32}/x"}]
        found = await tokensearch.find(7, {TOKEN, "e" * 32}, since=0.0, slurm_conf="")
        assert found == {TOKEN: "12", "e" * 32: "13"}

    def test_the_first_of_two_counts(self) -> None:
        """Tasks of an array come in any order."""
        assert tokensearch.matches([("5_2", f"/{TOKEN}/x"), ("5_1", f"/{TOKEN}/x")], {TOKEN}) == {TOKEN: "5"}
