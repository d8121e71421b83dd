"""A site before Penstock: a lab without bridge, with its own job_submit.lua, and a Kubernetes."""

from __future__ import annotations

import contextlib
import dataclasses
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec

from penstock import wellknown
from penstock.render import slurmconf
from penstock.site import clusters, loader, nodegroups
from penstock_lab import loopback, ports, sitefile, spec, supervision, testing
from penstock_lab.components import COLLECTOR, INTAKE, PENSTOCKD, all_components
from penstock_lab.kubernetes import localimages
from penstock_lab.slurm import programs

SITE_LUA = """\
local count = 0
function slurm_job_submit(job_desc, part_list, submit_uid)
   count = count + 1
   slurm.log_user("the site saw job " .. count)
   if job_desc.name == "forbidden" then
      slurm.log_user("the site says no")
      return slurm.ERROR
   end
   return slurm.SUCCESS
end

function slurm_job_modify(job_desc, job_rec, part_list, modify_uid)
   return slurm.SUCCESS
end

return slurm.SUCCESS
"""
IMAGE = localimages.USERLAND
NEW_NODE = "n2"
"""A Kubernetes node that this Slurm does not have yet."""


@dataclasses.dataclass(frozen=True)
class PlainSite:
    """The lab and the path of its future site file."""

    lab: testing.RunningLab
    file: Path

    @property
    def etc(self) -> Path:
        return self.lab.place.etc

    def penstock(self, *words: str, check: bool = True) -> testing.Result:
        """Run a penstock command for this site."""
        return self.lab.penstock(*words, "--site", str(self.file), check=check)

    def init(self) -> testing.Result:
        """`penstock init`, with the lab's own paths."""
        place = self.lab.place
        restart = f"{place.bin}/penstock,lab,restart,--dir,{place.directory}"
        settings = {
            "slurm.restart": f"{restart},slurmctld",
            "slurm.log_dir": place.slurm_log,
            "slurm.spool_dir": place.spool,
            "slurm.pid_dir": place.slurm_run,
            "slurm.gpu_device_dir": place.gpu_devices,
            "kubernetes.kubeconfig": self._penstockd_kubeconfig,
            "intake.config": place.intake_conf,
            "intake.state_dir": place.intake_state,
            "intake.status": place.inbox,
            "results.config": place.collector_conf,
            "results.state_dir": place.attempts,
            "penstockd.run": "none",
            "penstockd.restart": f"{restart},{PENSTOCKD},{INTAKE},{COLLECTOR}",
            "penstockd.socket": place.penstockd_socket,
            "penstockd.config": place.penstockd_conf,
            "penstockd.state_dir": place.installed,
            "penstockd.libexec": place.libexec,
            "penstockd.program": place.bin / "penstock",
        }
        words = [word for key, value in settings.items() for word in ("--set", f"{key}={value}")]
        return self.penstock("init", "--yes", "--nas", str(place.nas), "--image", IMAGE, *words)

    def add_new_node(self) -> None:
        """Add the node that only Kubernetes has to the site file; its slurmd runs on this machine."""
        node = next(each for each in spec.load(self.lab.place).node_specs if each.name == NEW_NODE)
        group = (
            f"  virtual:\n    nodes: {NEW_NODE}\n    size: kubernetes\n"
            f'    slurmd: {{address: "{ports.LOOPBACK}", first_port: {node.port}}}\n'
        )
        text = self.file.read_text()
        text = text.replace("node_groups:\n", f"node_groups:\n{group}")
        self.file.write_text(text.replace("      - nodes1\n", "      - nodes1\n      - virtual\n"))

    @property
    def _penstockd_kubeconfig(self) -> Path:
        """The dev cluster has two fixed tokens; a real one issues one."""
        place = self.lab.place
        return (
            place.penstockd_kubeconfig if testing.kubernetes() == spec.DEV else place.etc / "made.kubeconfig"
        )

    def files(self) -> dict[str, bytes]:
        """Every file that an installation could change, without those that penstockd and the lab write."""
        folders = (self.etc, self.lab.place.libexec, self.lab.place.gpu_devices)
        found = (path for folder in folders for path in sorted(folder.rglob("*")) if path.is_file())
        return {str(path): path.read_bytes() for path in found if path != self.file}

    def objects(self) -> set[str]:
        """Every object in the cluster that could be Penstock's."""
        kinds = "namespaces,clusterroles,clusterrolebindings,priorityclasses"
        listed = self.lab.run(("kubectl", "get", kinds, "-o", "json")).stdout
        items: list[dict[str, Any]] = json.loads(listed)["items"]
        return {f"{item['kind']}/{item['metadata']['name']}" for item in items}


@contextlib.contextmanager
def plain_site() -> Iterator[PlainSite]:
    """The site, with its lab removed afterwards."""
    with testing.temporary_lab("--nodes", "2") as lab:
        _take_the_bridge_out(lab)
        yield PlainSite(lab, lab.place.etc / "mine.yaml")


def _take_the_bridge_out(lab: testing.RunningLab) -> None:
    place, choices = lab.place, spec.load(lab.place)
    supervisor = supervision.Supervisor(place)
    supervisor.stop(next(each for each in all_components(place, choices) if each.name == PENSTOCKD))
    written = ("penstockd.json", "site.json", "intake.json", "collector.json", "site.yaml")
    for path in (*place.libexec.rglob("*"), *(place.etc / name for name in written)):
        if path.is_file():
            path.unlink()
    plain = msgspec.structs.replace(choices, bridge=False)
    address = loopback.shared_address()
    site = loader.loads(sitefile.render(place, plain, address=address).encode())
    cluster = clusters.describe(site, nodegroups.groups(site), release=programs.release_of(place))
    without = tuple(node for node in cluster.nodes if node.name != NEW_NODE)
    names = tuple(node.name for node in without)
    partitions = tuple(dataclasses.replace(each, nodes=names) for each in cluster.partitions)
    cluster = dataclasses.replace(cluster, nodes=without, partitions=partitions, cred_expire=120)
    text = slurmconf.render_slurm_conf(cluster)
    place.slurm_conf.write_text(f"{text}\n# the site's own\nJobSubmitPlugins=lua\n")
    (place.etc / wellknown.JOB_SUBMIT).write_text(SITE_LUA)
    lab.penstock("lab", "restart", "slurmctld")
    lab.run(("scontrol", "reconfigure"))
