"""When a file is complete, and which user is next."""

from __future__ import annotations

from collections import deque

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.intake import completeness, fairqueue, filenames
from penstock.nas import listing

SETTLE = 2.0


def info(
    name: str = "job.sh", *, size: int = 10, mtime: int = 0, inode: int = 1, uid: int = 7, changed: int = 0
) -> listing.FileInfo:
    return listing.FileInfo("", name, listing.Stamp(inode, size, mtime), uid, changed_ns=changed)


def look(*files: listing.FileInfo, hidden: tuple[listing.FileInfo, ...] = ()) -> listing.Listing:
    return listing.Listing(files, frozenset(one.stamp for one in hidden))


def ready(tracker: completeness.Tracker, now: float) -> list[str]:
    return [watched.info.name for watched in tracker.ready(now)]


class TestSettling:
    def test_file_is_ready_after_settle_time(self) -> None:
        """Not earlier, by our own clock."""
        tracker = completeness.Tracker(SETTLE)
        tracker.observe(look(info()), now=100.0)
        tracker.observe(look(info()), now=101.9)
        assert ready(tracker, 101.9) == []
        assert ready(tracker, 102.0) == ["job.sh"]

    def test_growing_file_is_not_ready(self) -> None:
        """Every change restarts the settle time."""
        tracker = completeness.Tracker(SETTLE)
        for second in range(20):
            tracker.observe(look(info(size=10 + second)), now=float(second))
            assert ready(tracker, float(second)) == []
        assert ready(tracker, 21.0) == ["job.sh"]

    def test_clock_of_nas_is_irrelevant(self) -> None:
        """A file an hour ahead or behind settles like any other."""
        hour = 3600 * 10**9
        for skew in (-hour, hour):
            tracker = completeness.Tracker(SETTLE)
            tracker.observe(look(info(mtime=skew)), now=0.0)
            assert ready(tracker, 1.9) == []
            assert ready(tracker, 2.0) == ["job.sh"]

    def test_renamed_file_is_ready_at_once(self) -> None:
        """It was seen under a temporary name, or inotify reported the rename."""
        tracker = completeness.Tracker(SETTLE)
        tracker.observe(look(hidden=(info(".job.sh", inode=7),)), now=0.0)
        tracker.observe(look(info(inode=7)), now=0.5)
        assert ready(tracker, 0.5) == ["job.sh"]
        other = completeness.Tracker(SETTLE)
        other.observe(look(info()), now=0.0, moved=frozenset({"job.sh"}))
        assert ready(other, 0.0) == ["job.sh"]

    @pytest.mark.parametrize("other", [info(inode=7, size=9), info(inode=7, mtime=1)])
    def test_reused_inode_is_not_a_rename(self, other: listing.FileInfo) -> None:
        """File systems reuse the inode number of a removed file, and the new file may be incomplete."""
        tracker = completeness.Tracker(SETTLE)
        tracker.observe(look(hidden=(info("job.sh.part", inode=7),)), now=0.0)
        tracker.observe(look(other), now=0.5)
        assert ready(tracker, 0.5) == []
        assert ready(tracker, 0.5 + SETTLE) == ["job.sh"]

    def test_marker_older_than_file_is_ignored(self) -> None:
        """It came after the earlier file had been claimed."""
        for newer in (info(mtime=2), info(changed=2), info(mtime=2, changed=2)):
            tracker = completeness.Tracker(SETTLE)
            left = info("job.sh.done", mtime=1, changed=1)
            tracker.observe(look(newer, left), now=0.0)
            assert ready(tracker, 0.0) == []
            tracker.observe(look(newer, info("job.sh.done", mtime=2, changed=2)), now=0.1)
            assert ready(tracker, 0.1) == ["job.sh"]

    def test_write_after_marker_restarts_settle_time(self) -> None:
        """The file is not complete after all."""
        tracker = completeness.Tracker(SETTLE)
        marker = info("job.sh.done", mtime=1, changed=1)
        tracker.observe(look(info(), marker), now=0.0)
        tracker.observe(look(info(size=20, mtime=2, changed=2), marker), now=0.1)
        assert ready(tracker, 0.1) == []

    def test_marker_of_owner_completes_file(self) -> None:
        """Another user's marker does not, and a marker alone is not a job."""
        tracker = completeness.Tracker(SETTLE)
        tracker.observe(look(info(), info("job.sh.done", uid=8)), now=0.0)
        assert ready(tracker, 0.0) == []
        tracker.observe(look(info(), info("job.sh.done")), now=0.1)
        assert ready(tracker, 0.1) == ["job.sh"]
        tracker.observe(look(info("job.sh.done")), now=0.2)
        assert ready(tracker, 100.0) == []

    def test_empty_file_settles_longer(self) -> None:
        """Many programs create the file first and fill it later, with or without a marker."""
        tracker = completeness.Tracker(SETTLE)
        tracker.observe(look(info(size=0), info("job.sh.done")), now=0.0)
        assert ready(tracker, SETTLE + 1) == []
        assert ready(tracker, completeness.EMPTY_SECONDS) == ["job.sh"]

    def test_file_written_to_full_nas_is_suspect_until_rewritten(self) -> None:
        """A truncated copy looks complete."""
        tracker = completeness.Tracker(SETTLE)
        tracker.observe(look(info()), now=0.0, full=True)
        tracker.observe(look(info()), now=5.0)
        assert tracker.watched["", "job.sh"].cut_short
        tracker.observe(look(info(size=20, mtime=1)), now=6.0)
        assert not tracker.watched["", "job.sh"].cut_short

    def test_removed_file_is_forgotten(self) -> None:
        """A file that comes back has to settle again."""
        tracker = completeness.Tracker(SETTLE)
        tracker.observe(look(info()), now=0.0)
        tracker.observe(look(), now=1.0)
        tracker.observe(look(info()), now=3.0)
        assert ready(tracker, 4.0) == []

    @given(st.lists(st.tuples(st.floats(0.01, 3.0), st.integers(1, 3), st.integers(-5, 5)), max_size=20))
    def test_no_file_is_ready_within_settle_time_of_a_change(
        self, steps: list[tuple[float, int, int]]
    ) -> None:
        """Whatever the writer and the clock of the NAS do."""
        tracker = completeness.Tracker(SETTLE)
        now, changed = 0.0, 0.0
        last: tuple[int, int] | None = None
        for pause, size, mtime in steps:
            now += pause
            tracker.observe(look(info(size=size, mtime=mtime)), now=now)
            if (size, mtime) != last:
                last, changed = (size, mtime), now
            assert bool(ready(tracker, now)) == (now - changed >= SETTLE)


class TestNames:
    def test_temporary_names_are_hidden(self) -> None:
        """Editors, rsync, SMB clients, browsers."""
        for name in (".job.sh.Xy12zA", "job.sh~", "~$job.sh", "#job.sh#", ".job.sh.swp", "4913", "a.part"):
            assert filenames.is_hidden(name), name
        for name in (".smbdelete1A", "._job.sh", ".nfs0001", "a.filepart", "Thumbs.db", "a.sh.tmp.1a2b"):
            assert filenames.is_hidden(name), name

    def test_other_names_are_accepted(self) -> None:
        """However odd."""
        for name in ("job.sh", "job", "a b.sh", "; rm -rf $(x)", "übung.sbatch", "-n", "donefile", "part.sh"):
            assert not filenames.is_hidden(name), name
            assert not filenames.problem(name), name

    def test_unprintable_names_are_refused(self) -> None:
        """Line breaks, escape sequences, invalid UTF-8, overlong names."""
        for name in ("a\nb", "a\x1b[31m", "a\udcff", "x" * 201, "tab\t"):
            assert filenames.problem(name), name
            assert filenames.shown(name).isprintable()

    @given(st.text(min_size=1, max_size=50).filter(lambda name: "/" not in name and "\0" not in name))
    def test_names_for_slurm_are_storable(self, name: str) -> None:
        """Each character becomes one printable character of the basic plane."""
        kept = filenames.for_slurm(name)
        assert len(kept) == len(name)
        assert kept.isprintable()
        assert all(ord(character) < 0x10000 for character in kept)


class TestTurns:
    def test_many_files_of_one_user_do_not_delay_others(self) -> None:
        """Every other user is served in the first round."""
        lines = {1: deque(range(10_000)), 2: deque([-1]), 3: deque([-2])}
        order = iter(fairqueue.Turns[int](limit=1000).order(lines, {}))
        assert {-1, -2} < {next(order) for _ in range(3)}

    def test_least_recently_served_user_is_next(self) -> None:
        """Also in the next pass."""
        served: fairqueue.Turns[str] = fairqueue.Turns(limit=9)
        assert next(iter(served.order({1: deque("a"), 2: deque("b")}, {}))) == "a"
        assert next(iter(served.order({1: deque("a"), 2: deque("b")}, {}))) == "b"

    @given(st.dictionaries(st.integers(0, 5), st.integers(0, 8), max_size=5), st.integers(1, 3))
    def test_every_user_is_served_up_to_the_limit(self, files: dict[int, int], limit: int) -> None:
        """Nobody exceeds the limit."""
        lines = {uid: deque([uid] * count) for uid, count in files.items()}
        busy: dict[int, int] = {}
        for uid in fairqueue.Turns[int](limit).order(lines, busy):
            busy[uid] = busy.get(uid, 0) + 1
        assert {uid: min(limit, count) for uid, count in files.items() if count} == busy
