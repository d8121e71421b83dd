"""`penstock apply` and `penstock uninstall`: plan, validate, change, see that slurmctld is up, or go back."""

from __future__ import annotations

import os
import shutil
import subprocess
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from penstock import errors, wellknown
from penstock.install import access, accounts, folders, kubeconfigs, planning, records, transactions
from penstock.render import hooks
from penstock.site import clusters, objects
from penstock.site.schema import Site

RESTART_SECONDS = 120.0
UP_SECONDS = 60.0
PING_SECONDS = 15.0
POLL_SECONDS = 0.3


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
        self.store = records.Store(Path(site.penstockd.state_dir) / "installed")
        self.cluster = access.admin(site) if kubernetes else None
        self._observe = observe
        self._planner = planning.Planner(site, self.store, self.cluster)

    def recover(self) -> str:
        """Put right what a killed call left behind."""
        return self._transaction().recover()

    def plan_install(self) -> planning.Plan:
        """What `apply` would do."""
        return self._planner.install()

    def plan_uninstall(self) -> planning.Plan:
        """What `uninstall` would do."""
        return self._planner.uninstall()

    def install(self, plan: planning.Plan) -> None:
        """Do it; InstallError when it cannot be done, and then nothing has changed."""
        self._validate(plan)
        self._run(plan)
        accounts.run(self.site, plan.accounts)
        folders.make_missing(self.site)
        if self.cluster is not None and kubeconfigs.ensure(self.site, self.cluster):
            self.store.note_made(self.site.kubernetes.kubeconfig)
        if any(change.path == self.site.penstockd.config for change in plan.files):
            self._restart_penstockd()

    def uninstall(self, plan: planning.Plan) -> None:
        """Take it back."""
        self._require_no_jobs()
        if self.site.penstockd.run == "systemd" and shutil.which("systemctl"):
            _command(
                ("systemctl", "disable", "--now", "penstockd", "penstock-intake", "penstock-collector"),
                slurm_conf=self.site.slurm.conf,
                seconds=RESTART_SECONDS,
            )
        made = self.store.installed().made
        self._run(plan)
        for path in made:
            Path(path).unlink(missing_ok=True)
        shutil.rmtree(Path(self.site.penstockd.libexec) / hooks.PACKAGE, ignore_errors=True)
        self.store.remove_if_empty()

    def _require_no_jobs(self) -> None:
        """Without its Epilog nobody would wait for a job's pods, and its resources would be given away."""
        partitions = ",".join(clusters.bridged_partitions(self.site))
        argv = ("squeue", "--noheader", "--format=%i", f"--partition={partitions}")
        done = _command(argv, slurm_conf=self.site.slurm.conf, seconds=PING_SECONDS)
        jobs = done.stdout.split()
        if jobs:
            raise errors.InstallError(
                f"{len(jobs)} jobs are in {partitions}: {' '.join(jobs[:5])}",
                hint="Wait for them or cancel them, then try again; nothing was changed.",
            )

    def _run(self, plan: planning.Plan) -> None:
        if not plan.files and not plan.objects:
            return
        self._transaction().run(plan.files, plan.objects, restart=plan.restart, installed=plan.installed)

    def _transaction(self) -> transactions.Transaction:
        return transactions.Transaction(
            self.store, objects=self.cluster, restart=self._restart_slurmctld, observe=self._observe
        )

    # -- before anything changes -----------------------------------------------------------------------------
    def _validate(self, plan: planning.Plan) -> None:
        for change in plan.objects:
            if change.after is not None and self.cluster is not None:
                self._dry_run(change)
        contents = {
            change.path: self.store.copy(change.after.digest) for change in plan.files if change.after
        }
        for path, content in contents.items():
            if content.startswith(b"#!/usr/bin/python3"):
                compile(content, path, "exec")
        if self.site.slurm.conf in contents:
            self._require_readable(contents)

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

    def _require_readable(self, contents: dict[str, bytes]) -> None:
        """slurm.conf as it will be, read by a program of Slurm's from another folder."""
        with tempfile.TemporaryDirectory(prefix="penstock-") as folder:
            moved = {path: str(Path(folder) / Path(path).name) for path in contents}
            for path, content in contents.items():
                text = content
                for old, new in moved.items():
                    text = text.replace(f"include {old}".encode(), f"include {new}".encode())
                if Path(path).suffix == ".conf":
                    Path(moved[path]).write_bytes(text)
            require_readable(moved[self.site.slurm.conf])

    # -- slurmctld -------------------------------------------------------------------------------------------
    def _restart_slurmctld(self) -> None:
        done = _command(self.site.slurm.restart, slurm_conf=self.site.slurm.conf, seconds=RESTART_SECONDS)
        if done.returncode:
            raise errors.InstallError(
                f"`{' '.join(self.site.slurm.restart)}` failed: {_last_line(done)}",
                hint="`slurm.restart` of the site file is the command that restarts slurmctld.",
            )
        self._wait_for_slurmctld()
        _command(("scontrol", "reconfigure"), slurm_conf=self.site.slurm.conf, seconds=PING_SECONDS * 2)
        self._wait_for_slurmctld()

    def _wait_for_slurmctld(self) -> None:
        deadline = time.monotonic() + UP_SECONDS
        while True:
            done = _command(("scontrol", "ping"), slurm_conf=self.site.slurm.conf, seconds=PING_SECONDS)
            if " is UP" in done.stdout:
                return
            if time.monotonic() > deadline:
                said = _last_line(done)
                raise errors.InstallError(
                    f"slurmctld did not come up within {UP_SECONDS:g} s: {said}",
                    hint=f"Its log is in {self.site.slurm.log_dir}, or `journalctl -u slurmctld`.",
                )
            time.sleep(POLL_SECONDS)

    def _restart_penstockd(self) -> None:
        command: Sequence[str] = self.site.penstockd.restart
        if self.site.penstockd.run == "deployment" and self.cluster is not None:
            self._roll_out(self.cluster)
        if not command and self.site.penstockd.run == "systemd":
            command = ("systemctl", "restart", "penstockd")
            _command(("systemctl", "daemon-reload"), slurm_conf=self.site.slurm.conf, seconds=PING_SECONDS)
        if not command:
            return
        done = _command(command, slurm_conf=self.site.slurm.conf, seconds=RESTART_SECONDS)
        if done.returncode:
            raise errors.InstallError(
                f"installed, but `{' '.join(command)}` failed: {_last_line(done)}",
                hint="Start penstockd yourself; `penstock doctor` says when it is well.",
            )

    def _roll_out(self, cluster: access.Cluster) -> None:
        """A new pod reads the new settings."""
        home = self.site.kubernetes.namespace
        path = f"/apis/apps/v1/namespaces/{home}/deployments/{objects.ACCOUNT}"
        cluster.request("PATCH", path, body=_rolled(time.time()), kind="application/merge-patch+json")


def _rolled(at: float) -> dict[str, Any]:
    stamp = {wellknown.ANNOTATION_RESTARTED: f"{at:.0f}"}
    return {"spec": {"template": {"metadata": {"annotations": stamp}}}}


def require_readable(conf: str) -> None:
    """Complain when Slurm's own programs cannot read this slurm.conf, whether slurmctld answers or not."""
    done = _command(("scontrol", "ping"), slurm_conf=conf, seconds=PING_SECONDS)
    lines = [line.partition("scontrol: ")[2] for line in done.stderr.splitlines()]
    if any(line.startswith("fatal:") for line in lines):
        said = next((line for line in lines if line.startswith("error:")), lines[0])
        raise errors.InstallError(
            f"Slurm would not read the new slurm.conf: {said}",
            hint="Nothing was changed. Is slurm.release right?",
        )


def _command(argv: Sequence[str], *, slurm_conf: str, seconds: float) -> subprocess.CompletedProcess[str]:
    environment = os.environ | {wellknown.ENV_SLURM_CONF: slurm_conf, "LC_ALL": "C"}
    try:
        return subprocess.run(
            list(argv), capture_output=True, text=True, timeout=seconds, env=environment, check=False
        )
    except FileNotFoundError as error:
        raise errors.InstallError(f"the program {argv[0]} is not installed") from error
    except subprocess.TimeoutExpired:
        return subprocess.CompletedProcess(list(argv), 124, "", f"no answer within {seconds:g} s")


def _last_line(done: subprocess.CompletedProcess[str]) -> str:
    lines = [line for line in (done.stdout + done.stderr).splitlines() if line.strip()]
    return lines[-1].strip() if lines else f"exit code {done.returncode}"
