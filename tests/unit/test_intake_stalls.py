"""A NAS that answers late or wrongly, a host that stands still, a kill in between: each file is one job."""

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
from tests.unit.intakes import desk, nas

__all__ = ["nas"]  # pytest finds the fixture by its name

pytestmark = pytest.mark.skipif(os.geteuid() != 0, reason="only root can give files away")


class TestKilled:
    async def test_a_claimed_file_that_is_still_being_written_is_waited_for_by_the_next_one(
        self, nas: Path
    ) -> None:
        """A writer that had paused goes on after the claim; the intake that had seen it was killed."""
        here = desk(nas)
        written = intakes.drop(nas, "a.sh")
        with written.open("a", buffering=1) as stream:
            written.rename(nas / ".work" / here.instance / f"{here.instance:0<32}.-.a.sh")
            for _ in range(3):
                await here.look(step=0.6)
                stream.write("true\n")
        await here.settle()
        intakes.assert_once(nas, here.slurm, ("a.sh",))
        assert here.slurm.jobs[0].data.decode() == intakes.SCRIPT + 3 * "true\n"

    async def test_a_file_that_may_be_cut_short_is_one_also_for_the_next_intake(
        self, nas: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """Copied while the NAS was full, claimed, and then the intake is killed; there is room again."""
        here = desk(nas)
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
    async def test_a_file_that_was_claimed_although_the_nas_said_no_is_not_forgotten(
        self, nas: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """A soft mount gives up, its server does not, and where the file is can be seen later only."""
        here = desk(nas)
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
    async def test_an_old_answer_does_not_prove_that_slurm_never_had_it(self, nas: Path) -> None:
        """Slurm is slow to tell; the host stands still while the second answer waits to be read."""
        slurm = intakes.FakeSlurm(intakes.Faults(), traceless=True, blind=2)
        here = desk(nas, slurm)
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
    """An entry of a folder whose inode the NAS cannot read."""

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

    async def test_a_file_that_cannot_be_looked_at_holds_up_nobody_elses(
        self, nas: Path, caplog: pytest.LogCaptureFixture
    ) -> None:
        """It is said once, and it is taken when it can be read again."""
        here = desk(nas)
        for name in ("broken.sh", ".hidden", "a.sh"):
            intakes.drop(nas, name)
        for _ in range(6):
            await here.look()
        assert [job.name for job in here.slurm.jobs] == ["a.sh"]
        assert caplog.text.count("'broken.sh' cannot be looked at: Stale file handle") == 1
        self.broken = set()
        (nas / "submit" / ".hidden").unlink()
        await here.settle()
        intakes.assert_once(nas, here.slurm, ("a.sh", "broken.sh"))

    async def test_what_is_known_of_a_file_is_not_forgotten_with_one_bad_look(
        self, nas: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """It was written while the NAS was full: it is still one that may be cut short."""
        here = desk(nas)
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
    async def test_a_claimed_file_that_cannot_be_looked_at_holds_up_nobody_elses(
        self, nas: Path, monkeypatch: pytest.MonkeyPatch, boots: bool
    ) -> None:
        """After a restart it is not taken for one that is gone, nor for one that was never submitted."""
        monkeypatch.setattr(claims, "LONGEST_WAIT", 5.0)
        spool, boot = nas.parent / "spool", nas.parent / "boot_id"
        boot.write_text("1")
        monkeypatch.setattr(spools, "BOOT_ID", boot)
        slurm = intakes.FakeSlurm(intakes.Faults(), spool=spools.Spool(spool))
        here = desk(nas, slurm)
        intakes.drop(nas, "b.sh")
        while not slurm.jobs:
            await here.look(step=0.6)
        await here.die()
        (work,) = (nas / ".work" / here.instance).iterdir()
        if boots:  # which takes the traces along, and the journal's last entry
            (entry,) = here.clerk.journal.open()
            here.clerk.journal.put(msgspec.structs.replace(entry, state=entries.WAITING))
            boot.write_text("2")
            slurm.spool = spools.Spool(spool)
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
    async def test_nothing_is_submitted_before_its_claim_has_reached_the_disk(
        self, nas: Path, monkeypatch: pytest.MonkeyPatch, failing: str
    ) -> None:
        """Else a power cut of the NAS would lay it into submit/ again, to become a second job."""
        here = desk(nas)
        intakes.drop(nas, "a.sh")
        sync, drop_marker, troubles = os.fsync, claims.drop_marker, [OSError(errno.EIO, "Input/output error")]
        synced: list[int] = []

        def fsync(descriptor: int) -> None:
            if failing == "sync" and troubles:
                raise troubles.pop()
            sync(descriptor)
            synced.append(len(here.slurm.jobs))

        def drop(folder: dropfolder.Folder, sight: listing.Sight) -> None:
            if failing == "marker" and troubles:
                raise troubles.pop()
            drop_marker(folder, sight)

        monkeypatch.setattr(os, "fsync", fsync)
        monkeypatch.setattr(claims, "drop_marker", drop)
        await here.look()
        with contextlib.suppress(OSError):
            await here.look()
        while not here.slurm.jobs:
            await here.look()
        assert synced[:2] == [0, 0]

    async def test_nor_before_it_has_left_its_users_folder_there(
        self, nas: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """The folder that it was taken from is one of the two that a rename changes."""
        here = desk(nas, user_folders=True)
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


async def test_an_sbatch_that_waits_for_its_job_does_not_keep_the_next_intake_waiting(nas: Path) -> None:
    """`#SBATCH --wait`, and a restart: it has named the job, and its end may be days away."""
    here = desk(nas)
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
