"""Exactly once: crashes at every point, lost answers, several intakes, many files."""

from __future__ import annotations

import asyncio
import collections
import errno
import os
from pathlib import Path
from typing import Any

import pytest

from penstock.intake import claims, inspection
from penstock.nas import dropfolder, renames
from penstock.slurm import answers
from tests.unit import intakes
from tests.unit.intakes import harness, nas

__all__ = ["nas"]  # pytest finds the fixture by its name

pytestmark = pytest.mark.skipif(os.geteuid() != 0, reason="only root can give files away")
FILES = ("a.sh", "b.sh", "c.sh")


class TestCrashes:
    @pytest.mark.parametrize("traceless", [False, True])
    async def test_crash_at_any_point_submits_each_file_once(
        self, nas: Path, monkeypatch: pytest.MonkeyPatch, traceless: bool
    ) -> None:
        """Before and after every rename, journal write and sbatch; also if sbatch is killed too."""
        real = renames.move
        faults = intakes.Faults()

        def move(source: renames.Spot, target: renames.Spot, *, inode: int = 0) -> bool:
            faults.point()
            done = real(source, target, inode=inode)
            faults.point()
            return done

        monkeypatch.setattr(renames, "move", move)
        point = 0
        while True:
            folder = nas / str(point)
            folder.mkdir()
            faults.crash_at, faults.passed = point, 0
            slurm = intakes.FakeSlurm(faults, traceless=traceless)
            here = harness(folder, slurm, name="state")
            for number, name in enumerate(FILES):
                intakes.drop(folder, name, uid=intakes.USERS[number])
            await here.settle()
            intakes.assert_once(folder, slurm, FILES)
            assert here.clerk.journal.open() == []
            here.connection.close()
            if faults.passed <= point:
                break
            point += 1
        assert point > 30

    async def test_lost_journal_is_recovered_from_slurm(self, nas: Path) -> None:
        """The name of a claimed file contains its token."""
        slurm = intakes.FakeSlurm(intakes.Faults(), traceless=True)
        first = harness(nas, slurm)
        intakes.drop(nas, "a.sh")
        for _ in range(3):
            await first.look()
        assert len(slurm.jobs) == 1
        second = harness(nas, slurm, name="other")
        second.instance = first.instance
        await second.settle()
        intakes.assert_once(nas, slurm, ("a.sh",))

    async def test_sbatch_that_outlives_intake_is_awaited(self, nas: Path) -> None:
        """Its answer counts, however late."""
        slurm = intakes.FakeSlurm(intakes.Faults())
        here = harness(nas, slurm)
        intakes.drop(nas, "a.sh")
        await here.look()
        await here.look()
        (token,) = here.clerk.claims
        slurm.under_way.add(token)
        answer, slurm.traces[token] = slurm.traces[token], answers.Answer("unknown")
        here.start()
        for _ in range(30):
            await here.look()
        assert len(slurm.jobs) == 1
        assert list(intakes.filed(nas, "processed")) == []
        slurm.under_way.clear()
        slurm.traces[token] = answer
        await here.settle()
        intakes.assert_once(nas, slurm, ("a.sh",))

    async def test_adopted_files_are_searched_in_slurm(self, nas: Path) -> None:
        """One was submitted, the other was not: each becomes one job."""
        slurm = intakes.FakeSlurm(intakes.Faults(), traceless=True)
        lost, heir = harness(nas, slurm, name="lost"), harness(nas, slurm, name="heir")
        intakes.drop(nas, "a.sh")
        await lost.look()
        await lost.look()
        await lost.die()
        assert len(slurm.jobs) == 1
        intakes.drop(nas, "b.sh")
        with dropfolder.opened(nas, instance=lost.instance, marker=lost.marker) as folder:
            lost.clerk.scan(folder, frozenset())
            lost.clock.time += 2
            lost.clerk.scan(folder, frozenset())
            (watched,) = lost.clerk.tracker.ready(lost.clock.now())
            assert claims.take(folder, watched.info, instance=lost.instance, cut_short=False)
        slurm.traces.clear()
        with dropfolder.opened(nas, instance=heir.instance, marker=heir.marker) as folder:
            assert claims.other_instances(folder, heir.instance) == {lost.instance: 2}
            assert claims.adopt(folder, lost.instance) == 2
            assert claims.other_instances(folder, heir.instance) == {}
        await heir.settle()
        intakes.assert_once(nas, slurm, ("a.sh", "b.sh"))
        assert slurm.asked


class TestSeveral:
    async def test_two_intakes_on_one_nas_submit_each_file_once(self, nas: Path) -> None:
        """Only one intake wins each rename, and each moves its own claims away."""
        slurm = intakes.FakeSlurm(intakes.Faults())
        one, two = harness(nas, slurm, name="one"), harness(nas, slurm, name="two")
        names = tuple(f"{number}.sh" for number in range(40))
        for number, name in enumerate(names):
            intakes.drop(nas, name, uid=intakes.USERS[number % 3])
        for _ in range(40):
            await one.look()
            await two.look()
        intakes.assert_once(nas, slurm, names)
        states = collections.Counter(clerk.clerk.journal.latest(99)[0].state for clerk in (one, two))
        assert states == {"processed": 2}

    async def test_file_listed_by_two_intakes_is_claimed_once(
        self, nas: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """The rename of the second fails."""
        slurm = intakes.FakeSlurm(intakes.Faults())
        one, two = harness(nas, slurm, name="one"), harness(nas, slurm, name="two")
        intakes.drop(nas, "a.sh")
        await one.look()
        await two.look()
        real = two.clerk.advance
        monkeypatch.setattr(two.clerk, "advance", lambda folder: None)
        await two.look()
        monkeypatch.setattr(two.clerk, "advance", real)
        await one.settle()
        with dropfolder.opened(nas, instance=two.instance, marker=two.marker) as folder:
            two.clerk.advance(folder)
        intakes.assert_once(nas, slurm, ("a.sh",))
        assert two.clerk.claims == {}

    async def test_many_files_of_one_user_do_not_starve_others(self, nas: Path) -> None:
        """Another user's single file is among the first to be submitted."""
        slurm = intakes.FakeSlurm(intakes.Faults())
        here = harness(nas, slurm)
        for number in range(10_000):
            (nas / "submit" / f"{number}.sh").write_text(intakes.SCRIPT)
            os.chown(nas / "submit" / f"{number}.sh", intakes.USERS[0], -1)
        await here.look()
        intakes.drop(nas, "mine.sh", uid=intakes.USERS[1])
        for _ in range(5):
            await here.look()
        assert "mine.sh" in [job.name for job in slurm.jobs][: 4 * here.site.in_flight]

    async def test_same_name_twice_overwrites_nothing(self, nas: Path) -> None:
        """Files of two users, or a second try, get distinct names in failed/."""
        here = harness(nas)
        for uid in (intakes.USERS[0], intakes.USERS[1], intakes.USERS[0]):
            intakes.drop(nas, "a.sh", uid=uid, text=f"#!/bin/sh\n#SBATCH --nonsense\n# {uid}\n")
            await here.settle()
        assert sorted(intakes.filed(nas, "failed")) == [
            "a.sh", "a.sh.2", "a.sh.2.error.txt", "a.sh.3", "a.sh.3.error.txt", "a.sh.error.txt",
        ]  # fmt: skip


class TestTroubles:
    async def test_file_replaced_before_claim_is_submitted_with_new_content(self, nas: Path) -> None:
        """The claimed file is compared with the one that settled."""
        slurm = intakes.FakeSlurm(intakes.Faults())
        here = harness(nas, slurm)
        intakes.drop(nas, "a.sh")
        await here.look(step=0.6)
        await here.look(step=0.6)
        with dropfolder.opened(nas, instance=here.instance, marker=here.marker) as folder:
            here.clerk.scan(folder, frozenset())
            intakes.drop(nas, "new", text="#!/bin/sh\necho new\n").rename(nas / "submit" / "a.sh")
            here.clerk.advance(folder)
        assert slurm.jobs == []
        await here.settle()
        assert [job.data for job in slurm.jobs] == [b"#!/bin/sh\necho new\n"]

    async def test_file_deleted_before_claim_is_dropped(self, nas: Path) -> None:
        """No job, no error text."""
        slurm = intakes.FakeSlurm(intakes.Faults())
        here = harness(nas, slurm)
        path = intakes.drop(nas, "a.sh")
        await here.look(step=2)
        with dropfolder.opened(nas, instance=here.instance, marker=here.marker) as folder:
            here.clerk.scan(folder, frozenset())
            path.unlink()
            here.clerk.advance(folder)
        await here.settle()
        assert slurm.jobs == []
        assert list(intakes.filed(nas, "failed")) == []

    async def test_unwritable_processed_folder_delays_the_move(
        self, nas: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """After sbatch the job is in the journal; the file is moved when that is possible again."""
        slurm = intakes.FakeSlurm(intakes.Faults())
        here = harness(nas, slurm)
        intakes.drop(nas, "a.sh")
        await here.look()
        await here.look()
        assert len(slurm.jobs) == 1

        def full(*words: object, **places: object) -> None:
            raise OSError(errno.ENOSPC, "No space left on device")

        monkeypatch.setattr(os, "mkdir", full)
        for _ in range(5):
            await here.look()
        (claim,) = here.clerk.claims.values()
        assert "No space left" in claim.words
        monkeypatch.undo()
        here.start()
        await here.settle()
        intakes.assert_once(nas, slurm, ("a.sh",))

    async def test_file_written_to_full_nas_is_refused(
        self, nas: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """With the reason; a truncated script never runs."""
        slurm = intakes.FakeSlurm(intakes.Faults())
        here = harness(nas, slurm)
        monkeypatch.setattr(dropfolder, "is_full", lambda folder: True)
        intakes.drop(nas, "a.sh")
        await here.look()
        monkeypatch.undo()
        await here.settle()
        assert slurm.jobs == []
        assert "NAS was full" in intakes.letter(nas)[0]

    async def test_unreadable_file_does_not_delay_others(
        self, nas: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """It is submitted once it can be read."""
        slurm = intakes.FakeSlurm(intakes.Faults())
        here = harness(nas, slurm)
        real = inspection.inspect

        def broken(spot: renames.Spot, *, name: str, **more: Any) -> inspection.Found:
            if name == "bad.sh":
                raise OSError(errno.EIO, "Input/output error")
            return real(spot, name=name, **more)

        monkeypatch.setattr(inspection, "inspect", broken)
        intakes.drop(nas, "bad.sh")
        await here.look()
        for number in range(5):
            intakes.drop(nas, f"{number}.sh", uid=intakes.USERS[number % 3])
        for _ in range(20):
            await here.look()
        assert len(slurm.jobs) == 5
        monkeypatch.undo()
        await here.settle()
        assert len(slurm.jobs) == 6

    async def test_unclaimable_file_does_not_delay_others(
        self, nas: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """If no file can be claimed, the error is raised."""
        slurm = intakes.FakeSlurm(intakes.Faults())
        here = harness(nas, slurm)
        real, stuck = renames.move, {"bad.sh"}

        def busy(source: renames.Spot, target: renames.Spot, *, inode: int = 0) -> bool:
            if source.name in stuck:
                raise OSError(errno.EROFS, "Read-only file system")
            return real(source, target, inode=inode)

        monkeypatch.setattr(renames, "move", busy)
        intakes.drop(nas, "bad.sh")
        intakes.drop(nas, "good.sh")
        await here.look()
        await here.look()
        assert [job.name for job in slurm.jobs] == ["good.sh"]
        with pytest.raises(OSError, match="Read-only"):
            await here.look()
        stuck.clear()
        await here.settle()
        assert len(slurm.jobs) == 2

    async def test_user_folder_replaced_by_link_does_not_delay_others(self, nas: Path) -> None:
        """A user cannot make the NAS look unmounted."""
        slurm = intakes.FakeSlurm(intakes.Faults())
        here = harness(nas, slurm, user_folders=True)
        own = nas / "submit" / "nobody"
        own.mkdir()
        os.chown(own, intakes.USERS[0], -1)
        intakes.drop(nas, "nobody/own.sh", uid=intakes.USERS[0])
        intakes.drop(nas, "other.sh", uid=intakes.USERS[1])
        await here.look(step=2.0)
        with dropfolder.opened(nas, instance=here.instance, marker=here.marker) as folder:
            here.clerk.scan(folder, frozenset())
            own.rename(nas / "submit" / "aside")
            own.symlink_to("aside")
            here.clerk.advance(folder)
        await asyncio.sleep(0)
        assert [job.name for job in slurm.jobs] == ["other.sh"]

    async def test_done_marker_completes_file_and_is_removed(self, nas: Path) -> None:
        """The settle time is skipped."""
        slurm = intakes.FakeSlurm(intakes.Faults())
        here = harness(nas, slurm, settle_seconds=1000.0)
        intakes.drop(nas, "a.sh")
        intakes.drop(nas, "a.sh.done", text="")
        await here.settle(looks=10)
        intakes.assert_once(nas, slurm, ("a.sh",))
        assert list((nas / "submit").iterdir()) == []

    async def test_late_marker_does_not_complete_next_upload(self, nas: Path) -> None:
        """The next file of that name has to settle; the marker is removed with it."""
        slurm = intakes.FakeSlurm(intakes.Faults())
        here = harness(nas, slurm)
        intakes.drop(nas, "a.sh")
        await here.settle()
        marker = intakes.drop(nas, "a.sh.done", text="")
        await here.look()
        intakes.after(marker, lambda: intakes.drop(nas, "a.sh", text="#!/bin/sh\nrm -rf $PWD"))
        for _ in range(3):
            await here.look(step=0.05)
        assert len(slurm.jobs) == 1
        intakes.after(nas / "submit" / "a.sh", lambda: intakes.drop(nas, "a.sh", text="#!/bin/sh\ndate\n"))
        await here.settle()
        assert [job.data for job in slurm.jobs[1:]] == [b"#!/bin/sh\ndate\n"]
        assert list((nas / "submit").iterdir()) == []

    async def test_reused_inode_does_not_complete_file(self, nas: Path) -> None:
        """Also if the next file gets the inode of the removed one."""
        slurm = intakes.FakeSlurm(intakes.Faults())
        here = harness(nas, slurm)
        part = intakes.drop(nas, "a.sh.part", text="#!/bin/sh\n")
        await here.look(step=0.05)
        part.rename(nas / "submit" / "a.sh")  # the same inode for certain
        intakes.drop(nas, "a.sh", text="#!/bin/sh\nrm -rf $PWD")
        for _ in range(3):
            await here.look(step=0.05)
        assert slurm.jobs == []

    async def test_marker_of_other_user_is_ignored(self, nas: Path) -> None:
        """It neither completes the file nor is it removed."""
        slurm = intakes.FakeSlurm(intakes.Faults())
        here = harness(nas, slurm)
        intakes.drop(nas, "a.sh", uid=intakes.USERS[0])
        intakes.drop(nas, "a.sh.done", uid=intakes.USERS[1], text="")
        for _ in range(6):
            await here.look()
        assert len(slurm.jobs) == 1
        assert [path.name for path in (nas / "submit").iterdir()] == ["a.sh.done"]

    async def test_retry_interval_is_bounded(self, nas: Path) -> None:
        """After any number of refusals the next try comes within about a minute."""
        full = answers.Answer("later", words="QOSMaxSubmitJobPerUserLimit")
        slurm = intakes.FakeSlurm(intakes.Faults(), saying=[full] * 10)
        here = harness(nas, slurm)
        intakes.drop(nas, "a.sh")
        here.clerk.refusals[intakes.USERS[0]] = 5000
        await here.settle(looks=2000)
        assert len(slurm.jobs) == 1

    async def test_file_in_other_users_folder_is_refused(self, nas: Path) -> None:
        """A file in the owner's folder is accepted."""
        slurm = intakes.FakeSlurm(intakes.Faults())
        here = harness(nas, slurm, user_folders=True)
        own = nas / "submit" / "nobody"
        own.mkdir()
        os.chown(own, intakes.USERS[0], -1)
        intakes.drop(nas, "nobody/own.sh", uid=intakes.USERS[0])
        intakes.drop(nas, "nobody/other.sh", uid=intakes.USERS[1])
        for _ in range(10):
            await here.look()
        assert [job.name for job in slurm.jobs] == ["own.sh"]
        assert "another user's folder" in intakes.letter(nas)[0]
