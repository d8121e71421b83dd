"""`penstock apply` and `penstock uninstall`: plan, validate, change, wait for slurmctld, or roll back."""

from __future__ import annotations

import asyncio
import shutil
import tempfile
import time
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from penstock import errors, wellknown
from penstock.install import (
    accounts,
    inventory,
    kubeadmin,
    kubeconfigs,
    planning,
    plans,
    queuedjobs,
    servicefolders,
    sharedobjects,
    slurmctld,
    transactions,
)
from penstock.kube import kinds
from penstock.model import jobs
from penstock.render import hooks, units
from penstock.site import clusters, daemonsettings, kubeobjects
from penstock.site.schema import Site
from penstock.slurm import conffile, controller, reader

SYSTEMD = Path("/run/systemd/system")
"""Exists if the host was booted with systemd, see sd_booted(3)."""


class Installer:
    def __init__(
        self,
        site: Site,
        *,
        kubernetes: bool = True,
        observe: transactions.Observer = transactions.ignore,
    ) -> None:
        self.site = site
        self.store = inventory.Store(Path(site.penstockd.state_dir) / "installed")
        self.cluster = kubeadmin.admin(site) if kubernetes else None
        self._observe = observe
        self._slurm = reader.SlurmReader(site.slurm.conf)
        self._planner = planning.Planner(site, self.store, self.cluster, self._unfinished_jobs)

    def _unfinished_jobs(self) -> tuple[jobs.Job, ...]:
        """Empty if there is no slurm.conf yet."""
        return asyncio.run(self._slurm.unfinished()) if Path(self._slurm.slurm_conf).exists() else ()

    def recover(self) -> str:
        """Finish or roll back an interrupted call."""
        return self._transaction().recover()

    def plan_install(self) -> plans.Plan:
        return self._planner.install()

    def plan_uninstall(self) -> plans.Plan:
        return self._planner.uninstall()

    def install(self, plan: plans.Plan) -> None:
        """Carry out the plan. If it raises InstallError, everything was rolled back."""
        self._run(plan)
        accounts.run(self.site, plan.accounts)
        servicefolders.make_missing(self.site)
        if self.cluster is not None and kubeconfigs.ensure(self.site, self.cluster):
            self.store.note_made(self.site.kubernetes.kubeconfig)
        self._restart_readers({change.path for change in plan.files})

    def uninstall(self, plan: plans.Plan) -> None:
        """Carry out the plan.

        Services are stopped while their units still exist, and only after all else, which until then can be
        rolled back. The units are a transaction of their own, which the next call can resume.
        """
        if not plan.empty:
            self._require_no_jobs()
            rest, units = plan.split(Path(self.site.penstockd.units), self.store.installed())
            self._run(rest)
            if units is not None:
                self._stop_services(units)
                self._run(units)
            shutil.rmtree(Path(self.site.penstockd.libexec) / hooks.PACKAGE, ignore_errors=True)

    def _stop_services(self, units: plans.Plan) -> None:
        names = [Path(change.path).name for change in units.files]
        services = sorted(name for name in names if "@" not in name)
        if not services or not SYSTEMD.is_dir():
            return
        argv = ("systemctl", "disable", "--now", *services)
        done = slurmctld.run(argv, slurm_conf=self.site.slurm.conf, seconds=slurmctld.RESTART_SECONDS)
        if done.code != 0:
            raise errors.InstallError(
                f"Slurm and Kubernetes are restored, but `{' '.join(argv)}` failed: {done.last_line}",
                hint="Fix that; the next `penstock uninstall` removes the units.",
            )

    def _require_no_jobs(self) -> None:
        """Without the Epilog Slurm would free a job's resources while its pods still run."""
        wanted = sorted({*clusters.bridged_partitions(self.site), *self._bridged_now()})
        partitions = ",".join(wanted)
        try:
            names = asyncio.run(self._slurm.names_of_jobs_in(wanted, within=controller.PING_SECONDS))
        except errors.SlurmError as error:
            raise errors.InstallError(
                f"cannot list the jobs in {partitions}: {error.message}",
                hint="Try again when slurmctld answers; nothing was changed.",
            ) from error
        if names:
            raise errors.InstallError(
                f"{len(names)} jobs are in {partitions}: {' '.join(names[:5])}",
                hint="Wait for them or cancel them, then try again; nothing was changed.",
            )

    def _bridged_now(self) -> frozenset[str]:
        """Partitions that are bridged by the present installation, whatever the site file says."""
        view = daemonsettings.view_path(self.site)
        found = queuedjobs.bridged_now(self.store.installed(), self.store, view)
        if found is None:
            raise errors.InstallError(
                f"cannot read the record of {view}, which lists the bridged partitions",
                hint="`penstock apply` writes it again; then try again. Nothing was changed.",
            )
        return found

    def _run(self, plan: plans.Plan) -> None:
        if not plan.files and not plan.objects and not plan.lost_records:
            return
        self._transaction(partitions_only=plan.partitions_only).run(
            plan.files, plan.objects, restart=plan.restart, installed=plan.installed
        )

    def _transaction(self, *, partitions_only: bool = False) -> transactions.Transaction:
        controller = slurmctld.Controller(self.site)
        return transactions.Transaction(
            self.store,
            objects=self.cluster,
            restart=controller.reconfigure if partitions_only else controller.restart,
            observe=self._observe,
            in_use=self._in_use,
            keep=self._planner.kept,
        )

    def _in_use(self, made: Mapping[str, inventory.ObjectRecord]) -> Collection[str]:
        if self.cluster is None:
            return ()
        return sharedobjects.used(self.cluster, made, self.store.installed().objects)

    # -- before anything changes -----------------------------------------------------------------------------
    def problems(self, plan: plans.Plan) -> Iterator[str]:
        """Problems that Kubernetes, Python and Slurm find with the plan in dry runs."""
        for change in plan.objects:
            if change.after is not None and self.cluster is not None:
                yield from _problem(self._dry_run, self.cluster, change.after)
        contents = {
            change.path: self.store.copy(change.after.digest) for change in plan.files if change.after
        }
        for path, content in contents.items():
            if content.startswith(b"#!/usr/bin/python3"):
                compile(content, path, "exec")
        named = Path(self.site.slurm.conf)
        for conf in {str(named), str(inventory.real(named))} & set(contents):
            yield from _problem(self._require_readable, contents, conf)
        for line in plan.contradictions:
            yield f"slurmctld would not start: {line}; correct {named}"

    def _dry_run(self, cluster: kubeadmin.Cluster, manifest: dict[str, Any]) -> None:
        home = manifest["metadata"].get("namespace")
        namespace = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": home}}
        if home is not None and cluster.get(namespace) is None:
            return  # this plan creates the namespace, so the API cannot check the object yet
        try:
            cluster.apply(manifest, dry_run=True)
        except errors.KubeUnavailable:
            raise
        except errors.KubeError as error:
            name = f"{manifest['kind']} {manifest['metadata']['name']}"
            raise errors.InstallError(f"Kubernetes would refuse {name}: {error.message}") from error

    def _require_readable(self, contents: dict[str, bytes], conf: str) -> None:
        """Let a program of Slurm's read the planned slurm.conf from another folder."""
        with tempfile.TemporaryDirectory(prefix="penstock-") as folder:
            moved = {path: str(Path(folder) / Path(path).name) for path in contents}
            for path, content in contents.items():
                text = content
                for old, new in moved.items():
                    text = text.replace(f"include {old}".encode(), f"include {new}".encode())
                text = conffile.with_absolute_includes(text, Path(self.site.slurm.conf).parent)
                if path == conf or Path(path).suffix == ".conf":
                    Path(moved[path]).write_bytes(text)
            require_readable(moved[conf])

    # -- daemons ---------------------------------------------------------------------------------------------
    def _restart_readers(self, changed: Collection[str]) -> None:
        """Restart daemons whose settings have changed; intake and collector only if they run."""
        site = self.site
        readers = (
            (site.penstockd.config, units.PENSTOCKD),
            (site.intake.config, units.INTAKE),
            (site.results.config, units.COLLECTOR),
        )
        stale = [unit for config, unit in readers if config in changed]
        if units.PENSTOCKD in stale and site.penstockd.run == "deployment" and self.cluster is not None:
            self._roll_out(self.cluster)
        for command in self._restarts(stale):
            done = slurmctld.run(command, slurm_conf=site.slurm.conf, seconds=slurmctld.RESTART_SECONDS)
            if done.code != 0:
                raise errors.InstallError(
                    f"installed, but `{' '.join(command)}` failed: {done.last_line}",
                    hint="Restart it yourself; `penstock doctor` checks the result.",
                )

    def _restarts(self, stale: Sequence[str]) -> Iterator[Sequence[str]]:
        if stale and self.site.penstockd.restart:
            yield self.site.penstockd.restart
        elif stale and self.site.penstockd.run == "systemd":
            yield ("systemctl", "daemon-reload")
            if units.PENSTOCKD in stale:
                yield ("systemctl", "restart", units.PENSTOCKD)
            others = [unit for unit in stale if unit != units.PENSTOCKD]
            if others:
                yield ("systemctl", "try-restart", *others)

    def _roll_out(self, cluster: kubeadmin.Cluster) -> None:
        """Restart the Deployment's pod, which reads the new settings."""
        home = self.site.kubernetes.namespace
        stamp = {wellknown.ANNOTATION_RESTARTED: f"{time.time():.0f}"}
        changes = {"spec": {"template": {"metadata": {"annotations": stamp}}}}
        cluster.ask(
            lambda kube: kube.patch(kinds.DEPLOYMENTS, changes, namespace=home, name=kubeobjects.ACCOUNT)
        )


def _problem(check: Callable[..., None], *arguments: object) -> Iterator[str]:
    """The error of a check, if any, as one line."""
    try:
        check(*arguments)
    except (errors.InstallError, errors.SlurmError) as error:
        yield f"{error.message}; {error.hint}".removesuffix("; ")


def require_readable(conf: str) -> None:
    """Raise InstallError if Slurm's programs cannot read this slurm.conf."""
    problem = asyncio.run(controller.why_unreadable(conf))
    if problem:
        raise errors.InstallError(
            f"Slurm cannot read the new slurm.conf: {problem}",
            hint="Correct slurm.conf, and check slurm.release of the site file.",
        )
