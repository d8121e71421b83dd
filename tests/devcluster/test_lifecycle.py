"""The program itself: how it starts, stops, and cleans up after a hard death."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx2
import pytest

from penstock_lab.devcluster import agent, podprocesses
from tests.devcluster import clusters as testing
from tests.devcluster import marks
from tests.devcluster.clusters import pod

NODES = '[{"name": "n1", "cpus": 8, "memory_mb": 1024, "labels": {"zone": "a"}}]'


@dataclass
class Program:
    """A dev cluster as the lab starts it."""

    directory: Path
    port: int
    process: subprocess.Popen[bytes] | None = None

    def start(self) -> testing.Client:
        argv = [sys.executable, "-m", "penstock_lab.devcluster", "--data-dir", str(self.directory / "data")]
        argv += ["--port", str(self.port), "--tokens", str(self.directory / "tokens")]
        argv += ["--nodes", str(self.directory / "nodes")]
        self.process = subprocess.Popen(argv, stderr=subprocess.PIPE)
        client = testing.Client(f"http://127.0.0.1:{self.port}", "t", "default")
        for _ in range(1200):
            try:
                client.http.get("/readyz")
                return client
            except httpx2.TransportError:
                time.sleep(0.05)
        raise AssertionError("the dev cluster did not start")

    def end(self, number: int = signal.SIGTERM) -> int:
        assert self.process is not None
        self.process.send_signal(number)
        try:
            self.process.communicate(timeout=60)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.communicate()
            raise
        return self.process.returncode


@pytest.fixture
def program(tmp_path: Path) -> Iterator[Program]:
    (tmp_path / "tokens").write_text("t,admin,admin\n")
    (tmp_path / "nodes").write_text(NODES)
    made = Program(tmp_path, testing.free_port())
    yield made
    if made.process and made.process.poll() is None:
        made.process.kill()
        made.process.communicate()
    podprocesses.Cgroups(tmp_path / "data").remove_all()


def sleeper(mark: str, **spec: Any) -> dict[str, Any]:
    script = f": {mark}; trap '' TERM; while :; do sleep 0.1; done"
    return pod("p", "sh", "-c", script, container={"resources": {"limits": {"memory": "64Mi"}}}, **spec)


def test_nodes_come_from_the_file(program: Program) -> None:
    """Capacity, labels and readiness are as the file says."""
    with program.start() as api:
        node = api.call("GET", "/api/v1/nodes/n1")
    assert node["status"]["allocatable"]["memory"] == "1024Mi"
    assert node["status"]["capacity"]["cpu"] == "8"
    assert node["metadata"]["labels"]["zone"] == "a"
    assert program.end() == 0


def test_sigterm_cleans_up(program: Program) -> None:
    """A process that ignores SIGTERM, its cgroup and its files are gone, and its grace period is not waited
    for.
    """
    mark = marks.new()
    with program.start() as api:
        api.create("pods", sleeper(mark, terminationGracePeriodSeconds=600))
        api.phase("p", "Running")
        assert marks.carriers(mark)
        assert program.end() == 0
    assert marks.carriers(mark) == []
    assert list((program.directory / "data" / "pods").iterdir()) == []
    assert str(program.directory) not in Path("/proc/self/mountinfo").read_text()
    left = [path for base in (podprocesses.LEGACY, podprocesses.UNIFIED) for path in base.glob("penstock-*")]
    assert podprocesses.Cgroups(program.directory / "data").parent.name not in [path.name for path in left]


def test_sigterm_ends_open_watches(program: Program) -> None:
    """Clients that watch do not keep the server from stopping."""
    with program.start() as api, api.http.stream("GET", "/api/v1/pods", params={"watch": "1"}) as answer:
        assert answer.status_code == 200
        assert program.end() == 0


def test_sigkill_ends_pods_and_restart_is_clean(program: Program) -> None:
    """After SIGKILL no pod process survives, and the next start has an empty store and no leftover cgroup."""
    mark = marks.new()
    with program.start() as api:
        api.create("pods", sleeper(mark))
        api.phase("p", "Running")
        program.end(signal.SIGKILL)
    assert marks.left_over(mark) == []
    with program.start() as api:
        assert api.get("pods")["items"] == []
        api.create("pods", pod("p", "true"))
        api.phase("p", "Succeeded")
    assert program.end() == 0


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (("nodes", "[{}]"), "nodes file"),
        (("nodes", "{"), "nodes file"),
        (("tokens", "x"), "tokens file"),
    ],
)
def test_invalid_files_are_usage_errors(program: Program, change: tuple[str, str], message: str) -> None:
    """An invalid file ends the program with code 2 and no traceback."""
    (program.directory / change[0]).write_text(change[1])
    argv = [
        sys.executable,
        "-m",
        "penstock_lab.devcluster",
        "--data-dir",
        str(program.directory / "data"),
        "--port",
        "1",
    ]
    argv += ["--tokens", str(program.directory / "tokens"), "--nodes", str(program.directory / "nodes")]
    done = subprocess.run(argv, capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 2
    assert message in done.stderr
    assert "Traceback" not in done.stderr


def test_second_cluster_in_one_directory_is_refused(program: Program) -> None:
    """It would kill the pods of the first."""
    with program.start():
        argv = [sys.executable, "-m", "penstock_lab.devcluster"]
        argv += ["--data-dir", str(program.directory / "data")]
        argv += ["--port", str(testing.free_port()), "--tokens", str(program.directory / "tokens")]
        argv += ["--nodes", str(program.directory / "nodes")]
        done = subprocess.run(argv, capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 2
    assert "another dev cluster runs in" in done.stderr


def test_without_root_pods_are_plain_processes(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """No namespaces, no mounts: a volume that would need one fails the pod with a clear message."""
    monkeypatch.setattr(agent, "may_isolate", lambda: False)
    here = [{"name": "v", "hostPath": {"path": str(tmp_path)}}]
    mounts = {"volumeMounts": [{"name": "v", "mountPath": str(tmp_path)}]}
    elsewhere = {"volumeMounts": [{"name": "v", "mountPath": "/elsewhere"}]}
    with testing.serve() as running, running.client() as api:
        api.create(
            "pods", pod("plain", "sh", "-c", f"touch {tmp_path}/f; exit 5", container=mounts, volumes=here)
        )
        found = api.phase("plain", "Failed")["status"]["containerStatuses"][0]["state"]["terminated"]
        assert found["exitCode"] == 5
        assert (tmp_path / "f").exists()
        api.create("pods", pod("mounting", "true", container=elsewhere, volumes=here))
        found = api.phase("mounting", "Failed")["status"]["containerStatuses"][0]["state"]["terminated"]
        assert "the dev cluster does not run as root" in found["message"]
        api.create("pods", pod("sleeper", "sh", "-c", "sleep 60 & sleep 60", terminationGracePeriodSeconds=1))
        api.phase("sleeper", "Running")
        api.delete("pods", "sleeper")
        api.gone("sleeper")


def test_idle_cluster_uses_no_cpu(program: Program) -> None:
    """Two seconds with a running pod and an open watch cost next to nothing, once all has settled."""
    with program.start() as api:
        api.create("pods", pod("p", "sleep", "60"))
        api.phase("p", "Running")
        with api.http.stream("GET", "/api/v1/pods", params={"watch": "1"}):
            assert program.process is not None
            assert any(_used_in_two_seconds(program.process.pid) <= 0.02 for _ in range(15))
    assert program.end() == 0


def _used_in_two_seconds(pid: int) -> float:
    before = _cpu_seconds(pid)
    time.sleep(2)
    return _cpu_seconds(pid) - before


def _cpu_seconds(pid: int) -> float:
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")
