"""sbatch as another user: what it is given, what its words mean, and what is left when we die meanwhile."""

from __future__ import annotations

import asyncio
import errno
import os
import pwd
import subprocess
import sys
import time
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.journal import database
from penstock.slurm import answers, spools, submissions, tokensearch
from tests.unit.slurmtexts import Programs, programs

__all__ = ["programs"]
TOKEN = "0123456789abcdef" * 2
FAILED = "sbatch: error: Batch job submission failed: "
RETRYING = "sbatch: error: Slurm temporarily unable to accept job, sleeping and retrying\n"
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
        """Yes, no, not now, and nobody knows are four different things."""
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
        """A partition's name can neither keep a file waiting for ever nor hold up everybody."""
        quoted = f"sbatch: error: invalid partition specified: {evil}\n"
        for err in (quoted + FAILED + "Invalid partition name specified\n", quoted):
            assert answers.understand("", err, code=code).kind == "rejected"

    def test_only_a_slurmctld_out_of_reach_is_everybodys_trouble(self) -> None:
        """A limit is one user's."""
        away = answers.understand(
            "", FAILED + "Unable to contact slurm controller (connect failure)\n", code=1
        )
        limit = "sbatch: error: connect failure\nsbatch: error: QOSMaxSubmitJobPerUserLimit\n"
        assert away.away
        assert not answers.understand("", limit, code=1).away

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


@pytest.fixture
def spool(tmp_path: Path) -> spools.Spool:
    for parent in (tmp_path, *tmp_path.parents[:3]):
        parent.chmod(parent.stat().st_mode | 0o111)
    made = spools.Spool(tmp_path / "spool")
    made.keep_doubt(())
    return made


def fake_sbatch(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, text: str) -> Path:
    """A program of that name, first on the PATH."""
    program = tmp_path / "bin" / "sbatch"
    program.parent.mkdir()
    program.write_text(f"#!/bin/sh\n{text}\n")
    program.chmod(0o755)
    monkeypatch.setenv("PATH", f"{program.parent}:{os.environ['PATH']}")
    return program


ENDING = """
import asyncio, os, pathlib, sys
from penstock.slurm import spools, submissions
folder, token, uid, gid = sys.argv[1:]
async def main():
    if sys.version_info < (3, 12):  # as the intake does
        watcher = asyncio.PidfdChildWatcher()
        watcher.attach_loop(asyncio.get_running_loop())
        asyncio.set_child_watcher(watcher)
    spool = spools.Spool(pathlib.Path(folder))
    groups, environment = (int(gid),), {"PATH": os.environ["PATH"]}
    wanted = submissions.Submission(token, "a.sh", b"#!/bin/sh", int(uid), int(gid), groups, "/", environment)
    task = asyncio.ensure_future(submissions.submit(wanted, spool=spool, seconds=60))
    while not spool.started(token):
        await asyncio.sleep(0.02)
    await asyncio.wait([task], timeout=0.2)
asyncio.run(main())
"""


def submission(workdir: str = "/", data: bytes = b"#!/bin/sh\n") -> submissions.Submission:
    environment = {"PATH": os.environ["PATH"], "ONLY": "this"}
    return submissions.Submission(
        TOKEN, "job.sh", data, NOBODY.pw_uid, NOBODY.pw_gid, (NOBODY.pw_gid,), workdir, environment
    )


@as_root
def descriptors() -> int:
    """How many this process has open."""
    return len(list(Path("/proc/self/fd").iterdir()))


class TestSubmitting:
    async def test_sbatch_gets_the_bytes_as_the_user_and_nothing_of_ours(
        self, spool: spools.Spool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """Uid, groups, environment, folder, umask and the script's path and content."""
        fake_sbatch(
            tmp_path,
            monkeypatch,
            'echo "u $(id -u)"; echo "g $(id -G)"; echo "m $(umask)"; pwd; env; echo "$2"; cat "$2"; echo 17',
        )
        answer = await submissions.submit(submission(data=b"#!/bin/sh\necho x\n"), spool=spool, seconds=60)
        said = (spool.folder / f"{TOKEN}.out").read_text().splitlines()
        assert answer == answers.Answer("accepted", job_id="17")
        assert said[:4] == [f"u {NOBODY.pw_uid}", f"g {NOBODY.pw_gid}", "m 0022", "/"]
        assert "ONLY=this" in said
        assert not any(line.startswith(("HOME=", "PYTHON")) for line in said)
        assert said[-4:] == [f"{spool.folder}/{TOKEN}/job.sh", "#!/bin/sh", "echo x", "17"]

    async def test_nobody_else_finds_a_script_there(self, spool: spools.Spool) -> None:
        """The path means something to the one process only that has the script open."""
        path = spool.make(TOKEN, "job.sh", descriptor=999)
        assert path.is_symlink()
        assert not path.exists()

    async def test_a_folder_the_user_cannot_enter_is_said(
        self, spool: spools.Spool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """Although root could."""
        fake_sbatch(tmp_path, monkeypatch, "echo 17")
        closed = tmp_path / "closed"
        closed.mkdir(mode=0o700)
        answer = await submissions.submit(submission(str(closed)), spool=spool, seconds=60)
        assert answer.kind == "rejected"
        assert f"{closed}: Permission denied" in answer.words
        assert not answer.passing

    @pytest.mark.parametrize("number", [errno.ENOENT, errno.ESTALE, errno.EIO, errno.ENOTCONN])
    async def test_a_home_that_is_not_mounted_may_be_there_soon(
        self, spool: spools.Spool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, number: int
    ) -> None:
        """Said in the same words, and known again by whoever finds only the traces."""
        fake_sbatch(tmp_path, monkeypatch, "echo 17")

        def away(path: str) -> None:
            raise OSError(number, os.strerror(number), path)

        monkeypatch.setattr(os, "chdir", away)
        answer = await submissions.submit(submission("/home/alice"), spool=spool, seconds=60)
        words = f"{answers.NO_WORKDIR} /home/alice: {os.strerror(number)}"
        assert answer == answers.Answer("rejected", words=words, passing=True)
        assert spool.read(TOKEN, code=None) == answer

    async def test_a_home_that_does_not_answer_holds_up_its_own_file_only(
        self, spool: spools.Spool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """The intake goes on meanwhile; killed and started again, it is not kept from its state."""
        fake_sbatch(tmp_path, monkeypatch, "echo 17")
        gate, entered = tmp_path / "gate", tmp_path / "entered"
        entered.touch(mode=0o666)
        entered.chmod(0o666)

        def stall(path: str) -> None:
            end = time.monotonic() + 5
            while time.monotonic() < end and not gate.exists():
                time.sleep(0.02)
            entered.write_text("now")

        monkeypatch.setattr(os, "chdir", stall)
        lock = database.lock(tmp_path)
        task = asyncio.ensure_future(submissions.submit(submission("/home/alice"), spool=spool, seconds=60))
        async with asyncio.timeout(60):
            while not spool.started(TOKEN):  # noqa: ASYNC110  # another process is waited for
                await asyncio.sleep(0.02)
        assert entered.read_text() == ""
        os.close(lock)
        os.close(database.lock(tmp_path))
        assert spool.running(TOKEN)
        gate.touch()
        assert await task == answers.Answer("accepted", job_id="17")
        assert entered.read_text() == "now"

    async def test_an_sbatch_that_the_user_may_not_run_is_an_error_of_this_host(
        self, spool: spools.Spool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """And is no doubt about the file."""
        fake_sbatch(tmp_path, monkeypatch, "echo 17").chmod(0o700)
        with pytest.raises(PermissionError):
            await submissions.submit(submission(), spool=spool, seconds=60)

    async def test_a_full_disk_under_the_traces_is_an_error_of_this_host(
        self, spool: spools.Spool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """sbatch is not started when it could not be known that it was."""
        started = tmp_path / "started"
        fake_sbatch(tmp_path, monkeypatch, f"touch {started}; echo 17")
        real = spool._open

        def full(name: str) -> int:
            return os.open("/dev/full", os.O_RDWR) if name.endswith(".err") else real(name)

        monkeypatch.setattr(spool, "_open", full)
        with pytest.raises(OSError, match="no room"):
            await submissions.submit(submission(), spool=spool, seconds=60)
        assert not started.exists()

    async def test_a_trace_that_cannot_be_made_leaves_nothing_open(
        self, spool: spools.Spool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """It is tried again and again while the disk is full: each time may cost nothing."""
        fake_sbatch(tmp_path, monkeypatch, "echo 17")
        real = spool._open

        def full(name: str) -> int:
            if name.endswith(".err"):
                raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
            return real(name)

        monkeypatch.setattr(spool, "_open", full)
        before = len(list(os.scandir("/proc/self/fd")))
        for _ in range(5):
            with pytest.raises(OSError, match="No space"):
                await submissions.submit(submission(), spool=spool, seconds=60)
        assert len(list(os.scandir("/proc/self/fd"))) == before

    @pytest.mark.parametrize("text", ["echo 17", "echo 17; exec sleep 60"])
    async def test_an_answer_that_cannot_be_read_is_not_known(
        self, spool: spools.Spool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, text: str
    ) -> None:
        """It must not count as an sbatch that could not be run, and that can be run again."""
        fake_sbatch(tmp_path, monkeypatch, text)

        def broken(name: str) -> str:
            raise OSError(errno.EIO, os.strerror(errno.EIO), name)

        monkeypatch.setattr(spool, "_text", broken)
        answer = await submissions.submit(submission(), spool=spool, seconds=1.0)
        assert answer.kind == "unknown"
        assert answer.words

    async def test_one_that_does_not_end_leaves_it_unknown(
        self, spool: spools.Spool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """It is killed, and nobody claims to know what it did."""
        fake_sbatch(tmp_path, monkeypatch, "exec sleep 60")
        answer = await submissions.submit(submission(), spool=spool, seconds=0.3)
        assert answer.kind == "unknown"
        assert not spool.running(TOKEN)

    async def test_one_that_waits_for_its_job_has_made_one(
        self, spool: spools.Spool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """`#SBATCH --wait`: it is killed when its time is over, and the number it has printed counts."""
        fake_sbatch(tmp_path, monkeypatch, "echo 17; exec sleep 60")
        answer = await submissions.submit(submission(), spool=spool, seconds=1.0)
        assert answer == answers.Answer("accepted", job_id="17")

    async def test_an_orphan_is_known_by_its_lock_and_read_by_its_traces(
        self, spool: spools.Spool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """Whoever comes after us waits for it and finds the answer."""
        gate = tmp_path / "gate"
        fake_sbatch(tmp_path, monkeypatch, f"until [ -e {gate} ]; do sleep 0.05; done; echo 23")
        task = asyncio.ensure_future(submissions.submit(submission(), spool=spool, seconds=60))
        later = spools.Spool(spool.folder)
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

    def test_an_sbatch_under_way_outlives_an_intake_that_is_told_to_end(
        self, spool: spools.Spool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """Its answer is there for whoever comes next."""
        gate = tmp_path / "gate"
        fake_sbatch(tmp_path, monkeypatch, f"until [ -e {gate} ]; do sleep 0.05; done; echo 23")
        words = (str(spool.folder), TOKEN, str(NOBODY.pw_uid), str(NOBODY.pw_gid))
        subprocess.run((sys.executable, "-c", ENDING, *words), check=True, timeout=60)
        assert spool.running(TOKEN)
        gate.touch()
        end = time.monotonic() + 60
        while spool.running(TOKEN) and time.monotonic() < end:
            time.sleep(0.02)
        assert spool.read(TOKEN, code=None) == answers.Answer("accepted", job_id="23")

    async def test_the_end_of_sbatch_is_seen_also_when_the_host_has_nothing_left_to_see_it_with(
        self, spool: spools.Spool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """It runs already: to call that an error would be to run it again."""
        fake_sbatch(tmp_path, monkeypatch, "sleep 0.2; echo 17")

        def none_left(pid: int, flags: int = 0) -> int:
            raise OSError(errno.ENFILE, os.strerror(errno.ENFILE))

        monkeypatch.setattr(os, "pidfd_open", none_left)
        answer = await submissions.submit(submission(), spool=spool, seconds=60)
        assert answer == answers.Answer("accepted", job_id="17")

    async def test_the_end_of_sbatch_is_seen_also_when_nothing_more_can_be_waited_for(
        self, spool: spools.Spool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """The kernel bounds what one user watches."""
        fake_sbatch(tmp_path, monkeypatch, "sleep 0.2; echo 17")

        def none_left(*watched: object) -> None:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

        monkeypatch.setattr(asyncio.get_running_loop(), "add_reader", none_left)
        before = descriptors()
        answer = await submissions.submit(submission(), spool=spool, seconds=60)
        assert answer == answers.Answer("accepted", job_id="17")
        assert descriptors() == before

    def test_a_submission_cut_off_before_sbatch_was_started_is_none(self, spool: spools.Spool) -> None:
        """Streams were made, nobody has written to them: it can be tried again at once."""
        for descriptor in spool.open_streams(TOKEN):
            os.close(descriptor)
        assert not spools.Spool(spool.folder).started(TOKEN)

    def test_after_a_reboot_missing_traces_prove_nothing(self, spool: spools.Spool) -> None:
        """They may have been lost with the power."""
        assert not spools.Spool(spool.folder).started(TOKEN)
        (spool.folder / "boot").write_text("another")
        assert spools.Spool(spool.folder).started(TOKEN)

    def test_the_doubt_of_a_reboot_is_not_over_with_the_next_start(self, spool: spools.Spool) -> None:
        """It goes on until somebody has written down what is in doubt, and then it is in the traces."""
        (spool.folder / "boot").write_text("another")
        for _ in range(3):
            assert spools.Spool(spool.folder).started(TOKEN)
        spools.Spool(spool.folder).keep_doubt([TOKEN])
        later = spools.Spool(spool.folder)
        assert later.read(TOKEN, code=None).kind == "unknown"
        assert later.started(TOKEN)
        assert not later.started("f" * 32)

    @pytest.mark.parametrize(("out", "kind"), [("", "unknown"), ("17\n", "accepted")])
    def test_after_a_reboot_a_complaint_may_be_an_earlier_trys(
        self, spool: spools.Spool, out: str, kind: str
    ) -> None:
        """The power may have taken the traces of the last one; a job's number is true whenever it came."""
        (spool.folder / f"{TOKEN}.out").write_text(out)
        (spool.folder / f"{TOKEN}.err").write_text("sbatch: error: QOSMaxSubmitJobPerUserLimit\n")
        (spool.folder / "boot").write_text("another")
        spools.Spool(spool.folder).keep_doubt([TOKEN])
        assert spools.Spool(spool.folder).read(TOKEN, code=None).kind == kind

    async def test_what_was_in_doubt_can_be_submitted(
        self, spool: spools.Spool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """When Slurm does not know it: the mark is in nobody's way."""
        fake_sbatch(tmp_path, monkeypatch, "echo 17")
        (spool.folder / "boot").write_text("another")
        later = spools.Spool(spool.folder)
        later.keep_doubt([TOKEN])
        answer = await submissions.submit(submission(), spool=later, seconds=60)
        assert answer == answers.Answer("accepted", job_id="17")

    def test_a_sealed_script_cannot_be_changed(self) -> None:
        """Not even by who holds it open."""
        descriptor = submissions.sealed(b"#!/bin/sh\n")
        try:
            with pytest.raises(PermissionError):
                os.write(descriptor, b"x")
            with pytest.raises(PermissionError):
                os.ftruncate(descriptor, 0)
        finally:
            os.close(descriptor)
