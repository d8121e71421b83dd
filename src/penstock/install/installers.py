"""`penstock apply` and `penstock uninstall`: plan, validate, change, see that slurmctld is up, or go back."""

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
"""There where systemd runs the host, as sd_booted(3) says."""


class Installer:
    """One site, one set of records."""

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
        self._planner = plans.Planner(site, self.store, self.cluster, self._unfinished_jobs)

    def _unfinished_jobs(self) -> tuple[jobs.Job, ...]:
        """None where there is no slurm.conf yet."""
        return asyncio.run(self._slurm.unfinished()) if Path(self._slurm.slurm_conf).exists() else ()

    def recover(self) -> str:
        """Put right what a killed call left behind."""
        return self._transaction().recover()

    def plan_install(self) -> plans.Plan:
        """What `apply` would do."""
        return self._planner.install()

    def plan_uninstall(self) -> plans.Plan:
        """What `uninstall` would do."""
        return self._planner.uninstall()

    def install(self, plan: plans.Plan) -> None:
        """Do it; InstallError when it cannot be done, and then nothing has changed."""
        self._run(plan)
        accounts.run(self.site, plan.accounts)
        servicefolders.make_missing(self.site)
        if self.cluster is not None and kubeconfigs.ensure(self.site, self.cluster):
            self.store.note_made(self.site.kubernetes.kubeconfig)
        self._restart_readers({change.path for change in plan.files})

    def uninstall(self, plan: plans.Plan) -> None:
        """Take it back; without a change to make nothing is touched.

        Services are stopped while their units are still there, and only once all else is taken back: until
        then everything can be as it was. The units are a transaction of their own, for the next call to find.
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
                f"Slurm and Kubernetes are as before, but `{' '.join(argv)}` failed: {done.last_line}",
                hint="Put that right; the next `penstock uninstall` removes the units.",
            )

    def _require_no_jobs(self) -> None:
        """Without its Epilog nobody would wait for a job's pods, and its resources would be given away."""
        wanted = sorted({*clusters.bridged_partitions(self.site), *self._bridged_now()})
        partitions = ",".join(wanted)
        try:
            names = asyncio.run(self._slurm.names_of_jobs_in(wanted, within=controller.PING_SECONDS))
        except errors.SlurmError as error:
            raise errors.InstallError(
                f"squeue does not say whether jobs are in {partitions}: {error.message}",
                hint="Try again when slurmctld answers; nothing was changed.",
            ) from error
        if names:
            raise errors.InstallError(
                f"{len(names)} jobs are in {partitions}: {' '.join(names[:5])}",
                hint="Wait for them or cancel them, then try again; nothing was changed.",
            )

    def _bridged_now(self) -> frozenset[str]:
        """Partitions that what is installed bridges, whatever the site file says today."""
        view = daemonsettings.view_path(self.site)
        found = queuedjobs.bridged_now(self.store.installed(), self.store, view)
        if found is None:
            raise errors.InstallError(
                f"the record of {view} cannot be read: which partitions are bridged is unknown",
                hint="`penstock apply` writes it anew; then try again. Nothing was changed.",
            )
        return found

    def _run(self, plan: plans.Plan) -> None:
        if not plan.files and not plan.objects and not plan.lost_records:
            return
        transaction = self._transaction(partitions_only=plan.partitions_only)
        transaction.run(plan.files, plan.objects, restart=plan.restart, installed=plan.installed)

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
        """Why the plan cannot work: what Kubernetes, Python and Slurm say to it without changing anything."""
        for change in plan.objects:
            if change.after is not None and self.cluster is not None:
                yield from _said(self._dry_run, change)
        contents = {
            change.path: self.store.copy(change.after.digest) for change in plan.files if change.after
        }
        for path, content in contents.items():
            if content.startswith(b"#!/usr/bin/python3"):
                compile(content, path, "exec")
        named = Path(self.site.slurm.conf)
        for conf in {str(named), str(inventory.real(named))} & set(contents):
            yield from _said(self._require_readable, contents, conf)
        for line in plan.contradictions:
            yield f"slurmctld would not start: {line}; correct {named}"

    def _dry_run(self, change: transactions.ObjectChange) -> None:
        manifest = change.after or {}
        if "namespace" in manifest["metadata"] and self.cluster is not None:
            home = {
                "apiVersion": "v1",
                "kind": "Namespace",
                "metadata": {"name": manifest["metadata"]["namespace"]},
            }
            if self.cluster.get(home) is None:
                return  # its namespace is made by this very plan: the API cannot be asked yet
        try:
            if self.cluster is not None:
                self.cluster.apply(manifest, dry_run=True)
        except errors.KubeUnavailable:
            raise
        except errors.KubeError as error:
            name = f"{manifest['kind']} {manifest['metadata']['name']}"
            raise errors.InstallError(f"Kubernetes would refuse {name}: {error.message}") from error

    def _require_readable(self, contents: dict[str, bytes], conf: str) -> None:
        """slurm.conf as it will be, read by a program of Slurm's from another folder."""
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
        """Daemons whose settings have changed; of intake and collector only what runs."""
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
                    hint="Restart it yourself; `penstock doctor` says when all is well.",
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
        """A new pod reads the new settings."""
        home = self.site.kubernetes.namespace
        changes = _rolled(time.time())
        cluster.ask(
            lambda kube: kube.patch(kinds.DEPLOYMENTS, changes, namespace=home, name=kubeobjects.ACCOUNT)
        )


def _said(check: Callable[..., None], *arguments: object) -> Iterator[str]:
    """The complaint of a check; nothing when it has none."""
    try:
        check(*arguments)
    except (errors.InstallError, errors.SlurmError) as error:
        yield f"{error.message}; {error.hint}".removesuffix("; ")


def _rolled(at: float) -> dict[str, Any]:
    stamp = {wellknown.ANNOTATION_RESTARTED: f"{at:.0f}"}
    return {"spec": {"template": {"metadata": {"annotations": stamp}}}}


def require_readable(conf: str) -> None:
    """Complain when Slurm's own programs cannot read this slurm.conf."""
    said = asyncio.run(controller.why_unreadable(conf))
    if said:
        raise errors.InstallError(
            f"Slurm would not read the new slurm.conf: {said}",
            hint="Correct slurm.conf. Is slurm.release of the site file right?",
        )
