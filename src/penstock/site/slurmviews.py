"""What an existing slurm.conf adds to the view of a site: partitions, features and GRES that the site file
does not name, and the limits of those that slurm.conf defines itself.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable

import msgspec

from penstock import errors
from penstock.model import cluster as model
from penstock.model.siteview import PartitionView
from penstock.sbatch.values import problem, times
from penstock.site import clusters
from penstock.site.schema import Site
from penstock.slurm import conffile, hostlists


@dataclasses.dataclass(frozen=True)
class Existing:
    """slurm.conf without us; None where there is none, or where it could not be read."""

    conf: conffile.Conf | None

    @property
    def max_array_size(self) -> int:
        """MaxArraySize; 0 when slurm.conf does not say it."""
        said = self.conf.get("MaxArraySize") if self.conf else ""
        return int(said) if said.isdecimal() else 0

    def memory_per_cpu(self, site: Site, groups: clusters.Groups) -> int:
        """DefMemPerCPU; 0 when slurm.conf does not say it."""
        if site.slurm.manage == "whole":
            nodes = [node for group in groups.values() for node in group]
            return clusters.priorities(site).memory_of_a_cpu(nodes) if nodes else 0
        said = self.conf.get("DefMemPerCPU") if self.conf else ""
        return int(said) if said.isdecimal() else 0

    def gres_types(self, has_gpus: bool) -> tuple[str, ...]:
        """GresTypes, with the GPUs that our nodes bring."""
        if self.conf is None:
            return ("gpu",)
        words = (word.strip() for word in self.conf.get("GresTypes").split(","))
        return tuple(dict.fromkeys((*filter(None, words), *(("gpu",) if has_gpus else ()))))

    def features(self, nodes: Iterable[model.NodeSpec]) -> tuple[str, ...]:
        """Of nodes that are alike: what the site file and slurm.conf say of them."""
        found = {feature: None for node in nodes for feature in node.features}
        if self.conf is not None:
            found |= {each: None for node in nodes for each in sorted(self.conf.features.get(node.name, ()))}
        return tuple(found)

    def partitions(self, site: Site, groups: clusters.Groups) -> dict[str, PartitionView]:
        """Those of the site file, then those that only slurm.conf knows."""
        found = {
            name: PartitionView(max_time=each.max_time, default=each.default)
            for name, each in site.partitions.items()
        }
        if self.conf is None:
            return found
        usual = "" if any(each.default for each in found.values()) else self.conf.default_partition
        for name, row in self.conf.rows.items():
            ours = site.partitions[name].nodes if name in site.partitions else ()
            nodes = {node.name for group in ours for node in groups.get(group, ())}
            before = found.get(name, PartitionView(default=name == usual))
            found[name] = msgspec.structs.replace(
                before, max_time=_time(row.get("maxtime", "")), whole=_is_within(row.get("nodes", ""), nodes)
            )
        return found


def _time(text: str) -> str:
    try:
        times.limit(text)
    except problem.Problem:
        return ""
    return text


def _is_within(nodes: str, ours: set[str]) -> bool:
    """Whether a partition's nodes are all ours; ALL and names of node sets are not."""
    try:
        return set(hostlists.expand(nodes)) <= ours
    except errors.SlurmError:
        return False
