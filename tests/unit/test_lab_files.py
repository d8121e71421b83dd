"""Files of a lab appear whole, with the right mode from the first moment, or not at all."""

from __future__ import annotations

import fcntl
import os
import stat
from pathlib import Path

import pytest

from penstock import errors
from penstock_lab import directories, files, lock, subprocesses


def mode(path: Path) -> int:
    return stat.S_IMODE(path.stat().st_mode)


class TestWrite:
    def test_content_and_mode_are_as_asked(self, tmp_path: Path) -> None:
        """Text and bytes alike, whatever the umask."""
        files.write(tmp_path / "a", "text", mode=0o600)
        files.write(tmp_path / "b", b"\0bytes", mode=0o755)
        assert ((tmp_path / "a").read_text(), mode(tmp_path / "a")) == ("text", 0o600)
        assert ((tmp_path / "b").read_bytes(), mode(tmp_path / "b")) == (b"\0bytes", 0o755)

    def test_a_secret_is_never_open_to_others(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        """Mode and owner are set while the file is still empty."""
        seen: list[tuple[int, int]] = []
        original = os.fchmod

        def watch(descriptor: int, wanted: int) -> None:
            seen.append((os.fstat(descriptor).st_size, stat.S_IMODE(os.fstat(descriptor).st_mode)))
            original(descriptor, wanted)

        monkeypatch.setattr(os, "fchmod", watch)
        files.write(tmp_path / "key", "secret", mode=0o644)
        assert seen == [(0, 0o600)]

    def test_a_failure_leaves_the_old_file_and_nothing_else(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """A full disk must not cost what was there before."""
        (tmp_path / "conf").write_text("old")

        def full(descriptor: int) -> None:
            raise OSError(28, "No space left on device")

        monkeypatch.setattr(os, "fsync", full)
        with pytest.raises(OSError, match="No space left"):
            files.write(tmp_path / "conf", "new")
        assert [path.name for path in tmp_path.iterdir()] == ["conf"]
        assert (tmp_path / "conf").read_text() == "old"

    def test_a_secret_outlives_a_repair(self, tmp_path: Path) -> None:
        """Who holds the old key must not be locked out."""
        files.write_once(tmp_path / "key", b"first", mode=0o400)
        files.write_once(tmp_path / "key", b"second", mode=0o400)
        assert (tmp_path / "key").read_bytes() == b"first"


class TestDirectory:
    def test_modes_are_corrected(self, tmp_path: Path) -> None:
        """A second `up` repairs changed modes."""
        made = tmp_path / "d"
        files.directory(made, mode=0o1777)
        made.chmod(0o700)
        files.directory(made, mode=0o1777)
        assert mode(made) == 0o1777

    def test_a_link_in_its_place_is_refused(self, tmp_path: Path) -> None:
        """Whoever planted it would be given what it points to."""
        precious = tmp_path / "precious"
        precious.mkdir(mode=0o700)
        (tmp_path / "d").symlink_to(precious)
        with pytest.raises(OSError, match=r"Not a directory|Too many levels"):
            files.directory(tmp_path / "d", mode=0o777)
        assert mode(precious) == 0o700

    def test_removing_does_not_follow_links(self, tmp_path: Path) -> None:
        """Files, directories and links go; what links point to stays."""
        (tmp_path / "d" / "deep").mkdir(parents=True)
        (tmp_path / "precious").mkdir()
        (tmp_path / "d" / "link").symlink_to(tmp_path / "precious")
        (tmp_path / "top").symlink_to(tmp_path / "precious")
        for name in ("d", "top", "not-there"):
            files.remove(tmp_path / name)
        assert [path.name for path in tmp_path.iterdir()] == ["precious"]


class TestTail:
    def test_the_last_lines_without_blanks(self, tmp_path: Path) -> None:
        """Enough to see what happened, no more."""
        (tmp_path / "log").write_text("".join(f"line {number}\n\n" for number in range(20)))
        assert files.tail(tmp_path / "log", lines=2) == ["line 18", "line 19"]

    def test_nothing_from_before_the_offset(self, tmp_path: Path) -> None:
        """Words of an earlier start are not repeated."""
        (tmp_path / "log").write_text("before\nafter\n")
        assert files.tail(tmp_path / "log", since=len("before\n")) == ["after"]

    def test_a_huge_log_is_not_read_whole(self, tmp_path: Path) -> None:
        """Only its end matters."""
        with (tmp_path / "log").open("wb") as log:
            log.seek(2**32)
            log.write(b"\nend\n")
        assert files.tail(tmp_path / "log")[-1] == "end"

    def test_missing_log_has_no_lines(self, tmp_path: Path) -> None:
        """A daemon that could not even open it."""
        assert files.tail(tmp_path / "log") == []


class TestPlace:
    def test_directory_with_foreign_files_is_refused(self, tmp_path: Path) -> None:
        """Nothing in it may be changed."""
        (tmp_path / "thesis.tex").touch()
        with pytest.raises(errors.UsageError, match="neither empty nor a lab"):
            directories.require_ours(tmp_path)
        assert (tmp_path / "thesis.tex").exists()

    @pytest.mark.parametrize("content", [[], ["lab.json", "etc"], [".lab.json.x8y7"]])
    def test_usable_directories(self, tmp_path: Path, content: list[str]) -> None:
        """Empty, with a lab, or with the unfinished lab.json of a killed start."""
        for name in content:
            (tmp_path / name).touch()
        directories.require_ours(tmp_path)
        assert sorted(path.name for path in tmp_path.iterdir()) == sorted(content)

    def test_a_file_is_refused(self, tmp_path: Path) -> None:
        """A lab is a directory."""
        (tmp_path / "f").touch()
        with pytest.raises(errors.UsageError, match="is not a directory"):
            directories.require_ours(tmp_path / "f")

    def test_too_little_space_says_how_much_is_needed(self, tmp_path: Path) -> None:
        """Asked of the nearest directory that exists."""
        with pytest.raises(errors.LabError, match=r"MB free.*needs 999999999 MB") as caught:
            directories.require_space(tmp_path / "not" / "yet", megabytes=999_999_999)
        assert "--dir" in caught.value.hint
        directories.require_space(tmp_path / "not" / "yet", megabytes=0)


class TestLock:
    def test_two_at_once_are_kept_apart(self, tmp_path: Path) -> None:
        """The second is told so; afterwards the lab is free again."""
        with (
            lock.lock(tmp_path),
            pytest.raises(errors.LabError, match="another penstock is working"),
            lock.lock(tmp_path),
        ):
            raise AssertionError("both are in")
        with lock.lock(tmp_path):
            assert list(tmp_path.iterdir()) == []

    def test_a_directory_that_was_removed_meanwhile_is_not_locked(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """`down` ended between the opening and the locking: another `up` may have made the next one."""
        lab = tmp_path / "lab"
        lab.mkdir()

        def flock(descriptor: int, how: int) -> None:
            lab.rename(tmp_path / "old")
            lab.mkdir()

        monkeypatch.setattr(fcntl, "flock", flock)
        with pytest.raises(errors.LabError, match="just removed"), lock.lock(lab):
            pass
        with pytest.raises(errors.LabError, match="just removed"), lock.lock(tmp_path / "nowhere"):
            pass


class TestCommands:
    def test_a_failure_is_told_in_the_programs_own_last_words(self) -> None:
        """One line, not a traceback."""
        with pytest.raises(errors.LabError, match="sh failed: the reason"):
            subprocesses.run(("sh", "-c", "echo noise; echo the reason >&2; exit 4"))

    def test_first_marked_error_is_the_reason(self) -> None:
        """MariaDB continues for a page after it."""
        said = "echo begin; echo 'ERROR: 6  Error on delete'; echo '[ERROR] Aborting'; echo advice; exit 1"
        with pytest.raises(errors.LabError, match="sh failed: ERROR: 6  Error on delete"):
            subprocesses.run(("sh", "-c", said))

    def test_a_silent_failure_tells_its_exit_code(self) -> None:
        """Better than nothing."""
        with pytest.raises(errors.LabError, match="false failed: exit code 1"):
            subprocesses.run(("false",))

    def test_a_program_that_hangs_is_ended(self) -> None:
        """Every outside call has a limit."""
        with pytest.raises(errors.LabError, match="did not end within 0 s"):
            subprocesses.run(("sleep", "60"), timeout=0.1)

    def test_a_missing_program_names_its_package(self) -> None:
        """Nobody should have to guess what to install."""
        assert "slurmctld" in subprocesses.package_hint("slurmctld")
        with pytest.raises(errors.LabError, match="no-such-program is not installed"):
            subprocesses.run(("no-such-program",))

    @pytest.mark.parametrize(
        "said",
        [
            "write failed: No space left on device",
            "ERROR: Disk is full writing './mysql/db.MAI' (Errcode: 28)",
            "mariadbd: Disk full (/tmp/x)",
        ],
    )
    def test_a_full_disk_is_recognised_in_any_words(self, said: str) -> None:
        """MariaDB, Slurm and libc all say it differently."""
        with pytest.raises(errors.LabError, match="no space left on the lab's disk"):
            subprocesses.run(("sh", "-c", 'echo "$0"; exit 1', said))

    def test_the_callers_environment_stays_outside(self, monkeypatch: pytest.MonkeyPatch) -> None:
        """Formats and clusters that a person has set must not change what we read."""
        monkeypatch.setenv("SLURM_CONF", "/elsewhere")
        monkeypatch.setenv("SQUEUE_FORMAT", "%i")
        said = subprocesses.run(("env",), environment={"A": "b"}).stdout.split()
        assert "A=b" in said
        assert not [word for word in said if word.startswith(("SLURM_CONF", "SQUEUE_FORMAT"))]
