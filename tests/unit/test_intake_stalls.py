"""A NAS that answers late or wrongly, a host that stalls, a crash in between: each file becomes one job."""

from __future__ import annotations

import contextlib
import errno
import os
from pathlib import Path
from typing import Any

import msgspec
import pytest

from penstock.intake import claims, inspection
from penstock.journal import entries
from penstock.nas import dropfolder, listing
from penstock.slurm import spools
from tests.unit import intakes
from tests.unit.intakes import harness, nas

__all__ = ["nas"]  # pytest finds the fixture by its name

pytestmark = pytest.mark.skipif(os.geteuid() != 0, reason="only root can give files away")


class TestKilled:
    async def test_claimed_file_still_being_written_has_to_settle_after_restart(self, nas: Path) -> None:
        """The writer paused and went on after the claim; the intake that had seen it was killed."""
        here = harness(nas)
        written = intakes.drop(nas, "a.sh")
        with written.open("a", buffering=1) as stream:
            written.rename(nas / ".work" / here.instance / f"{here.instance:0<32}.-.a.sh")
            for _ in range(3):
                await here.look(step=0.6)
                stream.write("true\n")
        await here.settle()
        intakes.assert_once(nas, here.slurm, ("a.sh",))
        assert here.slurm.jobs[0].data.decode() == intakes.SCRIPT + 3 * "true\n"

    async def test_truncated_mark_survives_restart(self, nas: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        """Copied while the NAS was full and claimed before a crash; the NAS has room again."""
        here = harness(nas)
        intakes.drop(nas, "a.sh")
        monkeypatch.setattr(dropfolder, "is_full", lambda folder: True)
        await here.look()
        monkeypatch.setattr(dropfolder, "is_full", lambda folder: False)

        def killed(*_: object, **__: object) -> None:
            raise intakes.Crash

        with monkeypatch.context() as patch:
            patch.setattr(inspection, "inspect", killed)
            with pytest.raises(intakes.Crash):
                await here.look()
        assert [claim.name for claim in here.clerk.claims.values()] == ["a.sh"]
        here.start()
        await here.settle()
        assert here.slurm.jobs == []
        assert "while the NAS was full" in intakes.letter(nas)[0]
        assert sorted(intakes.filed(nas, "failed")) == ["a.sh", "a.sh.error.txt"]


class TestLateAnswers:
    async def test_claim_whose_rename_timed_out_is_found(
        self, nas: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """A soft mount gives up, its server completes the rename, and lstat works only later."""
        here = harness(nas)
        intakes.drop(nas, "a.sh")
        rename, stat = os.rename, os.stat
        answered: list[str] = []

        def late(source: str, target: str, **directories: Any) -> None:
            rename(source, target, **directories)
            if not answered:
                answered.append(source)
                monkeypatch.setattr(os, "stat", away)
                raise TimeoutError(errno.ETIMEDOUT, "Connection timed out")

        def away(path: Any, **choices: Any) -> os.stat_result:
            if isinstance(path, str) and choices.get("dir_fd"):
                raise TimeoutError(errno.ETIMEDOUT, "Connection timed out")
            return stat(path, **choices)

        monkeypatch.setattr(os, "rename", late)
        await here.look()
        with pytest.raises(TimeoutError):
            await here.look()
        monkeypatch.setattr(os, "stat", stat)
        for _ in range(10):
            await here.look()
        assert answered == ["a.sh"]
        intakes.assert_once(nas, here.slurm, ("a.sh",))


class TestStandstill:
    async def test_age_of_answer_counts_from_question(self, nas: Path) -> None:
        """Slurm is slow to list the job, and the host stalls before the second answer is read."""
        slurm = intakes.FakeSlurm(intakes.Faults(), traceless=True, blind=2)
        here = harness(nas, slurm)
        intakes.drop(nas, "a.sh")
        await here.look()
        await here.look()
        await here.die()
        here.start()
        while slurm.asked < 2:
            await here.look()
        here.clock.time += 10 * here.site.uncertain_seconds
        await here.settle()
        intakes.assert_once(nas, slurm, ("a.sh",))


class Broken:
    """A directory entry whose inode the NAS cannot read."""

    def __init__(self, entry: os.DirEntry[str]) -> None:
        self.name = entry.name

    def is_dir(self, *, follow_symlinks: bool) -> bool:
        return follow_symlinks

    def stat(self, *, follow_symlinks: bool) -> os.stat_result:
        raise OSError(errno.ESTALE, os.strerror(errno.ESTALE))


class TestOneBrokenFile:
    @pytest.fixture(autouse=True)
    def break_them(self, monkeypatch: pytest.MonkeyPatch) -> None:
        real = os.scandir

        def scandir(folder: Any) -> Any:
            if not isinstance(folder, int):
                return real(folder)
            return (Broken(entry) if entry.name in self.broken else entry for entry in real(folder))

        self.broken = {"broken.sh", ".hidden"}
        monkeypatch.setattr(os, "scandir", scandir)

    async def test_unreadable_entry_does_not_delay_others(
        self, nas: Path, caplog: pytest.LogCaptureFixture
    ) -> None:
        """It is logged once, and submitted once it can be read."""
        here = harness(nas)
        for name in ("broken.sh", ".hidden", "a.sh"):
            intakes.drop(nas, name)
        for _ in range(6):
            await here.look()
        assert [job.name for job in here.slurm.jobs] == ["a.sh"]
        assert caplog.text.count("'broken.sh' cannot be read: Stale file handle") == 1
        self.broken = set()
        (nas / "submit" / ".hidden").unlink()
        await here.settle()
        intakes.assert_once(nas, here.slurm, ("a.sh", "broken.sh"))

    async def test_failed_scan_keeps_state_of_file(self, nas: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        """It was written while the NAS was full, so it may still be truncated."""
        here = harness(nas)
        self.broken = set()
        intakes.drop(nas, "broken.sh")
        intakes.drop(nas, ".other.sh")
        monkeypatch.setattr(dropfolder, "is_full", lambda folder: True)
        await here.look(step=0.4)
        monkeypatch.setattr(dropfolder, "is_full", lambda folder: False)
        self.broken = {"broken.sh"}
        await here.look(step=0.1)
        self.broken = set()
        (nas / "submit" / ".other.sh").unlink()
        await here.settle()
        assert here.slurm.jobs == []
        assert "while the NAS was full" in intakes.letter(nas)[0]

    @pytest.mark.parametrize("boots", [False, True])
    async def test_unreadable_claim_does_not_delay_others(
        self, nas: Path, monkeypatch: pytest.MonkeyPatch, boots: bool
    ) -> None:
        """After a restart it counts neither as removed nor as never submitted."""
        monkeypatch.setattr(claims, "LONGEST_WAIT", 5.0)
        spool, boot = nas.parent / "spool", nas.parent / "boot_id"
        boot.write_text("1")
        monkeypatch.setattr(spools, "BOOT_ID", boot)
        slurm = intakes.FakeSlurm(intakes.Faults(), real_spool=spools.Spool(spool))
        here = harness(nas, slurm)
        intakes.drop(nas, "b.sh")
        while not slurm.jobs:
            await here.look(step=0.6)
        await here.die()
        (work,) = (nas / ".work" / here.instance).iterdir()
        if boots:  # which takes the traces along, and the journal's last entry
            (entry,) = here.clerk.journal.open()
            here.clerk.journal.put(msgspec.structs.replace(entry, state=entries.WAITING))
            boot.write_text("2")
            slurm.real_spool = spools.Spool(spool)
        else:
            (spool / f"{slurm.jobs[0].token}.err").write_bytes(spools.BEGUN)
        self.broken = {work.name}
        here.start()
        intakes.drop(nas, "a.sh")
        for _ in range(20):
            await here.look()
        assert [job.name for job in slurm.jobs] == ["b.sh", "a.sh"]
        self.broken = set()
        await here.settle()
        intakes.assert_once(nas, slurm, ("a.sh", "b.sh"))


class TestPowerCuts:
    @pytest.mark.parametrize("failing", ["marker", "sync"])
    async def test_claim_is_synced_before_submission(
        self, nas: Path, monkeypatch: pytest.MonkeyPatch, failing: str
    ) -> None:
        """Otherwise a power cut of the NAS would restore the file in submit/ and make a second job."""
        here = harness(nas)
        intakes.drop(nas, "a.sh")
        sync, drop_marker, troubles = os.fsync, claims.drop_marker, [OSError(errno.EIO, "Input/output error")]
        synced: list[int] = []

        def fsync(descriptor: int) -> None:
            if failing == "sync" and troubles:
                raise troubles.pop()
            sync(descriptor)
            synced.append(len(here.slurm.jobs))

        def drop(folder: dropfolder.Folder, info: listing.FileInfo) -> None:
            if failing == "marker" and troubles:
                raise troubles.pop()
            drop_marker(folder, info)

        monkeypatch.setattr(os, "fsync", fsync)
        monkeypatch.setattr(claims, "drop_marker", drop)
        await here.look()
        with contextlib.suppress(OSError):
            await here.look()
        while not here.slurm.jobs:
            await here.look()
        assert synced[:2] == [0, 0]

    async def test_user_folder_is_synced_before_submission(
        self, nas: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """A rename changes the source folder, too."""
        here = harness(nas, user_folders=True)
        own = nas / "submit" / "alice"
        own.mkdir()
        os.chown(own, intakes.USERS[0], -1)
        intakes.drop(nas, "alice/a.sh")
        sync, synced = os.fsync, list[int]()

        def fsync(descriptor: int) -> None:
            sync(descriptor)
            if not here.slurm.jobs:
                synced.append(os.fstat(descriptor).st_ino)

        monkeypatch.setattr(os, "fsync", fsync)
        while not here.slurm.jobs:
            await here.look()
        assert own.stat().st_ino in synced


async def test_sbatch_wait_does_not_delay_next_intake(nas: Path) -> None:
    """`#SBATCH --wait`, then a restart: sbatch has printed the job id and may run for days."""
    here = harness(nas)
    intakes.drop(nas, "a.sh")
    await here.look()
    await here.look()
    here.slurm.under_way = set(here.clerk.claims)
    await here.die()
    here.start()
    for _ in range(5):
        await here.look()
    assert here.slurm.under_way
    intakes.assert_once(nas, here.slurm, ("a.sh",))
