"""Place: an existing Slurm in a folder, without slurmctld and Kubernetes."""

from __future__ import annotations

from pathlib import Path

from penstock.install import inventory, planning, plans, transactions
from penstock.site import loader, schema

CONF = """\
ClusterName=hall
SlurmctldHost=head
AuthInfo=socket=/run/munge.sock
Epilog=/etc/slurm/epilog.sh  # the site's own
NodeName=n1 NodeAddr=127.0.0.1 CPUs=8 RealMemory=32768
PartitionName=old Nodes=n1 Default=YES
"""
LUA = "function slurm_job_submit(job, parts, uid) return slurm.SUCCESS end\nreturn slurm.SUCCESS\n"
SITE = """\
cluster: hall
slurm: {{conf: {root}/etc/slurm.conf, user: root, release: "22.05",
  gpu_device_dir: {root}/dev, commands_dir: {root}/commands}}
penstockd:
  program: {root}/commands/penstock
  socket: {root}/run/p.sock
  config: {root}/etc/penstockd.json
  state_dir: {root}/state
  libexec: {root}/libexec
  units: {root}/units
registry: {{default_image: "base:1"}}
node_groups:
  known: {{nodes: n1, cpus: 8, memory: 32768Mi}}
  new: {{nodes: "v[1-2]", cpus: 4, memory: 8Gi, gpus: 2, slurmd: {{host: head}}}}
partitions:
  k8s: {{nodes: [known, new]}}
"""


class Place:
    def __init__(self, root: Path) -> None:
        self.root = root
        self.etc = root / "etc"
        self.etc.mkdir()
        self.conf = self.etc / "slurm.conf"
        self.conf.write_text(CONF)
        (self.etc / "job_submit.lua").write_text(LUA)
        self.text = SITE.format(root=root)
        self.commands = root / "commands"
        self.commands.mkdir()
        for name in ("scontrol", "squeue", "penstock"):
            (self.commands / name).write_text("#!/bin/sh\n")
            (self.commands / name).chmod(0o755)
        self.store = inventory.Store(root / "state" / "installed")
        self.restarts = 0

    @property
    def site(self) -> schema.Site:
        return loader.loads(self.text.encode())

    @property
    def planner(self) -> planning.Planner:
        return planning.Planner(self.site, self.store, None)

    def run(self, plan: plans.Plan) -> plans.Plan:
        def restart() -> None:
            self.restarts += 1

        transaction = transactions.Transaction(self.store, objects=None, restart=restart)
        transaction.run(plan.files, plan.objects, restart=plan.restart, installed=plan.installed)
        return plan

    def install(self) -> plans.Plan:
        with self.store.locked():
            return self.run(self.planner.install())

    def uninstall(self) -> plans.Plan:
        with self.store.locked():
            return self.run(self.planner.uninstall())

    def seen(self) -> dict[str, tuple[str, int]]:
        files = (path for path in self.root.rglob("*") if path.is_file() and "state" not in path.parts)
        return {str(path): (path.read_text(), path.stat().st_mode) for path in files}
