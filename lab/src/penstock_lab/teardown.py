"""Takes a lab down: removes all its processes, mounts, users and files.

The lab's processes are identified reliably: recorded pids with their start times, daemons with open files in
the lab, launchers by the path of their program, all their descendants, and all processes of the user made for
the lab. This repeats until none is found, since new ones may start meanwhile.
"""

from __future__ import annotations

import errno
import signal
import time
from collections.abc import Iterable
from pathlib import Path

from penstock import errors
from penstock_lab import components, files, paths, processes, spec, subprocesses, supervision, users
from penstock_lab.devcluster import podprocesses as devcluster
from penstock_lab.kubernetes import cgroups, mountcalls, variants

DAEMON_NAMES = frozenset({"munged", "mariadbd", "slurmdbd", "slurmctld", "slurmd", "slurmstepd"})
OUR_PROGRAMS = (
    ("-m", "penstock_lab.devcluster"),
    ("-m", "penstock_lab.faultproxy"),
    ("-m", "penstock_lab.kubernetes.nodeview"),
    ("-m", "penstock", "daemon"),
    ("-m", "penstock", "intake"),
    ("-m", "penstock", "collector"),
)
"""Arguments of our own components after the interpreter; a test compares it with the components."""
_ROUNDS = 20


def tear_down(place: paths.LabPaths, lab: spec.LabSpec | None) -> None:
    """Remove everything of the lab; without `lab` (lab.json is invalid), as much as possible."""
    end_processes(place, lab)
    _unmount(place.directory)
    if lab is not None and lab.user_created:
        users.remove_created(place, lab.user)
    _remove_tree(place)
    remove_if_empty(place.directory)


def end_processes(place: paths.LabPaths, lab: spec.LabSpec | None) -> None:
    """Kill every process of the lab, recorded or not."""
    _stop_in_order(place, lab)
    variants.clear(place, lab)
    _end_the_rest(place, lab)
    cgroups.remove(devcluster.cgroup_name(place.devcluster_data))  # exists only if the dev cluster was killed


def _stop_in_order(place: paths.LabPaths, lab: spec.LabSpec | None) -> None:
    """Stop dependents first, so that no daemon logs a lost peer."""
    if lab is None:
        return
    groups: dict[str, list[components.Component]] = {}
    for component in reversed(components.all_components(place, lab)):
        groups.setdefault(component.name.partition("-")[0], []).append(component)
    for group in groups.values():
        _stop_together(place, group)


def _stop_together(place: paths.LabPaths, group: list[components.Component]) -> None:
    """Uses one snapshot for records and descendants: a record's pid may have been reused."""
    records = [supervision.read_record(place, component.name) for component in group]
    everything = processes.snapshot()
    living = {process.identity for process in everything}
    running = [record.identity for record in records if record is not None and record.identity in living]
    below = processes.descendants([identity.pid for identity in running], everything)
    processes.end(running, grace=max(component.stop_seconds for component in group))
    for process in below:
        processes.send(process.identity, signal.SIGKILL)


def _end_the_rest(place: paths.LabPaths, lab: spec.LabSpec | None) -> None:
    uid = users.created_uid(place, lab.user) if lab is not None and lab.user_created else None
    left: list[processes.Process] = []
    for _ in range(_ROUNDS):
        left = belonging(place, processes.snapshot(), created_uid=uid)
        if not left:
            return
        for process in left:
            processes.send(process.identity, signal.SIGKILL)
        processes.wait_gone([process.identity for process in left], seconds=1.0)
    names = ", ".join(f"{process.name} (pid {process.pid})" for process in left)
    raise errors.LabError(f"processes cannot be killed: {names}")


def belonging(
    place: paths.LabPaths, everything: list[processes.Process], *, created_uid: int | None
) -> list[processes.Process]:
    recorded = {record.identity for record in _records(place)}
    own = [
        process
        for process in everything
        if process.identity in recorded
        or (created_uid is not None and process.uid == created_uid)
        or _is_launcher(place, process)
        or _is_our_program(place, process)
        or (process.name in DAEMON_NAMES and processes.holds(process.pid, place.directory))
    ]
    below = processes.descendants([process.pid for process in own], everything)
    return list({process.pid: process for process in (*own, *below)}.values())


def _is_launcher(place: paths.LabPaths, process: processes.Process) -> bool:
    """Whether it runs the launcher, directly or by an interpreter, unlike an editor with that file."""
    prefix = f"{place.libexec}/"
    python = process.argv[:1] and "python" in Path(process.argv[0]).name
    words = process.argv[:3] if python else process.argv[:1]
    return any(word.startswith(prefix) for word in words)


def _is_our_program(place: paths.LabPaths, process: processes.Process) -> bool:
    """Whether it is a component of ours, even if its record is lost."""
    is_ours = any(process.argv[1 : 1 + len(words)] == words for words in OUR_PROGRAMS)
    return is_ours and any(word.startswith(f"{place.directory}/") for word in process.argv)


def _records(place: paths.LabPaths) -> Iterable[supervision.Record]:
    for path in place.run.glob("*.json"):
        record = supervision.read_record(place, path.stem)
        if record is not None:
            yield record


def _unmount(directory: Path) -> None:
    """Unmount everything below the lab, innermost first, until no mount is found: one may hide another, and
    removing files through a remaining mount would delete data outside the lab.
    """
    for _ in range(_ROUNDS):
        below = [point for point in mountcalls.all_mounts() if point.startswith(f"{directory}/")]
        if not below:
            return
        for point in sorted(below, key=len, reverse=True):
            if subprocesses.run(("umount", point), check=False).returncode != 0:
                subprocesses.run(("umount", "--lazy", point), check=False)
    raise errors.LabError(f"cannot unmount, so nothing in {directory} was removed: {', '.join(below)}")


def _remove_tree(place: paths.LabPaths) -> None:
    """Remove everything in the directory; lab.json last, so that another `down` can finish the work."""
    for _ in range(_ROUNDS):
        try:
            for entry in place.directory.iterdir():
                if entry != place.spec:
                    files.remove(entry)
            place.spec.unlink(missing_ok=True)
        except FileNotFoundError:
            return
        except OSError as error:
            if error.errno != errno.ENOTEMPTY:
                raise subprocesses.from_os_error(error, doing=f"removing {place.directory}") from error
            time.sleep(0.05)
        else:
            return
    raise errors.LabError(f"{place.directory} does not become empty: a process keeps writing there")


def remove_if_empty(directory: Path) -> None:
    """Remove the directory if it is empty, and the default parent of labs after the last one."""
    for path in (directory, directory.parent):
        if path not in (directory, paths.DEFAULT_PARENT):
            continue
        try:
            path.rmdir()
        except OSError as error:
            if error.errno not in (errno.ENOENT, errno.ENOTEMPTY, errno.EBUSY):
                raise subprocesses.from_os_error(error, doing=f"removing {path}") from error
