"""What a cluster does to the machine it is on: cgroups, mounts, the view of a node, what is left."""

from __future__ import annotations

import dataclasses
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock import errors, wellknown
from penstock_lab import processes
from penstock_lab.kubernetes import (
    builds,
    cgroups,
    hostnote,
    layout,
    mountcalls,
    nodeview,
    remains,
    requirements,
)
from tests.unit.test_kubernetes_layout import cluster


@pytest.fixture
def controllers(tmp_path: Path) -> Path:
    """Two controllers of cgroup v1, as plain directories, and the place for a third."""
    for name in ("cpuset", "memory", "net_cls,net_prio"):
        (tmp_path / name).mkdir()
    for name in ("cpuset", "memory"):
        (tmp_path / name / "cgroup.procs").touch()
    (tmp_path / "cpuset" / "cpuset.cpus").write_text("0-1\n")
    (tmp_path / "cpuset" / "cpuset.mems").write_text("0\n")
    (tmp_path / "cpuacct").symlink_to("cpuset")
    return tmp_path


class TestCgroups:
    def test_a_cgroup_is_made_in_every_tree(self, controllers: Path) -> None:
        """Links are other names of the same tree and left alone; what is not mounted is no tree."""
        (controllers / "hugetlb").mkdir()
        cgroups.make("lab/n1", root=controllers)
        assert (controllers / "memory/lab/n1").is_dir()
        assert (controllers / "cpuset/lab/n1").is_dir()
        assert [tree.name for tree in cgroups.trees(controllers)] == ["cpuset", "memory"]

    def test_directory_without_controller_is_ignored(self, controllers: Path) -> None:
        """An init system may leave such directories."""
        (controllers / "perf_event").mkdir()
        assert [tree.name for tree in cgroups.trees(controllers)] == ["cpuset", "memory"]

    def test_v2_beside_v1_is_looked_at_and_left_alone(self, controllers: Path) -> None:
        """What is left there is found; kubelets ask the trees of v1."""
        (controllers / "unified").mkdir()
        for name in ("cgroup.procs", "cgroup.controllers", "cgroup.subtree_control"):
            (controllers / "unified" / name).touch()
        cgroups.make("lab", root=controllers)
        assert [tree.name for tree in cgroups.trees(controllers)] == ["cpuset", "memory", "unified"]
        assert not (controllers / "unified/lab").exists()

    def test_cgroup_v2_is_one_tree(self, tmp_path: Path) -> None:
        """The file that only v2 has at its top tells."""
        (tmp_path / "cgroup.controllers").write_text("cpu memory\n")
        (tmp_path / "cgroup.subtree_control").write_text("")
        (tmp_path / "system.slice").mkdir()
        assert cgroups.trees(tmp_path) == [tmp_path]
        cgroups.make("lab", root=tmp_path)
        assert (tmp_path / "lab").is_dir()
        assert (tmp_path / "cgroup.subtree_control").read_text() == "+memory"

    def test_removing_ends_the_processes_inside(self, controllers: Path) -> None:
        """Whatever runs in any of its cgroups is killed before they are removed."""
        child = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(60)"])
        try:
            inner = controllers / "memory/lab/n1/pod"
            inner.mkdir(parents=True)
            assert cgroups.processes_in(controllers / "memory/lab") == set()
            procs = inner / "cgroup.procs"
            procs.write_text(f"{child.pid}\n")
            assert cgroups.processes_in(controllers / "memory/lab") == {child.pid}
            with pytest.raises(errors.LabError, match="does not become empty"):
                cgroups.remove("lab", root=controllers, rounds=2)
            assert child.wait(10) == -signal.SIGKILL
            procs.unlink()
            cgroups.remove("lab", root=controllers)
            assert not (controllers / "memory/lab").exists()
        finally:
            child.kill()
            child.wait(10)

    def test_pid_0_is_not_signalled(self, controllers: Path) -> None:
        """A process of another pid namespace is shown as 0, and a signal to 0 goes to our own group."""
        (controllers / "memory/lab").mkdir()
        (controllers / "memory/lab/cgroup.procs").write_text("0\n")
        argv = [
            *(sys.executable, "-c"),
            "import sys; from pathlib import Path; from penstock_lab.kubernetes import cgroups\n"
            "try: cgroups.remove('lab', root=Path(sys.argv[1]), rounds=1)\n"
            "except Exception as error: print(error)",
            str(controllers),
        ]
        said = subprocess.run(
            argv, capture_output=True, text=True, timeout=30, check=False, start_new_session=True
        )
        assert said.returncode == 0
        assert "does not become empty" in said.stdout

    def test_more_processes_than_descriptors_go_too(
        self, controllers: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """A job may have thousands, and each that is held takes one of ours."""
        monkeypatch.setattr(cgroups, "_AT_ONCE", 2)
        held: list[int] = []
        most, opened, closed = [0], os.pidfd_open, os.close

        def hold(pid: int) -> int:
            held.append(opened(pid))
            most.append(len(held))
            return held[-1]

        def let_go(descriptor: int) -> None:
            closed(descriptor)
            if descriptor in held:
                held.remove(descriptor)

        children = [subprocess.Popen(["sleep", "60"]) for _ in range(5)]
        (controllers / "memory/lab").mkdir()
        procs = controllers / "memory/lab/cgroup.procs"
        procs.write_text("".join(f"{child.pid}\n" for child in children))
        try:
            with monkeypatch.context() as patch:
                patch.setattr(os, "pidfd_open", hold)
                patch.setattr(os, "close", let_go)
                cgroups._kill_all(controllers / "memory/lab")
            assert [child.wait(10) for child in children] == [-signal.SIGKILL] * 5
        finally:
            for child in children:
                child.kill()
                child.wait(10)
        assert (max(most), held) == (2, [])

    def test_removing_a_missing_cgroup_is_fine(self, controllers: Path) -> None:
        """For a lab that never got so far."""
        cgroups.remove("lab", root=controllers)
        assert sorted(path.name for path in controllers.iterdir()) == [
            *("cpuacct", "cpuset", "memory", "net_cls,net_prio")
        ]

    def test_a_tree_that_cannot_be_written_is_noticed(self, tmp_path: Path) -> None:
        """By trying."""
        assert cgroups.writable(tmp_path)
        assert not cgroups.writable(tmp_path / "nowhere")
        assert list(tmp_path.iterdir()) == []


class TestView:
    @given(st.integers(1, 10_000_000))
    def test_memory_is_what_the_node_should_have(self, megabytes: int) -> None:
        """In the words of /proc/meminfo, as a kubelet reads them."""
        lines = dict(line.split(":") for line in nodeview.render_memory(megabytes).splitlines())
        number, unit = lines["MemTotal"].split()
        assert (int(number) * 1024, unit) == (megabytes * 2**20, "kB")
        assert lines["SwapTotal"].split()[0] == "0"

    def test_a_view_has_a_directory_for_each_cpu(self, tmp_path: Path) -> None:
        """That is how they are counted."""
        nodeview.prepare(tmp_path / "view", cpus=3, memory_mb=100)
        assert sorted(path.name for path in (tmp_path / "view/cpu").iterdir()) == ["cpu0", "cpu1", "cpu2"]
        assert list((tmp_path / "view/node").iterdir()) == []

    def test_only_what_the_host_has_is_replaced(self, tmp_path: Path) -> None:
        """A machine without NUMA nodes has nothing to hide."""
        chosen = nodeview.replacements(tmp_path)
        assert chosen[nodeview.MEMORY] == tmp_path / "meminfo"
        assert all(target.exists() for target in chosen)

    def test_only_the_program_sees_the_view(self, tmp_path: Path) -> None:
        """The size of the node inside, the host's outside, and nothing stays mounted."""
        if os.geteuid() != 0:
            pytest.skip("a mount namespace needs root")
        view = tmp_path / "view"
        nodeview.prepare(view, cpus=5, memory_mb=12345)
        replaced = {str(target) for target in nodeview.replacements(view)}
        before = mountcalls.mount_points() & replaced  # labs nearby mount and unmount their own
        argv = [sys.executable, "-m", nodeview.__name__, str(view), "/bin/cat", "/proc/meminfo"]
        said = subprocess.run(argv, capture_output=True, text=True, timeout=30, check=True).stdout
        assert f"{12345 * 1024} kB" in said.splitlines()[0]
        assert nodeview.MEMORY.read_text().splitlines()[0] != said.splitlines()[0]
        assert mountcalls.mount_points() & replaced == before


class TestMounts:
    @given(st.text(alphabet="abc \\\tä/", min_size=1, max_size=20))
    def test_escapes_of_mountinfo_are_undone(self, path: str) -> None:
        """Blanks and backslashes are written as octal numbers there."""
        escaped = "".join(f"\\{ord(letter):03o}" if letter in " \t\n\\" else letter for letter in path)
        line = f"36 35 98:0 /mnt1 /{escaped} rw,noatime master:1 - ext3 /dev/root rw"
        assert mountcalls.parse_mount_point(line) == f"/{path}"

    def test_mount_points_may_be_invalid_utf_8(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        """Names are bytes; one in Latin-1 must not break the parser."""
        line = b"36 35 98:0 / /media/%s rw,noatime - ext3 /dev/root rw\n"
        (tmp_path / "mountinfo").write_bytes(line % b"caf\xe9" + line % "café\x85".encode())
        monkeypatch.setattr(mountcalls, "_MOUNTINFO", tmp_path / "mountinfo")
        assert mountcalls.all_mounts() == [os.fsdecode(b"/media/caf\xe9"), "/media/café\x85"]

    def test_the_mount_of_a_path_is_the_nearest_one(self) -> None:
        """/proc/sys lies on /proc."""
        assert mountcalls.mount_holding(Path("/proc/sys/kernel")) == Path("/proc")
        assert str(mountcalls.mount_holding(Path("/usr/bin"))) in mountcalls.mount_points()

    def test_a_mount_that_fails_names_the_place(self, tmp_path: Path) -> None:
        """The error is the kernel's, with the target."""
        with pytest.raises(OSError, match="nowhere"):
            mountcalls.bind(tmp_path, tmp_path / "nowhere")


class TestRemains:
    @pytest.mark.parametrize(
        ("argv", "ours"),
        [
            (("/cache/kubelet", "--config=/lab/kubernetes/n1/kubelet.json"), True),
            (("/usr/bin/containerd-shim-runc-v2", "-address", "/lab/kubernetes/n1/c.sock"), True),
            (("containerd", "--config", "/lab/kubernetes/n1/containerd.toml"), True),
            (("/cache/kubelet", "--config=/lab2/kubernetes/n1/kubelet.json"), False),
            (("/cache/kubelet", "--config=/srv/lab/kubernetes/n1/kubelet.json"), False),
            (("containerd", "--config", "/srv/lab/kubernetes/n1/containerd.toml"), False),
            (("containerd",), False),
            (("vim", "/lab/kubernetes/n1/kubelet.json"), False),
            ((), False),
        ],
    )
    def test_what_belongs_to_a_cluster_is_known_for_sure(self, argv: tuple[str, ...], ours: bool) -> None:
        """By program and by a file of this very lab; neither alone is enough."""
        found = processes.Process(identity=processes.Identity(1, 1), parent=1, name="x", uid=0, argv=argv)
        assert remains.daemons_of(Path("/lab"), [found]) == ([found] if ours else [])


class TestHost:
    @pytest.fixture
    def machine(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
        """A machine that forwards nothing and has never seen a kubelet."""
        (tmp_path / "cgroup.controllers").touch()
        (tmp_path / "ip_forward").write_text("0\n")
        (tmp_path / "containerd").mkdir()
        monkeypatch.setattr(cgroups.trees, "__defaults__", (tmp_path,))
        monkeypatch.setattr(cgroups.make, "__kwdefaults__", {"root": tmp_path})
        monkeypatch.setattr(hostnote, "NOTE", tmp_path / "note")
        monkeypatch.setattr(hostnote, "FORWARDING", tmp_path / "ip_forward")
        monkeypatch.setattr(processes, "boot_id", lambda: "first")
        monkeypatch.setattr(hostnote, "FOLDERS", (tmp_path / "containerd", tmp_path / "kubelet"))
        return tmp_path

    def up(self, machine: Path, directory: str) -> layout.Cluster:
        made = dataclasses.replace(cluster(), directory=Path(directory))
        hostnote.remember(made)
        (machine / "kubelet").mkdir(exist_ok=True)
        (machine / "ip_forward").write_text("1\n")
        return made

    def down(self, machine: Path, made: layout.Cluster) -> None:
        (machine / made.cgroup).rmdir()
        hostnote.restore()

    @pytest.mark.parametrize("first", [0, 1], ids=["oldest first", "newest first"])
    def test_last_cluster_restores_the_host_settings(self, machine: Path, first: int) -> None:
        """In any order; what the second found was set by the first."""
        labs = [self.up(machine, "/a"), self.up(machine, "/b")]
        self.down(machine, labs.pop(first))
        assert (machine / "ip_forward").read_text() == "1\n"
        assert (machine / "kubelet").is_dir()
        self.down(machine, labs.pop())
        assert (machine / "ip_forward").read_text() == "0\n"
        assert sorted(path.name for path in machine.iterdir()) == [
            *("cgroup.controllers", "containerd", "ip_forward")
        ]

    @pytest.mark.parametrize("up_again", [False, True])
    def test_a_restart_of_the_machine_is_outlived(
        self, machine: Path, monkeypatch: pytest.MonkeyPatch, up_again: bool
    ) -> None:
        """A directory is still the first cluster's doing; the setting is what the administrator made it."""
        made = self.up(machine, "/a")
        (machine / made.cgroup).rmdir()
        monkeypatch.setattr(processes, "boot_id", lambda: "second")
        (machine / "ip_forward").write_text("2\n")
        if up_again:
            self.down(machine, self.up(machine, "/a"))
        else:
            hostnote.restore()
        assert (machine / "ip_forward").read_text() == "2\n"
        assert sorted(path.name for path in machine.iterdir()) == [
            *("cgroup.controllers", "containerd", "ip_forward")
        ]

    def test_incomplete_note_is_ignored(self, machine: Path) -> None:
        """Its writer was killed."""
        (machine / "note").write_text('{"forwa')
        hostnote.restore()
        assert (machine / "ip_forward").read_text() == "0\n"
        assert not (machine / "note").exists()


class TestRequirements:
    @pytest.fixture
    def nothing_here(self, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
        """A machine with neither Go nor containerd nor a checkout."""
        monkeypatch.setenv(wellknown.ENV_LAB_PATH, str(tmp_path))
        monkeypatch.setattr(requirements, "PROGRAMS", {"containerd": "containerd", "runc": "runc"})
        monkeypatch.setattr(builds, "USUAL_GO_PLACES", ())

    @pytest.mark.usefixtures("nothing_here")
    def test_all_missing_requirements_are_reported_at_once(self) -> None:
        """Go, programs with their packages: one list."""
        found = requirements.missing({"PATH": "/nonexistent"})
        assert found[0] == "Go is not installed (Go 1.26 or newer)"
        assert found[1] == "not installed: containerd, runc (apt-get install containerd runc)"

    @pytest.mark.usefixtures("nothing_here")
    def test_a_lab_that_needs_it_refuses_with_all_of_it(self) -> None:
        """And says what works without."""
        with pytest.raises(errors.LabError, match=r"Go is not installed.*: containerd, runc") as failure:
            requirements.require({"PATH": "/nonexistent"})
        assert "dev cluster" in failure.value.hint

    @pytest.mark.parametrize(
        ("status", "may"),
        [
            ("CapEff:\t0000000000200000\n", True),
            ("CapEff:\t0000000000000000\n", False),
            ("Name:\tx\n", False),
        ],
    )
    def test_the_right_to_mount_is_a_bit(self, status: str, may: bool) -> None:
        """CAP_SYS_ADMIN is the twenty-first."""
        assert requirements.may_mount(status) is may
