"""What an existing slurm.conf adds to the view of a site: partitions, features, GRES and limits."""

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
    """slurm.conf without our include; None if there is none or it cannot be read."""

    conf: conffile.Conf | None

    @property
    def max_array_size(self) -> int:
        return self._number("MaxArraySize")

    def _number(self, setting: str) -> int:
        value = self.conf.get(setting) if self.conf else ""
        return int(value) if value.isdecimal() else 0

    def memory_per_cpu(self, site: Site, groups: clusters.Groups) -> int:
        """DefMemPerCPU; 0 if it is not set."""
        if site.slurm.manage == "whole":
            nodes = [node for group in groups.values() for node in group]
            return clusters.priorities(site).memory_of_a_cpu(nodes) if nodes else 0
        return self._number("DefMemPerCPU")

    def gres_types(self, has_gpus: bool) -> tuple[str, ...]:
        """GresTypes, with "gpu" if our nodes have GPUs."""
        if self.conf is None:
            return ("gpu",)
        words = (word.strip() for word in self.conf.get("GresTypes").split(","))
        return tuple(dict.fromkeys((*filter(None, words), *(("gpu",) if has_gpus else ()))))

    def features(self, nodes: Iterable[model.NodeSpec]) -> tuple[str, ...]:
        """Features of these nodes in the site file and in slurm.conf."""
        found = {feature: None for node in nodes for feature in node.features}
        if self.conf is not None:
            found |= {each: None for node in nodes for each in sorted(self.conf.features.get(node.name, ()))}
        return tuple(found)

    def partitions(self, site: Site, groups: clusters.Groups) -> dict[str, PartitionView]:
        """Partitions of the site file, then those that only slurm.conf has."""
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
    """Whether all nodes of a partition are ours; ALL and node sets are not."""
    try:
        return set(hostlists.expand(nodes)) <= ours
    except errors.SlurmError:
        return False
