"""sbatch as another user: what it is given, what its words mean, and what is left when we die meanwhile."""

from __future__ import annotations

import asyncio
import os
import pwd
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.slurm import answers, finding, spooling, submitting

TOKEN = "0123456789abcdef" * 2
NOBODY = pwd.getpwnam("nobody")
as_root = pytest.mark.skipif(os.geteuid() != 0, reason="only root can become another user")


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
        ],
    )
    def test_what_sbatch_says_is_understood(self, out: str, err: str, code: int | None, kind: str) -> None:
        """Yes, no, not now, and nobody knows are four different things."""
        assert answers.understand(out, err, code=code).kind == kind

    def test_words_are_the_users(self) -> None:
        """Without sbatch's own prefixes."""
        said = "sbatch: error: invalid partition\nsbatch: error: Batch job submission failed: X\n"
        assert (
            answers.understand("", said, code=1).words == "invalid partition\nBatch job submission failed: X"
        )

    @given(st.text(), st.text(), st.none() | st.integers(-64, 255))
    def test_a_job_is_believed_only_with_its_number(self, out: str, err: str, code: int | None) -> None:
        """Whatever is printed."""
        answer = answers.understand(out, err, code=code)
        assert (answer.kind == "accepted") == bool(answer.job_id)
        assert answer.kind != "rejected" or answer.words


class TestFinding:
    def test_jobs_are_found_by_the_token_in_their_path(self) -> None:
        """In squeue's and in sacct's form; tasks count as their array, other tokens not at all."""
        text = (
            f"12|/var/spool/{TOKEN}/a|b.sh\n13_4|sbatch --parsable /s/{'f' * 32}/x\nnonsense\n|/s/{TOKEN}/y\n"
        )
        assert finding.matches(text, {TOKEN, "f" * 32}) == {TOKEN: "12", "f" * 32: "13"}
        assert finding.matches(text, {"e" * 32}) == {}

    def test_the_first_of_two_counts(self) -> None:
        """Tasks of an array come in any order."""
        assert finding.matches(f"5_2|/{TOKEN}/x\n5_1|/{TOKEN}/x\n", {TOKEN}) == {TOKEN: "5"}


@pytest.fixture
def spool(tmp_path: Path) -> spooling.Spool:
    for parent in (tmp_path, *tmp_path.parents[:3]):
        parent.chmod(parent.stat().st_mode | 0o111)
    return spooling.Spool(tmp_path / "spool")


def fake_sbatch(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, text: str) -> Path:
    """A program of that name, first on the PATH."""
    program = tmp_path / "bin" / "sbatch"
    program.parent.mkdir()
    program.write_text(f"#!/bin/sh\n{text}\n")
    program.chmod(0o755)
    monkeypatch.setenv("PATH", f"{program.parent}:{os.environ['PATH']}")
    return program


def submission(workdir: str = "/", data: bytes = b"#!/bin/sh\n") -> submitting.Submission:
    environment = {"PATH": os.environ["PATH"], "ONLY": "this"}
    return submitting.Submission(
        TOKEN, "job.sh", data, NOBODY.pw_uid, NOBODY.pw_gid, (NOBODY.pw_gid,), workdir, environment
    )


@as_root
class TestSubmitting:
    async def test_sbatch_gets_the_bytes_as_the_user_and_nothing_of_ours(
        self, spool: spooling.Spool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """Uid, groups, environment, folder, umask and the script's path and content."""
        fake_sbatch(
            tmp_path,
            monkeypatch,
            'echo "u $(id -u)"; echo "g $(id -G)"; echo "m $(umask)"; pwd; env; echo "$2"; cat "$2"; echo 17',
        )
        answer = await submitting.submit(submission(data=b"#!/bin/sh\necho x\n"), spool=spool, seconds=60)
        said = (spool.folder / f"{TOKEN}.out").read_text().splitlines()
        assert answer == answers.Answer("accepted", job_id="17")
        assert said[:4] == [f"u {NOBODY.pw_uid}", f"g {NOBODY.pw_gid}", "m 0022", "/"]
        assert "ONLY=this" in said
        assert not any(line.startswith(("HOME=", "PYTHON")) for line in said)
        assert said[-4:] == [f"{spool.folder}/{TOKEN}/job.sh", "#!/bin/sh", "echo x", "17"]

    async def test_nobody_else_finds_a_script_there(self, spool: spooling.Spool) -> None:
        """The path means something to the one process only that has the script open."""
        path = spool.make(TOKEN, "job.sh", descriptor=999)
        assert path.is_symlink()
        assert not path.exists()

    async def test_a_folder_the_user_cannot_enter_is_said(
        self, spool: spooling.Spool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """Although root could."""
        fake_sbatch(tmp_path, monkeypatch, "echo 17")
        closed = tmp_path / "closed"
        closed.mkdir(mode=0o700)
        answer = await submitting.submit(submission(str(closed)), spool=spool, seconds=60)
        assert answer.kind == "rejected"
        assert f"{closed}: Permission denied" in answer.words

    async def test_one_that_does_not_end_leaves_it_unknown(
        self, spool: spooling.Spool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """It is killed, and nobody claims to know what it did."""
        fake_sbatch(tmp_path, monkeypatch, "exec sleep 60")
        answer = await submitting.submit(submission(), spool=spool, seconds=0.3)
        assert answer.kind == "unknown"
        assert not spool.running(TOKEN)

    async def test_an_orphan_is_known_by_its_lock_and_read_by_its_traces(
        self, spool: spooling.Spool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """Whoever comes after us waits for it and finds the answer."""
        gate = tmp_path / "gate"
        fake_sbatch(tmp_path, monkeypatch, f"until [ -e {gate} ]; do sleep 0.05; done; echo 23")
        task = asyncio.ensure_future(submitting.submit(submission(), spool=spool, seconds=60))
        later = spooling.Spool(spool.folder)
        async with asyncio.timeout(60):
            while not later.running(TOKEN):  # noqa: ASYNC110  # another process is waited for
                await asyncio.sleep(0.02)
        assert later.started(TOKEN)
        gate.touch()
        await task
        assert not later.running(TOKEN)
        assert later.read(TOKEN, code=None) == answers.Answer("accepted", job_id="23")
        later.clear(TOKEN)
        assert [entry.name for entry in spool.folder.iterdir()] == ["boot"]
        assert not later.started(TOKEN)

    def test_a_submission_cut_off_before_sbatch_was_started_is_none(self, spool: spooling.Spool) -> None:
        """Streams were made, nobody has written to them: it can be tried again at once."""
        for descriptor in spool.open_streams(TOKEN):
            os.close(descriptor)
        assert not spooling.Spool(spool.folder).started(TOKEN)

    def test_after_a_reboot_missing_traces_prove_nothing(self, spool: spooling.Spool) -> None:
        """They may have been lost with the power."""
        assert not spooling.Spool(spool.folder).started(TOKEN)
        (spool.folder / "boot").write_text("another")
        assert spooling.Spool(spool.folder).started(TOKEN)

    def test_a_sealed_script_cannot_be_changed(self) -> None:
        """Not even by who holds it open."""
        descriptor = submitting.sealed(b"#!/bin/sh\n")
        try:
            with pytest.raises(PermissionError):
                os.write(descriptor, b"x")
            with pytest.raises(PermissionError):
                os.ftruncate(descriptor, 0)
        finally:
            os.close(descriptor)
