"""Starts penstockd: puts its parts together, drops root, and runs its loops until it is stopped."""

from __future__ import annotations

import asyncio
import contextlib
import functools
import logging
import os
import pwd
import resource
import shutil
import signal
from collections.abc import Awaitable, Callable, Iterable
from pathlib import Path

import msgspec

from penstock import clock, crashpoints, errors, systemd
from penstock.bridge import bridge as bridging
from penstock.bridge import context, epilogs, retries, sweeps
from penstock.daemon import logformat, metrics, preload
from penstock.daemon import server as serving
from penstock.daemon import settings as configuring
from penstock.kube import client as kube_client
from penstock.kube import kinds, podview, reflectors, types
from penstock.render import pods as rendering
from penstock.slurm import control

log = logging.getLogger(__name__)

BACKLOG = 1024  # of the socket, for many jobs that start at once; the kernel may allow less


def drop_privileges(user: str) -> None:
    """Become `user` for good."""
    preload.warm_up()
    try:
        entry = pwd.getpwnam(user)
    except KeyError:
        raise errors.UsageError(f"there is no user {user!r} on this host") from None
    if os.geteuid() == entry.pw_uid:
        return
    if os.geteuid() != 0:
        raise errors.UsageError(f"only root can run penstockd as {user!r}")
    os.initgroups(user, entry.pw_gid)
    os.setgid(entry.pw_gid)
    os.setuid(entry.pw_uid)


def give_folders(folders: Iterable[Path], user: str) -> None:
    """Give the user root's empty folders: the kubelet makes hostPath folders as root."""
    for folder in folders:
        folder.mkdir(parents=True, exist_ok=True)
        if folder.stat().st_uid == 0 and not any(folder.iterdir()):
            shutil.chown(folder, user)


def allow_all_descriptors() -> None:
    """Raise RLIMIT_NOFILE: a job needs one descriptor, or two if its output is fetched; systemd's default is
    1024.
    """
    hard = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))


def start(settings: configuring.Settings, *, fingerprint: str = "") -> None:
    """Run until SIGTERM or SIGINT; `fingerprint` is the settings file's."""
    logformat.configure(level=settings.log_level, as_json=settings.log_format == "json")
    allow_all_descriptors()
    asyncio.run(_run(settings, fingerprint))


async def _run(settings: configuring.Settings, fingerprint: str) -> None:
    time = clock.SystemClock()
    figures = metrics.Metrics()
    kube = kube_client.KubeClient(
        settings.access(), on_answer=lambda verb, code: figures.requests.labels(verb, code).inc()
    )
    on_list = lambda resource: figures.relists.labels(resource).inc()  # noqa: E731  # one line, used twice
    slurm = control.SlurmControl(
        settings.slurm_conf,
        on_call=lambda program: figures.commands.labels(program).inc(),
        gpu_resources=settings.pods.gpu_resources,
    )
    shapes = msgspec.structs.replace(settings.pods, cluster=await _cluster_name(slurm, time))
    ours = functools.partial(podview.as_seen_by, rendering.label_of(shapes.cluster))
    pods = reflectors.Reflector(
        kube, kinds.PODS, types.Pod, indexes=podview.INDEXES, time=time, on_list=on_list, view=ours
    )
    nodes = reflectors.Reflector(kube, kinds.NODES, types.Node, time=time, on_list=on_list)
    surroundings = context.Context(
        slurm=slurm, kube=kube, pods=pods, nodes=nodes, settings=shapes, time=time, meter=figures
    )
    bridge = bridging.assemble(
        surroundings,
        partitions=frozenset(settings.pods.partitions),
        notes=epilogs.Notes(Path(settings.socket).parent),
        start_timeout=settings.start_timeout,
        state_dir=settings.state_dir,
        results=settings.results.rstrip("/"),
    )
    recovered = asyncio.Event()
    server = serving.Server(
        bridge,
        frozenset(settings.hook_uids),
        recovered,
        figures,
        bridged_partitions=tuple(settings.pods.partitions),
        fingerprint=fingerprint,
    )
    async with contextlib.AsyncExitStack() as stack:
        stack.push_async_callback(kube.close)
        # Not a context manager: from Python 3.12 on it would wait for every launcher until its job ends.
        stack.callback((await _listen(Path(settings.socket), server)).close)
        loops = (
            pods.run(),
            nodes.run(),
            _recover_then_sweep(bridge, recovered, time),
            _steer(bridge.steering, recovered, time),
        )
        tasks = [asyncio.create_task(loop) for loop in loops]
        if settings.metrics_port:
            tasks.append(asyncio.create_task(metrics.serve(figures, settings.metrics_port)))
        if systemd.watchdog_seconds():
            tasks.append(asyncio.create_task(_tell_watchdog(time)))
        await _until_stopped(tasks)


async def _cluster_name(slurm: control.SlurmControl, time: clock.Clock) -> str:
    """Slurm's ClusterName, which tells our pods from others'; waits until slurmctld answers."""
    while True:
        try:
            return await slurm.cluster_name()
        except errors.SlurmError as error:
            log.warning("cannot read Slurm's cluster name yet: %s", error.message)
            await time.sleep(1.0)


async def _listen(path: Path, server: serving.Server) -> asyncio.Server:
    await asyncio.to_thread(path.unlink, missing_ok=True)
    listening = await asyncio.start_unix_server(server.handle, path, backlog=BACKLOG)
    crashpoints.reach("start.bound")
    await asyncio.to_thread(path.chmod, 0o666)
    log.info("listening on %s", path)
    systemd.notify("READY=1", f"STATUS=listening on {path}")
    return listening


async def _recover_then_sweep(bridge: bridging.Bridge, recovered: asyncio.Event, time: clock.Clock) -> None:
    await bridge.context.pods.listed.wait()
    await bridge.context.nodes.listed.wait()
    while not recovered.is_set():
        try:
            await bridge.sweeper.recover()
            recovered.set()
        except errors.SlurmError as error:
            log.warning("cannot read Slurm's jobs yet: %s", error.message)
            await time.sleep(1.0)
    while True:
        await time.sleep(sweeps.INTERVAL)
        for work in (bridge.sweeper.sweep, bridge.drainer.lift):
            try:
                await work()
            except (errors.SlurmError, errors.KubeError) as error:
                log.warning("sweep postponed: %s", error.message)


async def _steer(jobs: retries.Steering, recovered: asyncio.Event, time: clock.Clock) -> None:
    """Steer jobs that wait for Kubernetes, after undoing what an earlier penstockd had set."""
    await recovered.wait()
    work: Callable[[], Awaitable[None]] = jobs.recover
    while True:
        try:
            await work()
            work = jobs.look
        except (errors.SlurmError, errors.KubeError) as error:
            log.warning("waiting jobs are not steered: %s", error.message)
        await time.sleep(retries.INTERVAL)


async def _tell_watchdog(time: clock.Clock) -> None:
    """systemd restarts penstockd if the event loop hangs."""
    while True:
        systemd.notify("WATCHDOG=1")
        await time.sleep(systemd.watchdog_seconds())


async def _until_stopped(tasks: list[asyncio.Task[None]]) -> None:
    """Return at SIGTERM or SIGINT. A loop that fails ends the daemon, so that the failure is noticed."""
    stop = asyncio.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        asyncio.get_running_loop().add_signal_handler(number, stop.set)
    stopping = asyncio.create_task(stop.wait())
    done, pending = await asyncio.wait((stopping, *tasks), return_when=asyncio.FIRST_COMPLETED)
    for task in pending:
        task.cancel()
    await asyncio.gather(*pending, return_exceptions=True)
    for task in done:
        task.result()
