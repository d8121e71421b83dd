"""Exactly once, whatever happens: crashes at every point, lost answers, several intakes, crowds."""

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
from tests.unit.intakes import desk, nas

__all__ = ["nas"]  # pytest finds the fixture by its name

pytestmark = pytest.mark.skipif(os.geteuid() != 0, reason="only root can give files away")
FILES = ("a.sh", "b.sh", "c.sh")


class TestCrashes:
    @pytest.mark.parametrize("traceless", [False, True])
    async def test_a_crash_at_any_point_loses_nothing_and_doubles_nothing(
        self, nas: Path, monkeypatch: pytest.MonkeyPatch, traceless: bool
    ) -> None:
        """Before and after every rename, write to the journal, and sbatch; also when sbatch dies too."""
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
            here = desk(folder, slurm, name="state")
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

    async def test_a_lost_journal_is_made_up_for_by_slurm(self, nas: Path) -> None:
        """A claimed file carries its token in its name."""
        slurm = intakes.FakeSlurm(intakes.Faults(), traceless=True)
        first = desk(nas, slurm)
        intakes.drop(nas, "a.sh")
        for _ in range(3):
            await first.look()
        assert len(slurm.jobs) == 1
        second = desk(nas, slurm, name="other")
        second.instance = first.instance
        await second.settle()
        intakes.assert_once(nas, slurm, ("a.sh",))

    async def test_an_sbatch_that_outlives_us_is_waited_for(self, nas: Path) -> None:
        """Its answer counts, however long it takes."""
        slurm = intakes.FakeSlurm(intakes.Faults())
        here = desk(nas, slurm)
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

    async def test_files_of_an_intake_that_is_gone_are_adopted_and_looked_up(self, nas: Path) -> None:
        """One was a job already, one was not: each is one in the end."""
        slurm = intakes.FakeSlurm(intakes.Faults(), traceless=True)
        lost, heir = desk(nas, slurm, name="lost"), desk(nas, slurm, name="heir")
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
            assert claims.take(folder, watched.sight, instance=lost.instance, cut_short=False)
        slurm.traces.clear()
        with dropfolder.opened(nas, instance=heir.instance, marker=heir.marker) as folder:
            assert claims.strangers(folder, heir.instance) == {lost.instance: 2}
            assert claims.adopt(folder, lost.instance) == 2
            assert claims.strangers(folder, heir.instance) == {}
        await heir.settle()
        intakes.assert_once(nas, slurm, ("a.sh", "b.sh"))
        assert slurm.asked


class TestSeveral:
    async def test_two_intakes_on_one_nas_do_not_double(self, nas: Path) -> None:
        """Only one of them wins each rename, and each files away its own."""
        slurm = intakes.FakeSlurm(intakes.Faults())
        one, two = desk(nas, slurm, name="one"), desk(nas, slurm, name="two")
        names = tuple(f"{number}.sh" for number in range(40))
        for number, name in enumerate(names):
            intakes.drop(nas, name, uid=intakes.USERS[number % 3])
        for _ in range(40):
            await one.look()
            await two.look()
        intakes.assert_once(nas, slurm, names)
        states = collections.Counter(desk.clerk.journal.latest(99)[0].state for desk in (one, two))
        assert states == {"processed": 2}

    async def test_both_may_have_seen_the_same_file(self, nas: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        """Both lists have it, one rename fails."""
        slurm = intakes.FakeSlurm(intakes.Faults())
        one, two = desk(nas, slurm, name="one"), desk(nas, slurm, name="two")
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

    async def test_ten_thousand_files_of_one_user_starve_nobody(self, nas: Path) -> None:
        """Another's single file is among the first to be served."""
        slurm = intakes.FakeSlurm(intakes.Faults())
        here = desk(nas, slurm)
        for number in range(10_000):
            (nas / "submit" / f"{number}.sh").write_text(intakes.SCRIPT)
            os.chown(nas / "submit" / f"{number}.sh", intakes.USERS[0], -1)
        await here.look()
        intakes.drop(nas, "mine.sh", uid=intakes.USERS[1])
        for _ in range(5):
            await here.look()
        assert "mine.sh" in [job.name for job in slurm.jobs][: 4 * here.site.in_flight]

    async def test_the_same_name_twice_keeps_both(self, nas: Path) -> None:
        """Two users, or one who tries again: nothing is overwritten in failed/."""
        here = desk(nas)
        for uid in (intakes.USERS[0], intakes.USERS[1], intakes.USERS[0]):
            intakes.drop(nas, "a.sh", uid=uid, text=f"#!/bin/sh\n#SBATCH --nonsense\n# {uid}\n")
            await here.settle()
        assert sorted(intakes.filed(nas, "failed")) == [
            "a.sh", "a.sh.2", "a.sh.2.error.txt", "a.sh.3", "a.sh.3.error.txt", "a.sh.error.txt",
        ]  # fmt: skip


class TestTroubles:
    async def test_a_file_replaced_after_it_settled_becomes_one_job_with_the_new_bytes(
        self, nas: Path
    ) -> None:
        """What was seen is compared with what was claimed."""
        slurm = intakes.FakeSlurm(intakes.Faults())
        here = desk(nas, slurm)
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

    async def test_a_file_deleted_before_it_is_claimed_is_nobodys_job(self, nas: Path) -> None:
        """No error, no letter."""
        slurm = intakes.FakeSlurm(intakes.Faults())
        here = desk(nas, slurm)
        path = intakes.drop(nas, "a.sh")
        await here.look(step=2)
        with dropfolder.opened(nas, instance=here.instance, marker=here.marker) as folder:
            here.clerk.scan(folder, frozenset())
            path.unlink()
            here.clerk.advance(folder)
        await here.settle()
        assert slurm.jobs == []
        assert list(intakes.filed(nas, "failed")) == []

    async def test_a_folder_that_cannot_be_written_delays_and_never_doubles(
        self, nas: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """Full or read-only after sbatch: the job is remembered, the file is moved when it can be."""
        slurm = intakes.FakeSlurm(intakes.Faults())
        here = desk(nas, slurm)
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

    async def test_what_was_written_on_a_full_nas_is_sent_back(
        self, nas: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """With the reason; half a script is never run."""
        slurm = intakes.FakeSlurm(intakes.Faults())
        here = desk(nas, slurm)
        monkeypatch.setattr(dropfolder, "is_full", lambda folder: True)
        intakes.drop(nas, "a.sh")
        await here.look()
        monkeypatch.undo()
        await here.settle()
        assert slurm.jobs == []
        assert "NAS was full" in intakes.letter(nas)[0]

    async def test_a_file_that_cannot_be_read_holds_up_nobody(
        self, nas: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """A damaged block is its owner's trouble, and over when it is repaired."""
        slurm = intakes.FakeSlurm(intakes.Faults())
        here = desk(nas, slurm)
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

    async def test_a_file_that_cannot_be_claimed_holds_up_nobody(
        self, nas: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """When none can be claimed, that is said of the folder."""
        slurm = intakes.FakeSlurm(intakes.Faults())
        here = desk(nas, slurm)
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

    async def test_a_users_folder_swapped_for_a_link_is_that_users_trouble(self, nas: Path) -> None:
        """Nobody can make the NAS look unmounted."""
        slurm = intakes.FakeSlurm(intakes.Faults())
        here = desk(nas, slurm, user_folders=True)
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

    async def test_done_markers_are_removed_with_their_file(self, nas: Path) -> None:
        """And end the wait."""
        slurm = intakes.FakeSlurm(intakes.Faults())
        here = desk(nas, slurm, settle_seconds=1000.0)
        intakes.drop(nas, "a.sh")
        intakes.drop(nas, "a.sh.done", text="")
        await here.settle(looks=10)
        intakes.assert_once(nas, slurm, ("a.sh",))
        assert list((nas / "submit").iterdir()) == []

    async def test_a_marker_that_came_too_late_says_nothing_of_the_next_upload(self, nas: Path) -> None:
        """Half a script of that name is waited for; the marker goes with it when it is taken."""
        slurm = intakes.FakeSlurm(intakes.Faults())
        here = desk(nas, slurm)
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

    async def test_an_upload_broken_off_says_nothing_of_the_next_one(self, nas: Path) -> None:
        """Even where the next file gets the inode of the one that was removed."""
        slurm = intakes.FakeSlurm(intakes.Faults())
        here = desk(nas, slurm)
        part = intakes.drop(nas, "a.sh.part", text="#!/bin/sh\n")
        await here.look(step=0.05)
        part.rename(nas / "submit" / "a.sh")  # the same inode for certain
        intakes.drop(nas, "a.sh", text="#!/bin/sh\nrm -rf $PWD")
        for _ in range(3):
            await here.look(step=0.05)
        assert slurm.jobs == []

    async def test_anothers_marker_is_left_alone(self, nas: Path) -> None:
        """It neither ends the wait nor is it ours to remove."""
        slurm = intakes.FakeSlurm(intakes.Faults())
        here = desk(nas, slurm)
        intakes.drop(nas, "a.sh", uid=intakes.USERS[0])
        intakes.drop(nas, "a.sh.done", uid=intakes.USERS[1], text="")
        for _ in range(6):
            await here.look()
        assert len(slurm.jobs) == 1
        assert [path.name for path in (nas / "submit").iterdir()] == ["a.sh.done"]

    async def test_a_limit_that_stays_for_days_is_waited_for(self, nas: Path) -> None:
        """However often Slurm has said no, the next try comes within a minute or so."""
        full = answers.Answer("later", words="QOSMaxSubmitJobPerUserLimit")
        slurm = intakes.FakeSlurm(intakes.Faults(), saying=[full] * 10)
        here = desk(nas, slurm)
        intakes.drop(nas, "a.sh")
        here.clerk.refusals[intakes.USERS[0]] = 5000
        await here.settle(looks=2000)
        assert len(slurm.jobs) == 1

    async def test_a_file_in_anothers_folder_is_refused(self, nas: Path) -> None:
        """One's own folder is fine."""
        slurm = intakes.FakeSlurm(intakes.Faults())
        here = desk(nas, slurm, user_folders=True)
        own = nas / "submit" / "nobody"
        own.mkdir()
        os.chown(own, intakes.USERS[0], -1)
        intakes.drop(nas, "nobody/own.sh", uid=intakes.USERS[0])
        intakes.drop(nas, "nobody/other.sh", uid=intakes.USERS[1])
        for _ in range(10):
            await here.look()
        assert [job.name for job in slurm.jobs] == ["own.sh"]
        assert "another user's folder" in intakes.letter(nas)[0]
