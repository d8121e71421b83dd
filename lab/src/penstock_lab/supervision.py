"""Starts and stops components.

No process of ours keeps watching the daemons: each is recorded with pid, start time and boot id, by which
later commands identify it. If a daemon dies while starting, the error has the last lines of its log.
"""

from __future__ import annotations

import os
import subprocess
import threading
import time

import msgspec

from penstock import errors
from penstock_lab import components, files, loopback, passwd, paths, ports, processes, subprocesses

POLL_SECONDS = 0.05
LONGEST_POLL_SECONDS = 0.2
"""A check costs a command or a request, and a daemon that takes seconds to start needs the CPU."""
PORT_SECONDS = 15.0
"""How long a port may stay in use by a process that has just ended: the kernel reports it as dead before its
last threads have ended.
"""


class Record(msgspec.Struct, frozen=True, kw_only=True):
    """run/<component>.json: the component's process."""

    pid: int
    start_ticks: int
    boot_id: str
    started_at: float

    @property
    def identity(self) -> processes.Identity:
        return processes.Identity(self.pid, self.start_ticks)


class Supervisor:
    """Starts and stops components of one lab; `cancel` aborts all pending starts."""

    def __init__(self, place: paths.LabPaths) -> None:
        self.place = place
        self.cancel = threading.Event()
        self._children: dict[str, subprocess.Popen[bytes]] = {}

    def record(self, name: str) -> Record | None:
        """The component's record, if its process is alive."""
        record = read_record(self.place, name)
        self.reap()
        return record if record is not None and processes.alive(record.identity) else None

    def reap(self) -> None:
        """Reap children that have ended; in a long-running caller they would stay zombies."""
        for child in list(self._children.values()):
            child.poll()

    def ensure(self, component: components.Component) -> bool:
        """Restart the component unless it is healthy; True if it was started.

        After cancellation nothing is stopped: the component may only be slow to answer.
        """
        if self._recovers(component):
            return False
        if self.cancel.is_set():
            raise errors.LabError(f"{component.name}: start aborted")
        self.stop(component)
        self.start(component)
        return True

    def _recovers(self, component: components.Component) -> bool:
        deadline = time.monotonic() + component.recover_seconds
        while self.record(component.name) is not None:
            if not component.check():
                return True
            if time.monotonic() > deadline or self.cancel.wait(POLL_SECONDS * 4):
                return False
        return False

    def start(self, component: components.Component) -> None:
        """Start the component and wait until it is healthy; raises LabError with the end of its log."""
        if component.port is not None:
            ports.wait_free(component.name, component.port, seconds=PORT_SECONDS)
        log = self.place.component_log(component.name)
        seen = log.stat().st_size if log.exists() else 0
        child = self._spawn(component)
        self._write_record(component.name, child.pid)
        self._wait_until_healthy(component, child, log_offset=seen)

    def stop(self, component: components.Component) -> None:
        """Stop the component if it runs; raises LabError if SIGKILL does not help."""
        record = self.record(component.name)
        if record is not None and processes.end([record.identity], grace=component.stop_seconds):
            raise errors.LabError(f"{component.name} (pid {record.pid}) cannot be killed")
        self.reap()
        self.place.component_record(component.name).unlink(missing_ok=True)

    def _spawn(self, component: components.Component) -> subprocess.Popen[bytes]:
        log = self.place.component_log(component.name)
        named = component.on_loopback and loopback.has_own_name()
        try:
            with log.open("ab") as stream:
                child = subprocess.Popen(
                    (*loopback.prefix(component.user), *component.argv) if named else component.argv,
                    stdin=subprocess.DEVNULL,
                    stdout=stream,
                    stderr=subprocess.STDOUT,
                    env=subprocesses.base_environment() | dict(component.environment),
                    cwd="/",
                    umask=0o022,
                    start_new_session=True,
                    **passwd.identity(None if named else component.user),
                )
        except FileNotFoundError as error:
            hint = subprocesses.package_hint(component.argv[0])
            raise errors.LabError(f"the program {component.argv[0]} is not installed", hint=hint) from error
        self._children[component.name] = child
        return child

    def _write_record(self, name: str, pid: int) -> None:
        identity = processes.identify(pid) or processes.Identity(pid, 0)
        record = Record(
            pid=pid, start_ticks=identity.start_ticks, boot_id=processes.boot_id(), started_at=time.time()
        )
        files.write(self.place.component_record(name), msgspec.json.encode(record), mode=0o644)

    def _wait_until_healthy(
        self, component: components.Component, child: subprocess.Popen[bytes], *, log_offset: int
    ) -> None:
        deadline = time.monotonic() + component.start_seconds
        complaint, pause = "", POLL_SECONDS
        while time.monotonic() < deadline:
            if child.poll() is not None:
                raise self._failed(component, f"ended {_how(child.returncode)} while starting", log_offset)
            complaint = component.check()
            if not complaint:
                return
            if self.cancel.wait(pause):
                raise errors.LabError(f"{component.name}: start aborted")
            pause = min(pause * 1.2, LONGEST_POLL_SECONDS)
        raise self._failed(
            component, f"not ready after {component.start_seconds:.0f} s: {complaint}", log_offset
        )

    def _failed(self, component: components.Component, what: str, log_offset: int) -> errors.LabError:
        log = self.place.component_log(component.name)
        lines = files.tail(log, since=log_offset)
        if subprocesses.speaks_of_full_disk("\n".join(lines)):
            return subprocesses.full_disk(component.name)
        said = "".join(f"\n    {line}" for line in lines) or " (nothing)"
        return errors.LabError(f"{component.name} {what}", hint=f"the end of {log}:{said}")


def read_record(place: paths.LabPaths, name: str) -> Record | None:
    """The component's record, unless it is missing, invalid or of an earlier boot."""
    try:
        record = msgspec.json.decode(place.component_record(name).read_bytes(), type=Record)
    except (OSError, msgspec.MsgspecError, UnicodeDecodeError):
        return None
    return record if record.boot_id == processes.boot_id() else None


def _how(code: int) -> str:
    return f"by signal {-code}" if code < 0 else f"with exit code {os.waitstatus_to_exitcode(code << 8)}"
