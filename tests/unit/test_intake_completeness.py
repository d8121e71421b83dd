"""When a file counts as complete, and whose turn it is."""

from __future__ import annotations

from collections import deque

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.intake import completeness, fairqueue, filenames
from penstock.nas import listing

SETTLE = 2.0


def sight(
    name: str = "job.sh", *, size: int = 10, mtime: int = 0, inode: int = 1, uid: int = 7, changed: int = 0
) -> listing.Sight:
    return listing.Sight("", name, listing.Sign(inode, size, mtime), uid, changed_ns=changed)


def look(*sights: listing.Sight, hidden: tuple[listing.Sight, ...] = ()) -> listing.Listing:
    return listing.Listing(sights, frozenset(one.sign for one in hidden))


def ready(tracker: completeness.Tracker, now: float) -> list[str]:
    return [watched.sight.name for watched in tracker.ready(now)]


class TestSettling:
    def test_a_file_is_taken_when_it_has_not_changed_for_the_settle_time(self) -> None:
        """Not before, by our own clock."""
        tracker = completeness.Tracker(SETTLE)
        tracker.observe(look(sight()), now=100.0)
        tracker.observe(look(sight()), now=101.9)
        assert ready(tracker, 101.9) == []
        assert ready(tracker, 102.0) == ["job.sh"]

    def test_a_growing_file_waits(self) -> None:
        """Every change begins the wait anew."""
        tracker = completeness.Tracker(SETTLE)
        for second in range(20):
            tracker.observe(look(sight(size=10 + second)), now=float(second))
            assert ready(tracker, float(second)) == []
        assert ready(tracker, 21.0) == ["job.sh"]

    def test_the_clock_of_the_nas_does_not_matter(self) -> None:
        """A file from an hour ahead or behind waits as long as any other."""
        hour = 3600 * 10**9
        for skew in (-hour, hour):
            tracker = completeness.Tracker(SETTLE)
            tracker.observe(look(sight(mtime=skew)), now=0.0)
            assert ready(tracker, 1.9) == []
            assert ready(tracker, 2.0) == ["job.sh"]

    def test_a_file_renamed_into_place_is_taken_at_once(self) -> None:
        """It was seen under a temporary name, or inotify has told of it."""
        tracker = completeness.Tracker(SETTLE)
        tracker.observe(look(hidden=(sight(".job.sh", inode=7),)), now=0.0)
        tracker.observe(look(sight(inode=7)), now=0.5)
        assert ready(tracker, 0.5) == ["job.sh"]
        other = completeness.Tracker(SETTLE)
        other.observe(look(sight()), now=0.0, moved=frozenset({"job.sh"}))
        assert ready(other, 0.0) == ["job.sh"]

    @pytest.mark.parametrize("other", [sight(inode=7, size=9), sight(inode=7, mtime=1)])
    def test_an_inode_that_is_used_again_is_no_renamed_file(self, other: listing.Sight) -> None:
        """File systems give the number of a removed file to the next one, which may be half written."""
        tracker = completeness.Tracker(SETTLE)
        tracker.observe(look(hidden=(sight("job.sh.part", inode=7),)), now=0.0)
        tracker.observe(look(other), now=0.5)
        assert ready(tracker, 0.5) == []
        assert ready(tracker, 0.5 + SETTLE) == ["job.sh"]

    def test_a_done_marker_of_an_earlier_file_ends_no_wait(self) -> None:
        """It came when that file had already been taken, and is older than what has come since."""
        for newer in (sight(mtime=2), sight(changed=2), sight(mtime=2, changed=2)):
            tracker = completeness.Tracker(SETTLE)
            left = sight("job.sh.done", mtime=1, changed=1)
            tracker.observe(look(newer, left), now=0.0)
            assert ready(tracker, 0.0) == []
            tracker.observe(look(newer, sight("job.sh.done", mtime=2, changed=2)), now=0.1)
            assert ready(tracker, 0.1) == ["job.sh"]

    def test_a_file_written_after_its_marker_waits_again(self) -> None:
        """Its writer was not done after all."""
        tracker = completeness.Tracker(SETTLE)
        marker = sight("job.sh.done", mtime=1, changed=1)
        tracker.observe(look(sight(), marker), now=0.0)
        tracker.observe(look(sight(size=20, mtime=2, changed=2), marker), now=0.1)
        assert ready(tracker, 0.1) == []

    def test_a_done_marker_of_the_owner_ends_the_wait(self) -> None:
        """Somebody else's does not; a marker alone is no job."""
        tracker = completeness.Tracker(SETTLE)
        tracker.observe(look(sight(), sight("job.sh.done", uid=8)), now=0.0)
        assert ready(tracker, 0.0) == []
        tracker.observe(look(sight(), sight("job.sh.done")), now=0.1)
        assert ready(tracker, 0.1) == ["job.sh"]
        tracker.observe(look(sight("job.sh.done")), now=0.2)
        assert ready(tracker, 100.0) == []

    def test_an_empty_file_waits_longer(self) -> None:
        """Many programs make the file first and fill it later, marker or not."""
        tracker = completeness.Tracker(SETTLE)
        tracker.observe(look(sight(size=0), sight("job.sh.done")), now=0.0)
        assert ready(tracker, SETTLE + 1) == []
        assert ready(tracker, completeness.EMPTY_SECONDS) == ["job.sh"]

    def test_what_was_written_on_a_full_nas_is_suspect_until_written_again(self) -> None:
        """A copy that ran out of room looks complete and is not."""
        tracker = completeness.Tracker(SETTLE)
        tracker.observe(look(sight()), now=0.0, full=True)
        tracker.observe(look(sight()), now=5.0)
        assert tracker.watched["", "job.sh"].cut_short
        tracker.observe(look(sight(size=20, mtime=1)), now=6.0)
        assert not tracker.watched["", "job.sh"].cut_short

    def test_what_is_gone_is_forgotten(self) -> None:
        """A file that comes back waits again."""
        tracker = completeness.Tracker(SETTLE)
        tracker.observe(look(sight()), now=0.0)
        tracker.observe(look(), now=1.0)
        tracker.observe(look(sight()), now=3.0)
        assert ready(tracker, 4.0) == []

    @given(st.lists(st.tuples(st.floats(0.01, 3.0), st.integers(1, 3), st.integers(-5, 5)), max_size=20))
    def test_nothing_is_ready_within_the_settle_time_of_a_change(
        self, steps: list[tuple[float, int, int]]
    ) -> None:
        """Whatever the writer and the NAS's clock do."""
        tracker = completeness.Tracker(SETTLE)
        now, changed = 0.0, 0.0
        last: tuple[int, int] | None = None
        for pause, size, mtime in steps:
            now += pause
            tracker.observe(look(sight(size=size, mtime=mtime)), now=now)
            if (size, mtime) != last:
                last, changed = (size, mtime), now
            assert bool(ready(tracker, now)) == (now - changed >= SETTLE)


class TestNames:
    def test_names_of_programs_are_left_alone(self) -> None:
        """Editors, rsync, SMB clients, browsers."""
        for name in (".job.sh.Xy12zA", "job.sh~", "~$job.sh", "#job.sh#", ".job.sh.swp", "4913", "a.part"):
            assert filenames.is_hidden(name), name
        for name in (".smbdelete1A", "._job.sh", ".nfs0001", "a.filepart", "Thumbs.db", "a.sh.tmp.1a2b"):
            assert filenames.is_hidden(name), name

    def test_names_of_jobs_are_taken(self) -> None:
        """Anything else, however odd."""
        for name in ("job.sh", "job", "a b.sh", "; rm -rf $(x)", "übung.sbatch", "-n", "donefile", "part.sh"):
            assert not filenames.is_hidden(name), name
            assert not filenames.problem(name), name

    def test_names_that_nobody_can_print_are_a_problem(self) -> None:
        """Line breaks, escape sequences, bytes that are no text, endless ones."""
        for name in ("a\nb", "a\x1b[31m", "a\udcff", "x" * 201, "tab\t"):
            assert filenames.problem(name), name
            assert filenames.shown(name).isprintable()

    @given(st.text(min_size=1, max_size=50).filter(lambda name: "/" not in name and "\0" not in name))
    def test_slurm_never_gets_a_name_it_cannot_store(self, name: str) -> None:
        """One printable character of the basic plane for each."""
        kept = filenames.for_slurm(name)
        assert len(kept) == len(name)
        assert kept.isprintable()
        assert all(ord(character) < 0x10000 for character in kept)


class TestTurns:
    def test_a_user_with_ten_thousand_files_does_not_keep_others_waiting(self) -> None:
        """Each of the others is served in the first round."""
        lines = {1: deque(range(10_000)), 2: deque([-1]), 3: deque([-2])}
        order = iter(fairqueue.Turns[int](limit=1000).order(lines, {}))
        assert {-1, -2} < {next(order) for _ in range(3)}

    def test_the_one_served_longest_ago_comes_next(self) -> None:
        """Also in the next look."""
        served: fairqueue.Turns[str] = fairqueue.Turns(limit=9)
        assert next(iter(served.order({1: deque("a"), 2: deque("b")}, {}))) == "a"
        assert next(iter(served.order({1: deque("a"), 2: deque("b")}, {}))) == "b"

    @given(st.dictionaries(st.integers(0, 5), st.integers(0, 8), max_size=5), st.integers(1, 3))
    def test_nobody_passes_the_limit_and_nobody_is_left_out(self, files: dict[int, int], limit: int) -> None:
        """Everybody gets as much as the limit lets through."""
        lines = {uid: deque([uid] * count) for uid, count in files.items()}
        busy: dict[int, int] = {}
        for uid in fairqueue.Turns[int](limit).order(lines, busy):
            busy[uid] = busy.get(uid, 0) + 1
        assert {uid: min(limit, count) for uid, count in files.items() if count} == busy
