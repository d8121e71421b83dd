"""sbatch as another user: what it gets, and what is left if this process dies meanwhile."""

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

from penstock.journal import database
from penstock.slurm import answers, spools, submissions
from tests.unit.slurmtexts import programs

__all__ = ["programs"]
TOKEN = "0123456789abcdef" * 2
NOBODY = pwd.getpwnam("nobody")
as_root = pytest.mark.skipif(os.geteuid() != 0, reason="only root can become another user")


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
    async def test_sbatch_runs_as_the_user_with_the_script(
        self, spool: spools.Spool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """Uid, groups, environment, folder, umask, and the script's path and content."""
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

    async def test_script_path_works_only_in_sbatch(self, spool: spools.Spool) -> None:
        """The link leads to an open descriptor of the process that reads it."""
        path = spool.make(TOKEN, "job.sh", descriptor=999)
        assert path.is_symlink()
        assert not path.exists()

    async def test_workdir_that_the_user_cannot_enter_is_reported(
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
    async def test_unmounted_home_is_a_passing_refusal(
        self, spool: spools.Spool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, number: int
    ) -> None:
        """With the same message, also if only the traces are left."""
        fake_sbatch(tmp_path, monkeypatch, "echo 17")

        def away(path: str) -> None:
            raise OSError(number, os.strerror(number), path)

        monkeypatch.setattr(os, "chdir", away)
        answer = await submissions.submit(submission("/home/alice"), spool=spool, seconds=60)
        words = f"{answers.NO_WORKDIR} /home/alice: {os.strerror(number)}"
        assert answer == answers.Answer("rejected", words=words, passing=True)
        assert spool.read(TOKEN, code=None) == answer

    async def test_hanging_home_blocks_only_its_own_file(
        self, spool: spools.Spool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """The intake continues; killed and restarted, it can take its lock."""
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
        """Not an unknown result."""
        fake_sbatch(tmp_path, monkeypatch, "echo 17").chmod(0o700)
        with pytest.raises(PermissionError):
            await submissions.submit(submission(), spool=spool, seconds=60)

    async def test_a_full_disk_under_the_traces_is_an_error_of_this_host(
        self, spool: spools.Spool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """sbatch is not started if that could not be recorded."""
        started = tmp_path / "started"
        fake_sbatch(tmp_path, monkeypatch, f"touch {started}; echo 17")
        real = spool._open

        def full(name: str) -> int:
            return os.open("/dev/full", os.O_RDWR) if name.endswith(".err") else real(name)

        monkeypatch.setattr(spool, "_open", full)
        with pytest.raises(OSError, match="no room"):
            await submissions.submit(submission(), spool=spool, seconds=60)
        assert not started.exists()

    async def test_failed_trace_leaks_no_descriptor(
        self, spool: spools.Spool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """It is retried while the disk is full."""
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
    async def test_unreadable_answer_is_unknown(
        self, spool: spools.Spool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, text: str
    ) -> None:
        """It must not count as an sbatch that did not run and can be run again."""
        fake_sbatch(tmp_path, monkeypatch, text)

        def broken(name: str) -> str:
            raise OSError(errno.EIO, os.strerror(errno.EIO), name)

        monkeypatch.setattr(spool, "_text", broken)
        answer = await submissions.submit(submission(), spool=spool, seconds=1.0)
        assert answer.kind == "unknown"
        assert answer.words

    async def test_sbatch_that_does_not_end_is_unknown(
        self, spool: spools.Spool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """It is killed; its result is unknown."""
        fake_sbatch(tmp_path, monkeypatch, "exec sleep 60")
        answer = await submissions.submit(submission(), spool=spool, seconds=0.3)
        assert answer.kind == "unknown"
        assert not spool.running(TOKEN)

    async def test_killed_sbatch_wait_is_accepted(
        self, spool: spools.Spool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """`#SBATCH --wait`: it is killed at its deadline, but has printed the job id."""
        fake_sbatch(tmp_path, monkeypatch, "echo 17; exec sleep 60")
        answer = await submissions.submit(submission(), spool=spool, seconds=1.0)
        assert answer == answers.Answer("accepted", job_id="17")

    async def test_orphaned_sbatch_is_found_by_its_lock(
        self, spool: spools.Spool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """A later process waits for it and reads its answer."""
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

    def test_sbatch_outlives_a_stopped_intake(
        self, spool: spools.Spool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """A later process can read its answer."""
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

    async def test_end_of_sbatch_is_seen_without_a_pidfd(
        self, spool: spools.Spool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """It is running already: an error here would mean to run it again."""
        fake_sbatch(tmp_path, monkeypatch, "sleep 0.2; echo 17")

        def none_left(pid: int, flags: int = 0) -> int:
            raise OSError(errno.ENFILE, os.strerror(errno.ENFILE))

        monkeypatch.setattr(os, "pidfd_open", none_left)
        answer = await submissions.submit(submission(), spool=spool, seconds=60)
        assert answer == answers.Answer("accepted", job_id="17")

    async def test_end_of_sbatch_is_seen_without_epoll(
        self, spool: spools.Spool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """The kernel limits how much one user can watch."""
        fake_sbatch(tmp_path, monkeypatch, "sleep 0.2; echo 17")

        def none_left(*watched: object) -> None:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

        monkeypatch.setattr(asyncio.get_running_loop(), "add_reader", none_left)
        before = descriptors()
        answer = await submissions.submit(submission(), spool=spool, seconds=60)
        assert answer == answers.Answer("accepted", job_id="17")
        assert descriptors() == before

    def test_interruption_before_sbatch_is_no_submission(self, spool: spools.Spool) -> None:
        """Streams without content: it can be retried at once."""
        for descriptor in spool.open_streams(TOKEN):
            os.close(descriptor)
        assert not spools.Spool(spool.folder).started(TOKEN)

    def test_after_a_reboot_missing_traces_prove_nothing(self, spool: spools.Spool) -> None:
        """They may have been lost in a power loss."""
        assert not spools.Spool(spool.folder).started(TOKEN)
        (spool.folder / "boot").write_text("another")
        assert spools.Spool(spool.folder).started(TOKEN)

    def test_doubt_after_a_reboot_survives_a_restart(self, spool: spools.Spool) -> None:
        """Until it is written into the traces."""
        (spool.folder / "boot").write_text("another")
        for _ in range(3):
            assert spools.Spool(spool.folder).started(TOKEN)
        spools.Spool(spool.folder).keep_doubt([TOKEN])
        later = spools.Spool(spool.folder)
        assert later.read(TOKEN, code=None).kind == "unknown"
        assert later.started(TOKEN)
        assert not later.started("f" * 32)

    @pytest.mark.parametrize(("out", "kind"), [("", "unknown"), ("17\n", "accepted")])
    def test_after_a_reboot_an_error_may_be_of_an_earlier_try(
        self, spool: spools.Spool, out: str, kind: str
    ) -> None:
        """The last traces may be lost; a printed job id is always true."""
        (spool.folder / f"{TOKEN}.out").write_text(out)
        (spool.folder / f"{TOKEN}.err").write_text("sbatch: error: QOSMaxSubmitJobPerUserLimit\n")
        (spool.folder / "boot").write_text("another")
        spools.Spool(spool.folder).keep_doubt([TOKEN])
        assert spools.Spool(spool.folder).read(TOKEN, code=None).kind == kind

    async def test_submission_in_doubt_can_be_repeated(
        self, spool: spools.Spool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """If Slurm does not know it; the mark of doubt does not interfere."""
        fake_sbatch(tmp_path, monkeypatch, "echo 17")
        (spool.folder / "boot").write_text("another")
        later = spools.Spool(spool.folder)
        later.keep_doubt([TOKEN])
        answer = await submissions.submit(submission(), spool=later, seconds=60)
        assert answer == answers.Answer("accepted", job_id="17")

    def test_a_sealed_script_cannot_be_changed(self) -> None:
        """Not even by the process that has it open."""
        descriptor = submissions.sealed(b"#!/bin/sh\n")
        try:
            with pytest.raises(PermissionError):
                os.write(descriptor, b"x")
            with pytest.raises(PermissionError):
                os.ftruncate(descriptor, 0)
        finally:
            os.close(descriptor)
