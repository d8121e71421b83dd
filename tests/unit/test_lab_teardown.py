"""Which processes are a lab's, and which only look like it."""

from __future__ import annotations

import contextlib
import errno
import os
import shutil
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import msgspec
import pytest

from penstock import errors
from penstock_lab import actions, components, paths, processes, spec, supervision, teardown
from penstock_lab.devcluster import podprocesses as devcluster
from penstock_lab.kubernetes import cgroups, layout, mountcalls

LAB = spec.LabSpec(name="x", port_base=21000, user="daemon", user_created=False, nodes=1, bridge=False)


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
            process(10, python, "-m", "penstock_lab.devcluster", "--data-dir", str(place.devcluster_data)),
            process(11, python, "-m", "penstock", "daemon", "--config", str(place.penstockd_conf)),
            process(14, python, "-m", "penstock", "collector", "--config", str(place.collector_conf)),
            process(12, python, "-m", "penstock", "daemon", "--config", "/other/etc/penstockd.json"),
            process(13, python, "-m", "penstock", "lab", "status", "--dir", f"{place.directory}/"),
        )
        assert found(place, *everything) == {10, 11, 14}

    @pytest.mark.parametrize("kubernetes", [spec.DEV, spec.REAL, spec.KWOK, "/some/config"])
    def test_no_component_of_ours_is_unknown_without_a_record(
        self, place: paths.LabPaths, open_files: dict[int, str], kubernetes: str
    ) -> None:
        """Whatever a lab of any kind starts with our interpreter, also as root."""
        lab = msgspec.structs.replace(LAB, bridge=True, fault_proxy=True, kubernetes=kubernetes)
        parts = components.all_components(place, lab)
        ours = {part.name: part.argv for part in parts if part.argv[0] == sys.executable}
        unknown = [name for name, argv in ours.items() if found(place, process(10, *argv)) != {10}]
        assert {"penstockd", "intake", "collector", "faultproxy"} <= set(ours)
        assert unknown == []

    def test_descendants_are_killed(self, place: paths.LabPaths, open_files: dict[int, str]) -> None:
        """A job's script and its children."""
        open_files[10] = f"{place.spool}/n1"
        family = (
            process(10, "slurmstepd"),
            process(11, "/bin/sh", "slurm_script", parent=10, uid=1000),
            process(12, "sleep", "9", parent=11, uid=1000),
            process(13, "sleep", "9", uid=1000),
        )
        assert found(place, *family) == {10, 11, 12}

    def test_processes_of_the_labs_user_are_killed(
        self, place: paths.LabPaths, open_files: dict[int, str]
    ) -> None:
        """Nobody else uses the user that was made for the lab."""
        runaway = process(10, "sleep", "9", uid=987)
        assert found(place, runaway, uid=987) == {10}
        assert found(place, runaway, uid=None) == set()

    def test_an_empty_command_line_is_no_launcher(
        self, place: paths.LabPaths, open_files: dict[int, str]
    ) -> None:
        """Kernel threads have none."""
        kernel = processes.Process(processes.Identity(2, 1), 0, "kthreadd", 0, ())
        assert found(place, kernel) == set()


@contextlib.contextmanager
def family() -> Iterator[tuple[processes.Identity, processes.Identity]]:
    """A process and its child."""
    with subprocess.Popen(
        ["sh", "-c", "sleep 300 & echo $!; wait"], stdout=subprocess.PIPE, text=True
    ) as parent:
        assert parent.stdout is not None
        child = processes.identify(int(parent.stdout.readline()))
        me = processes.identify(parent.pid)
        assert me is not None
        assert child is not None
        try:
            yield me, child
        finally:
            processes.send(child, signal.SIGKILL)
            parent.kill()


def note(place: paths.LabPaths, name: str, identity: processes.Identity) -> None:
    """run/<component>.json, as if that process were the component."""
    record = supervision.Record(
        pid=identity.pid, start_ticks=identity.start_ticks, boot_id=processes.boot_id(), started_at=0.0
    )
    path = place.component_record(name)
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(msgspec.json.encode(record))


class TestRecords:
    def test_children_of_components_are_killed(self, place: paths.LabPaths) -> None:
        """No process started by a daemon stays."""
        with family() as (parent, child):
            note(place, components.MUNGED, parent)
            teardown.end_processes(place, LAB)
            assert processes.wait_gone([parent, child], seconds=10) == []

    def test_children_of_a_reused_pid_are_spared(self, place: paths.LabPaths) -> None:
        """A reused pid is another process: neither it nor its children are the lab's."""
        with family() as (parent, child):
            note(place, components.MUNGED, processes.Identity(parent.pid, parent.start_ticks - 1000))
            teardown.end_processes(place, LAB)
            assert processes.wait_gone([child], seconds=0.3) == [child]
            assert processes.alive(parent)


class TestWithoutSpec:
    def test_a_lab_json_of_another_program_does_not_make_a_lab(self, place: paths.LabPaths) -> None:
        """`down --force` in a home directory with such a file would remove all of it."""
        place.spec.write_text('{"theme": "dark"}')
        thesis = place.directory / "thesis.tex"
        thesis.touch()
        place.run.mkdir()
        with pytest.raises(
            errors.UsageError, match=r"has thesis.tex, which no lab makes: nothing was touched"
        ):
            actions.take_down(place, force=True)
        assert thesis.exists()
        assert place.run.exists()

    def test_all_that_a_lab_makes_is_known(self, place: paths.LabPaths) -> None:
        """Also what was being written, and a cluster of its own."""
        own = layout.Cluster(directory=place.directory, programs=Path(), api_port=1, first_port=2, nodes=())
        for path in (place.nas, place.database_made, place.etc, place.gpu_devices, own.state):
            assert paths.is_known(path.name)
        assert paths.is_known(".lab.json.x7")
        place.spec.write_text("{")
        place.nas.mkdir()
        assert actions.take_down(place, force=True)
        assert not place.directory.exists()
        place.directory.mkdir()

    def test_own_cluster_is_removed_without_lab_json(self, place: paths.LabPaths) -> None:
        """lab.json cannot be read: daemons and shims are recognised by their arguments."""
        argv = [
            "containerd-shim-runc-v2",
            "-c",
            "echo; sleep 60; :",
            f"{place.directory}/kubernetes/n1/c.sock",
        ]
        with subprocess.Popen(argv, executable="/bin/sh", stdout=subprocess.PIPE) as shim:
            try:
                assert shim.stdout is not None
                shim.stdout.readline()
                teardown.end_processes(place, None)
                assert shim.wait(10) == -signal.SIGKILL
            finally:
                shim.kill()

    def test_its_cgroups_go(self, place: paths.LabPaths) -> None:
        """And those of another lab stay."""
        trees = cgroups.trees()
        if os.geteuid() != 0 or not trees or not cgroups.writable(trees[0]):
            pytest.skip("needs the right to make cgroups")
        own, other = (
            trees[0] / f"{layout.CGROUP_PREFIX}1-{layout.digest(directory)}"
            for directory in (place.directory, place.directory / "other")
        )
        try:
            (own / "n1").mkdir(parents=True)
            other.mkdir()
            teardown.end_processes(place, None)
            assert (own.exists(), other.exists()) == (False, True)
        finally:
            for path in (own / "n1", own, other):
                with contextlib.suppress(FileNotFoundError):
                    path.rmdir()


class TestCgroups:
    def test_those_of_a_dev_cluster_that_was_killed_go(self, place: paths.LabPaths) -> None:
        """It removes them itself when it is told to stop, but not after a kill -9."""
        left = [tree / devcluster.cgroup_name(place.devcluster_data) for tree in cgroups.trees()]
        if os.geteuid() != 0 or not left or not cgroups.writable(left[0].parent):
            pytest.skip("needs the right to make cgroups")
        for path in left:
            (path / "n1-pod").mkdir(parents=True)
        try:
            teardown.end_processes(place, LAB)
            assert [path for path in left if path.exists()] == []
        finally:
            for path in (part for top in left for part in (top / "n1-pod", top)):
                with contextlib.suppress(FileNotFoundError):
                    path.rmdir()


class TestFiles:
    def test_tree_is_removed_without_following_links(self, place: paths.LabPaths, tmp_path: Path) -> None:
        """Targets of a user's links are not the lab's."""
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

    def test_mounts_in_the_lab_are_unmounted_with_files_kept(
        self, place: paths.LabPaths, tmp_path: Path
    ) -> None:
        """With any name: names in mountinfo are bytes, some of them escaped."""
        if os.geteuid() != 0:
            pytest.skip("mounting needs root")
        (tmp_path / "precious").touch()
        place.spec.touch()
        for name in ("größe", "with blank"):
            point = place.directory / name
            point.mkdir()
            mountcalls.bind(tmp_path, point)
        try:
            teardown.tear_down(place, None)
        finally:
            left = [point for point in mountcalls.all_mounts() if point.startswith(f"{place.directory}/")]
            for still in left:
                subprocess.run(["umount", "--lazy", still], check=False, timeout=30)
        assert left == []
        assert (tmp_path / "precious").exists()
        assert not place.directory.exists()
        place.directory.mkdir()

    def test_hiding_mount_is_unmounted_first(self, place: paths.LabPaths, tmp_path: Path) -> None:
        """The inner one cannot be reached before."""
        if os.geteuid() != 0:
            pytest.skip("mounting needs root")
        inner = place.directory / "outer" / "inner"
        inner.mkdir(parents=True)
        place.spec.touch()
        (tmp_path / "precious").touch()
        mountcalls.bind(tmp_path, inner)
        mountcalls.bind(tmp_path, inner.parent)
        try:
            teardown.tear_down(place, None)
        finally:
            for point in (inner.parent, inner):
                if str(point) in mountcalls.mount_points():
                    subprocess.run(["umount", "--lazy", point], check=False, timeout=30)
        assert (tmp_path / "precious").exists()
        assert not place.directory.exists()
        place.directory.mkdir()

    def test_nothing_is_removed_through_a_mount_that_stays(
        self, place: paths.LabPaths, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """Somebody keeps mounting it again."""
        precious = place.nas / "precious"
        precious.mkdir(parents=True)
        place.spec.touch()
        monkeypatch.setattr(mountcalls, "all_mounts", lambda: [str(place.nas)])
        with pytest.raises(errors.LabError, match="cannot unmount, so nothing in"):
            teardown.tear_down(place, None)
        assert precious.exists()

    def test_lab_json_is_removed_last(self, place: paths.LabPaths, monkeypatch: pytest.MonkeyPatch) -> None:
        """After an interruption the directory is still a lab that `down` can finish."""
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
