"""Which processes are a lab's, and which only look like it."""

from __future__ import annotations

import errno
import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from penstock import errors
from penstock.lab import paths, processes, teardown


@pytest.fixture
def place() -> Iterator[paths.LabPaths]:
    """A lab's directory."""
    with tempfile.TemporaryDirectory(prefix="penstock-") as directory:
        yield paths.LabPaths(Path(directory).resolve())


@pytest.fixture
def open_files(monkeypatch: pytest.MonkeyPatch) -> dict[int, str]:
    """What each process holds, as the test says."""
    held: dict[int, str] = {}

    def holds(pid: int, directory: Path) -> bool:
        return held.get(pid, "").startswith(f"{directory}/")

    monkeypatch.setattr(processes, "holds", holds)
    return held


def process(pid: int, *argv: str, name: str = "", parent: int = 1, uid: int = 0) -> processes.Process:
    return processes.Process(
        identity=processes.Identity(pid, 1),
        parent=parent,
        name=name or Path(argv[0]).name,
        uid=uid,
        argv=argv,
    )


def found(place: paths.LabPaths, *everything: processes.Process, uid: int | None = None) -> set[int]:
    return {each.pid for each in teardown.belonging(place, list(everything), created_uid=uid)}


class TestBelonging:
    def test_a_daemon_that_holds_our_files_is_ours(
        self, place: paths.LabPaths, open_files: dict[int, str]
    ) -> None:
        """Even without a record: a slurmstepd has none."""
        open_files[10] = f"{place.spool}/n1/job"
        open_files[11] = "/var/spool/slurmd/job"
        assert found(
            place, process(10, "slurmstepd: [1.0]", name="slurmstepd"), process(11, "slurmstepd")
        ) == {10}

    def test_an_editor_that_holds_our_files_is_not(
        self, place: paths.LabPaths, open_files: dict[int, str]
    ) -> None:
        """Its name is none of a daemon's."""
        open_files[10] = str(place.slurm_conf)
        assert found(place, process(10, "vim", str(place.slurm_conf))) == set()

    def test_launchers_are_known_by_their_program(
        self, place: paths.LabPaths, open_files: dict[int, str]
    ) -> None:
        """Started by the kernel through their interpreter, or as themselves."""
        launcher = f"{place.libexec}/penstock-launch"
        running = process(10, "/usr/bin/python3", "-IS", launcher, "/bin/bash", "/spool/slurm_script")
        shown = process(11, "less", launcher)
        edited = process(12, "vim", launcher)
        elsewhere = process(13, "/usr/bin/python3", "-IS", f"{place.directory}2/libexec/penstock-launch")
        direct = process(14, f"{place.libexec}/penstock-task-prolog")
        assert found(place, running, shown, edited, elsewhere, direct) == {10, 14}

    def test_our_own_programs_are_known_without_a_record(
        self, place: paths.LabPaths, open_files: dict[int, str]
    ) -> None:
        """Somebody removed run/*.json; another lab's are left alone."""
        python = "/venv/bin/python"
        everything = (
            process(10, python, "-m", "penstock.devcluster", "--data-dir", str(place.devcluster_data)),
            process(11, python, "-m", "penstock", "daemon", "--config", str(place.penstockd_conf)),
            process(14, python, "-m", "penstock", "collector", "--config", str(place.collector_conf)),
            process(12, python, "-m", "penstock", "daemon", "--config", "/other/etc/penstockd.json"),
            process(13, python, "-m", "penstock", "lab", "status", "--dir", f"{place.directory}/"),
        )
        assert found(place, *everything) == {10, 11, 14}

    def test_everything_below_goes_along(self, place: paths.LabPaths, open_files: dict[int, str]) -> None:
        """A job's script and what it has started."""
        open_files[10] = f"{place.spool}/n1"
        family = (
            process(10, "slurmstepd"),
            process(11, "/bin/sh", "slurm_script", parent=10, uid=1000),
            process(12, "sleep", "9", parent=11, uid=1000),
            process(13, "sleep", "9", uid=1000),
        )
        assert found(place, *family) == {10, 11, 12}

    def test_all_of_the_labs_own_user_goes(self, place: paths.LabPaths, open_files: dict[int, str]) -> None:
        """Nobody else works as the user that was made for the lab."""
        runaway = process(10, "sleep", "9", uid=987)
        assert found(place, runaway, uid=987) == {10}
        assert found(place, runaway, uid=None) == set()

    def test_an_empty_command_line_is_no_launcher(
        self, place: paths.LabPaths, open_files: dict[int, str]
    ) -> None:
        """Kernel threads have none."""
        kernel = processes.Process(processes.Identity(2, 1), 0, "kthreadd", 0, ())
        assert found(place, kernel) == set()


class TestFiles:
    def test_everything_goes_and_links_are_not_followed(self, place: paths.LabPaths, tmp_path: Path) -> None:
        """What a user linked to is not the lab's."""
        precious = tmp_path / "precious"
        precious.mkdir()
        (precious / "data").touch()
        place.nas.mkdir()
        (place.nas / "link").symlink_to(precious)
        (place.directory / "top").symlink_to(precious)
        place.spec.touch()
        teardown.tear_down(place, None)
        assert not place.directory.exists()
        assert (precious / "data").exists()
        place.directory.mkdir()

    def test_the_spec_goes_last(self, place: paths.LabPaths, monkeypatch: pytest.MonkeyPatch) -> None:
        """Cut short, the directory is still a lab that `down` can finish."""
        place.spec.touch()
        place.nas.mkdir()

        def fail(entry: Path) -> None:
            raise PermissionError(errno.EPERM, "Operation not permitted", str(entry))

        monkeypatch.setattr(shutil, "rmtree", fail)
        with pytest.raises(errors.LabError, match="Operation not permitted"):
            teardown.tear_down(place, None)
        assert place.spec.exists()

    def test_a_directory_in_use_by_others_stays(self, tmp_path: Path) -> None:
        """Only what is empty is removed."""
        (tmp_path / "d").mkdir()
        (tmp_path / "d" / "f").touch()
        teardown.remove_if_empty(tmp_path / "d")
        assert (tmp_path / "d" / "f").exists()
        (tmp_path / "d" / "f").unlink()
        teardown.remove_if_empty(tmp_path / "d")
        assert not (tmp_path / "d").exists()
        teardown.remove_if_empty(tmp_path / "d")
