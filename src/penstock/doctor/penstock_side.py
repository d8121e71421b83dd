"""Between the two: penstockd and its socket, the NAS, what is left over, what contradicts the promises."""

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
START_PENSTOCKD = "systemctl start penstockd, or what runs it here; its log says why it ended"


@registry.add("penstockd", "penstockd is alive, in touch with Kubernetes and quick")
def penstockd(live: Live) -> Iterator[Problem]:
    path = live.site.penstockd.socket
    try:
        answer, seconds = _quick_ping(path)
    except (OSError, wire.WireError) as error:
        yield Problem(f"penstockd does not answer on {path}: {error}", START_PENSTOCKD)
        return
    if answer != pings.WELL:
        _blame_others(live)
        yield Problem(
            f"penstockd says {answer or 'nothing'}: it is not in touch with Slurm or Kubernetes",
            "its log says which of them",
        )
    elif seconds > SLOW_SECONDS:
        yield Problem(f"penstockd took {seconds:.1f} s to answer", "is the host overloaded?", True)


def _blame_others(live: Live) -> None:
    """A penstockd that is out of touch with somebody who answers nobody is no second cause."""
    for name, side in {"slurmctld": "settings", "kubernetes": "kube_nodes"}.items():
        try:
            getattr(live, side)
        except errors.PenstockError:
            raise NotChecked(name) from None


def _quick_ping(path: str) -> tuple[str, float]:
    """The first answer that comes quickly: one slow answer is a busy moment, several are a slow penstockd."""
    for _ in range(SLOW_ANSWERS):
        answer, seconds = _ping(path)
        if answer != pings.WELL or seconds <= SLOW_SECONDS:
            break
    return answer, seconds


def _ping(path: str) -> tuple[str, float]:
    """The answer of a penstockd that was started before: a moment ago it may not know yet what runs."""
    deadline = time.monotonic() + STARTING_SECONDS
    while True:
        answer, seconds = pings.ping(path)
        if answer == pings.WELL or time.monotonic() >= deadline:
            return answer, seconds
        time.sleep(0.2)


@registry.add("socket", "SlurmUser and users may use penstockd's socket")
def socket_rights(live: Live) -> Iterator[Problem]:
    path = Path(live.site.penstockd.socket)
    if not path.exists():
        raise NotChecked("penstockd")
    if not stat.S_ISSOCK(path.stat().st_mode):
        yield Problem(f"{path} is not a socket", "remove it and restart penstockd")
    elif path.stat().st_mode & 0o006 != 0o006:
        fix = functools.partial(path.chmod, 0o666)
        yield Problem(
            f"{path} is closed to users: their launchers cannot use it", f"chmod 666 {path}", fix=fix
        )
    for folder in path.parents:
        if not folder.stat().st_mode & 0o001:
            fix = functools.partial(folder.chmod, folder.stat().st_mode & 0o7777 | 0o111)
            yield Problem(
                f"{folder} is closed to users: {path} is out of reach", f"chmod a+x {folder}", fix=fix
            )


@registry.add("nas", "the NAS is mounted here and can be written")
def nas(live: Live) -> Iterator[Problem]:
    site_nas = _nas(live)
    path = Path(site_nas.path)
    if not path.is_dir():
        yield Problem(f"{path} is not there", "mount the NAS on this host")
        return
    try:
        with tempfile.TemporaryFile(dir=path):
            pass
    except OSError as error:
        yield Problem(f"{path} cannot be written: {error.strerror}", "is it mounted read-only, or full?")


@registry.add("nas-folders", "the NAS's folders are there, with the right owners")
def nas_folders(live: Live) -> Iterator[Problem]:
    if not Path(_nas(live).path).is_dir():
        raise Skip("the NAS is not there")
    yield from _folders(servicefolders.on_nas(live.site))


@registry.add("drop-readme", "the drop folder tells its users what it is")
def drop_readme(live: Live) -> Iterator[Problem]:
    nas = _nas(live)
    folder = Path(nas.path) / nas.drop
    if not folder.is_dir():
        raise Skip("the drop folder is not there")
    path = folder / wellknown.DROP_README
    if not path.is_file():
        fix = functools.partial(servicefolders.write, path, messages.README.encode())
        yield Problem(f"{path} is missing", "`penstock doctor --fix` writes it", warning=True, fix=fix)


@registry.add("state-folders", "folders between penstockd and the collector are there, with the right owners")
def state_folders(live: Live) -> Iterator[Problem]:
    yield from _folders(servicefolders.local(live.site))


def _folders(wanted: Iterable[tuple[Path, int, int]]) -> Iterator[Problem]:
    for folder, mode, owner in wanted:
        fix = functools.partial(servicefolders.make, folder, mode, owner)
        if not folder.is_dir():
            yield Problem(f"{folder} is missing", "`penstock doctor --fix` makes it", fix=fix)
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


@registry.add("orphans", "every pod of a job belongs to a job that lives")
def orphans(live: Live) -> Iterator[Problem]:
    yield from _seen_twice(live, _orphans)


def _orphans(live: Live) -> Iterator[tuple[str, Problem]]:
    for pod in rights.orphans(filter(live.is_ours, live.pods), live.live_jobs):
        if not pod.metadata.deletion_timestamp:
            name, job = f"{pod.metadata.namespace}/{pod.metadata.name}", podview.job_id(pod)
            message = f"pod {name} belongs to job {job}, which is over or runs another attempt"
            yield pod.metadata.uid, Problem(message, "penstockd removes it: is it well?")


@registry.add("double-booking", "no node is promised twice")
def double_booking(live: Live) -> Iterator[Problem]:
    yield from _seen_twice(live, _double_bookings)


def _double_bookings(live: Live) -> Iterator[tuple[str, Problem]]:
    for node, allocatable in live.both_truths():
        for short in live.requested(node.name, ours=True).shortages(node.used):
            problem = Problem(
                f"{{nodes}}: pods of jobs ask for {short.what} {short.needed}, Slurm gave {short.free}",
                "a pod outlived its job: see `orphans`",
                nodes=(node.name,),
            )
            yield f"{node.name} {short.what} of jobs", problem
        free = allocatable - live.requested(node.name, ours=False)
        for short in node.used.shortages(free):
            problem = Problem(
                f"{{nodes}}: Slurm gave away {short.what} {short.needed}, other pods leave {short.free}",
                "other pods came after the jobs: keep them off the nodes of bridged partitions",
                True,
                nodes=(node.name,),
            )
            yield f"{node.name} {short.what} beside others", problem


def _seen_twice(live: Live, find: Callable[[Live], Iterator[tuple[str, Problem]]]) -> Iterator[Problem]:
    """What a second look shows, too: between two questions of one look a job may start or end."""
    suspected = {about for about, _ in find(live)}
    if suspected:
        live.look_again()
        yield from (problem for about, problem in find(live) if about in suspected)


@registry.add("foreign-pods", "other pods leave room for what Slurm claims")
def foreign_pods(live: Live) -> Iterator[Problem]:
    for node, allocatable in live.both_truths():
        short = node.amount.shortages(allocatable - live.requested(node.name, ours=False))
        if short and not node.amount.shortages(allocatable):
            words = ", ".join(f"{each.what} {each.free} of {each.needed}" for each in short)
            yield Problem(
                f"{{nodes}}: beside other pods there are {words}",
                "jobs may be sent back: set `reserved` of the node group, or move the pods",
                True,
                nodes=(node.name,),
            )


@registry.add("apply", "no `penstock apply` was cut short")
def unfinished(live: Live) -> Iterator[Problem]:
    store = inventory.Store(Path(live.site.penstockd.state_dir) / "installed")
    if store.journal_path.exists():
        yield Problem("a call was killed half-way", "`penstock apply` takes it back and does it again")


@registry.add("slurm-user", "SlurmUser exists and runs the hooks' questions")
def slurm_user(live: Live) -> Iterator[Problem]:
    said = live.settings.get("SlurmUser", "")
    uid = facts.uid_of(live.site.slurm.user)
    if f"({uid})" not in said:
        yield Problem(
            f"slurmctld runs as {said}, the site file says {live.site.slurm.user}",
            "correct slurm.user: penstockd would refuse slurmctld's questions",
        )
