"""Where a lab may be and what it is called."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock import errors
from penstock_lab import paths

LONGEST = Path("/" + "x" * (paths.MAX_DIRECTORY_BYTES - 1))


class TestLimits:
    def test_the_longest_directory_keeps_every_socket_within_the_kernels_limit(self) -> None:
        """107 bytes is all that a unix socket's path may have, slurmstepd's of the last node included."""
        place = paths.LabPaths(LONGEST)
        step = place.spool / "n9999" / "n9999_4294967294.4294967294"
        for socket in (place.munge_socket, place.mariadb_socket, place.penstockd_socket, step):
            assert len(str(socket).encode()) <= 107

    def test_a_longer_directory_is_refused(self) -> None:
        """One byte more, and the caller is told to choose a shorter one."""
        with pytest.raises(errors.UsageError, match="longer than") as caught:
            paths.LabPaths(Path(f"{LONGEST}x"))
        assert "--dir" in caught.value.hint

    def test_bytes_count_not_letters(self) -> None:
        """A path of few letters can still have too many bytes."""
        with pytest.raises(errors.UsageError, match="longer than"):
            paths.LabPaths(Path("/" + "é" * (paths.MAX_DIRECTORY_BYTES - 1)))

    @pytest.mark.parametrize(
        "text", ["/srv/my lab", "/srv/l%n", "/srv/läb", "/srv/a;b", "/srv/a\nb", "relative"]
    )
    def test_what_slurm_cannot_name_is_refused(self, text: str) -> None:
        """Blanks, %, and anything a configuration file would read differently."""
        with pytest.raises(errors.UsageError, match="may hold only"):
            paths.LabPaths(Path(text))


class TestChoice:
    @pytest.mark.parametrize(
        ("directory", "name", "environment", "wanted"),
        [
            ("/a/b", "", "", "/a/b"),
            ("/a/b", "n", "/c", "/a/b"),
            ("", "", "/c", "/c"),
            ("", "n", "/c", "/var/lib/penstock-lab/n"),
            ("", "", "", "/var/lib/penstock-lab/default"),
            ("/a/../b/./c", "", "", "/b/c"),
        ],
    )
    def test_what_the_caller_says_comes_before_the_environment(
        self, directory: str, name: str, environment: str, wanted: str
    ) -> None:
        """An explicit directory, then an explicit name, then PENSTOCK_LAB, then the default."""
        chosen = paths.choose_directory(directory=directory, name=name, environment=environment)
        assert chosen == Path(wanted)

    def test_links_are_followed(self, tmp_path: Path) -> None:
        """Processes are compared with the path the kernel knows."""
        (tmp_path / "real").mkdir()
        (tmp_path / "link").symlink_to("real")
        chosen = paths.choose_directory(directory=str(tmp_path / "link"), name="", environment="")
        assert chosen == (tmp_path / "real").resolve()


class TestNames:
    @pytest.mark.parametrize("name", ["", "A", "1a", "-a", "a" * 23, "a_b", "a b", "../x", "a\n"])
    def test_impossible_names_are_refused(self, name: str) -> None:
        """A lab's name becomes part of a user's and a directory's."""
        with pytest.raises(errors.UsageError, match="is not a valid lab name"):
            paths.valid_name(name)

    @given(last=st.text(min_size=1, max_size=40).filter(lambda text: "/" not in text and "\0" not in text))
    def test_any_directory_gives_a_valid_name(self, last: str) -> None:
        """Whatever the directory is called, a lab in it can be named."""
        name = paths.name_from(Path("/labs") / last)
        assert paths.valid_name(name) == name

    def test_the_longest_name_fits_into_a_users_name(self) -> None:
        """Linux allows 32 letters, and another lab may have forced a number at the end."""
        assert len(f"penstock-{'a' * 20}") <= 32
        assert len(paths.name_from(Path("/labs/" + "a" * 60))) <= 22


class TestReach:
    def test_a_closed_directory_above_is_found(self, tmp_path: Path) -> None:
        """Ordinary users must be able to get to the lab."""
        closed = tmp_path / "closed"
        closed.mkdir(mode=0o700)
        assert paths.closed_parent(closed / "deep" / "lab") is not None

    def test_open_directories_are_fine(self) -> None:
        """Directories that do not exist yet will be made open."""
        assert paths.closed_parent(Path("/tmp/not-there/lab")) is None  # noqa: S108 - nothing is made there
