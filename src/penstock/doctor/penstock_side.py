"""Checks of Penstock itself: penstockd and its socket, the NAS, orphans, double booking."""

from __future__ import annotations

import functools
import stat
import tempfile
import time
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path

from penstock import errors, pings, wellknown
from penstock.doctor.checks import NotChecked, Problem, Registry, Skip
from penstock.doctor.live import Live
from penstock.hooks import wire
from penstock.install import facts, inventory, servicefolders
from penstock.intake import messages
from penstock.judge import rights
from penstock.kube import podview
from penstock.site.schema import Nas

registry = Registry()
SLOW_SECONDS = 1.0
SLOW_ANSWERS = 3
STARTING_SECONDS = 5.0
START_PENSTOCKD = "systemctl start penstockd, or however it is started here; its log says why it ended"


@registry.add("penstockd", "penstockd runs, is connected to Slurm and Kubernetes, and answers quickly")
def penstockd(live: Live) -> Iterator[Problem]:
    path = live.site.penstockd.socket
    try:
        answer, seconds = _quick_ping(path)
    except (OSError, wire.WireError) as error:
        yield Problem(f"penstockd does not answer on {path}: {error}", START_PENSTOCKD)
        return
    if answer != pings.WELL:
        _blame_others(live)
        message = f"penstockd answers {answer or 'nothing'}: it is not connected to Slurm or Kubernetes"
        yield Problem(message, "see its log")
    elif seconds > SLOW_SECONDS:
        yield Problem(f"penstockd took {seconds:.1f} s to answer", "is the host overloaded?", True)


def _blame_others(live: Live) -> None:
    """Raise NotChecked if slurmctld or the API itself is down: then that is the cause."""
    for name, side in {"slurmctld": "settings", "kubernetes": "kube_nodes"}.items():
        try:
            getattr(live, side)
        except errors.PenstockError:
            raise NotChecked(name) from None


def _quick_ping(path: str) -> tuple[str, float]:
    """Ask again after a slow answer: one may be load on the host, several mean that penstockd is slow."""
    for _ in range(SLOW_ANSWERS):
        answer, seconds = _ping(path)
        if answer != pings.WELL or seconds <= SLOW_SECONDS:
            break
    return answer, seconds


def _ping(path: str) -> tuple[str, float]:
    """Wait for a penstockd that has just been started and has not filled its caches yet."""
    deadline = time.monotonic() + STARTING_SECONDS
    while True:
        answer, seconds = pings.ping(path)
        if answer == pings.WELL or time.monotonic() >= deadline:
            return answer, seconds
        time.sleep(0.2)


@registry.add("socket", "SlurmUser and users have access to penstockd's socket")
def socket_rights(live: Live) -> Iterator[Problem]:
    path = Path(live.site.penstockd.socket)
    if not path.exists():
        raise NotChecked("penstockd")
    if not stat.S_ISSOCK(path.stat().st_mode):
        yield Problem(f"{path} is not a socket", "remove it and restart penstockd")
    elif path.stat().st_mode & 0o006 != 0o006:
        fix = functools.partial(path.chmod, 0o666)
        yield Problem(f"users' launchers have no access to {path}", f"chmod 666 {path}", fix=fix)
    for folder in path.parents:
        if not folder.stat().st_mode & 0o001:
            fix = functools.partial(folder.chmod, folder.stat().st_mode & 0o7777 | 0o111)
            yield Problem(f"users cannot reach {path} through {folder}", f"chmod a+x {folder}", fix=fix)


@registry.add("nas", "the NAS is mounted on this host and writable")
def nas(live: Live) -> Iterator[Problem]:
    site_nas = _nas(live)
    path = Path(site_nas.path)
    if not path.is_dir():
        yield Problem(f"{path} does not exist", "mount the NAS on this host")
        return
    try:
        with tempfile.TemporaryFile(dir=path):
            pass
    except OSError as error:
        yield Problem(f"{path} cannot be written: {error.strerror}", "is it mounted read-only, or full?")


@registry.add("nas-folders", "the NAS's folders exist, with the right owners")
def nas_folders(live: Live) -> Iterator[Problem]:
    if not Path(_nas(live).path).is_dir():
        raise Skip("the NAS is not mounted")
    yield from _folders(servicefolders.on_nas(live.site))


@registry.add("drop-readme", "the drop folder has a README for its users")
def drop_readme(live: Live) -> Iterator[Problem]:
    nas = _nas(live)
    folder = Path(nas.path) / nas.drop
    if not folder.is_dir():
        raise Skip("the drop folder does not exist")
    path = folder / wellknown.DROP_README
    if not path.is_file():
        fix = functools.partial(servicefolders.write, path, messages.README.encode())
        yield Problem(f"{path} is missing", "`penstock doctor --fix` writes it", warning=True, fix=fix)


@registry.add("state-folders", "folders shared by penstockd and the collector exist, with the right owners")
def state_folders(live: Live) -> Iterator[Problem]:
    yield from _folders(servicefolders.local(live.site))


def _folders(wanted: Iterable[tuple[Path, int, int]]) -> Iterator[Problem]:
    for folder, mode, owner in wanted:
        fix = functools.partial(servicefolders.make, folder, mode, owner)
        if not folder.is_dir():
            yield Problem(f"{folder} is missing", "`penstock doctor --fix` creates it", fix=fix)
            continue
        status = folder.stat()
        if status.st_mode & 0o7777 != mode or status.st_uid != owner:
            yield Problem(
                f"{folder} has mode {status.st_mode & 0o7777:o} and owner {status.st_uid}, "
                f"not {mode:o} and {owner}",
                "`penstock doctor --fix` sets them",
                fix=fix,
            )


def _nas(live: Live) -> Nas:
    if live.site.nas is None:
        raise Skip("the site file has no `nas`")
    return live.site.nas


@registry.add("orphans", "every job pod belongs to a live job")
def orphans(live: Live) -> Iterator[Problem]:
    yield from _confirmed(live, _orphans)


def _orphans(live: Live) -> Iterator[tuple[str, Problem]]:
    for pod in rights.orphans(filter(live.is_ours, live.pods), live.live_jobs):
        if not pod.metadata.deletion_timestamp:
            name, job = f"{pod.metadata.namespace}/{pod.metadata.name}", podview.job_id(pod)
            message = f"pod {name} belongs to job {job}, which is over or runs another attempt"
            yield (
                pod.metadata.uid,
                Problem(message, "penstockd should have removed it: see check `penstockd`"),
            )


@registry.add("double-booking", "no resource of a node is booked twice")
def double_booking(live: Live) -> Iterator[Problem]:
    yield from _confirmed(live, _double_bookings)


def _double_bookings(live: Live) -> Iterator[tuple[str, Problem]]:
    for node, allocatable in live.shared_nodes():
        for short in live.requested(node.name, ours=True).shortages(node.used):
            message = (
                f"{{nodes}}: pods of jobs request {short.what} {short.needed}, Slurm allocated {short.free}"
            )
            problem = Problem(message, "a pod outlived its job: see `orphans`", nodes=(node.name,))
            yield f"{node.name} {short.what} of jobs", problem
        free = allocatable - live.requested(node.name, ours=False)
        for short in node.used.shortages(free):
            message = f"{{nodes}}: Slurm allocated {short.what} {short.needed}, other pods leave {short.free}"
            remedy = "other pods were started after the jobs: keep them off the nodes of bridged partitions"
            yield (
                f"{node.name} {short.what} beside others",
                Problem(message, remedy, True, nodes=(node.name,)),
            )


def _confirmed(live: Live, find: Callable[[Live], Iterator[tuple[str, Problem]]]) -> Iterator[Problem]:
    """Report a finding only if a second look confirms it: jobs start and end between two queries."""
    suspected = {about for about, _ in find(live)}
    if suspected:
        live.look_again()
        yield from (problem for about, problem in find(live) if about in suspected)


@registry.add("foreign-pods", "other pods leave room for what Slurm schedules")
def foreign_pods(live: Live) -> Iterator[Problem]:
    for node, allocatable in live.shared_nodes():
        short = node.amount.shortages(allocatable - live.requested(node.name, ours=False))
        if short and not node.amount.shortages(allocatable):
            message = ", ".join(f"{each.what} {each.free} of {each.needed}" for each in short)
            remedy = "jobs may be requeued: set `reserved` of the node group, or move the pods"
            yield Problem(f"{{nodes}}: other pods leave {message}", remedy, True, nodes=(node.name,))


@registry.add("apply", "no `penstock apply` was interrupted")
def unfinished(live: Live) -> Iterator[Problem]:
    store = inventory.Store(Path(live.site.penstockd.state_dir) / "installed")
    if store.journal_path.exists():
        yield Problem("`penstock apply` was interrupted", "run it again: it rolls back, then applies")


@registry.add("slurm-user", "slurmctld runs as the site file's slurm.user")
def slurm_user(live: Live) -> Iterator[Problem]:
    user = live.settings.get("SlurmUser", "")
    uid = facts.uid_of(live.site.slurm.user)
    if f"({uid})" not in user:
        yield Problem(
            f"slurmctld runs as {user}, the site file says {live.site.slurm.user}",
            "correct slurm.user: penstockd refuses requests from another user",
        )
