"""The live site as the checks see it. Each answer is fetched once, when a check first needs it.

A failed request raises its error again for every check that needs the answer: no answer is never "not there".
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, Generic, TypeVar

from penstock import errors, wellknown
from penstock.install import facts, kubeadmin, sitefiles
from penstock.kube import kinds, podview, types
from penstock.model import cluster as model
from penstock.model import nodes, resources
from penstock.model.jobs import LiveJob
from penstock.render.pods import label_of
from penstock.site import clusters, policies
from penstock.site.schema import Site
from penstock.slurm import conffile, reader

Answer = TypeVar("Answer")


class once(Generic[Answer]):  # noqa: N801  # a decorator, used like property
    """A cached property whose error is cached as well."""

    def __init__(self, ask: Callable[[Any], Answer]) -> None:
        self._ask = ask

    def __get__(self, live: Live, owner: type[Live]) -> Answer:
        name = self._ask.__name__
        if name not in live.answers:
            try:
                live.answers[name] = (self._ask(live), None)
            except errors.PenstockError as error:
                live.answers[name] = (None, error)
        value, failure = live.answers[name]
        if failure is not None:
            raise failure
        found: Answer = value
        return found


class Live:
    def __init__(self, site: Site) -> None:
        self.site = site
        self.answers: dict[str, tuple[Any, errors.PenstockError | None]] = {}
        self._slurm = reader.SlurmReader(site.slurm.conf, gpu_resources=policies.resolved(site).gpu_resources)

    @once
    def settings(self) -> dict[str, str]:
        """The running configuration of slurmctld, which may differ from slurm.conf."""
        return asyncio.run(self._slurm.configuration())

    @once
    def slurm_nodes(self) -> dict[str, nodes.Node]:
        return {node.name: node for node in asyncio.run(self._slurm.nodes())}

    @once
    def slurm_partitions(self) -> dict[str, nodes.Partition]:
        return {each.name: each for each in asyncio.run(self._slurm.partitions())}

    @once
    def live_jobs(self) -> dict[int, LiveJob]:
        return {job.job_id: job for job in asyncio.run(self._slurm.live_jobs())}

    @once
    def conf(self) -> conffile.Conf:
        """slurm.conf on the disk, with its includes."""
        path = Path(self.site.slurm.conf)
        try:
            return conffile.parse(_text(path), include=lambda name: _text(path.parent / name))
        except OSError as error:
            raise errors.SlurmError(f"cannot read {error.filename}: {error.strerror}") from error

    @once
    def cluster(self) -> kubeadmin.Cluster:
        """The API with the administrator's permissions."""
        return kubeadmin.admin(self.site)

    @once
    def as_penstockd(self) -> kubeadmin.Cluster:
        """The API with penstockd's permissions."""
        return kubeadmin.as_penstockd(self.site)

    @once
    def kube_nodes(self) -> dict[str, types.Node]:
        return {node.metadata.name: node for node in self.cluster.items(kinds.NODES, types.Node)}

    @once
    def pods(self) -> list[types.Pod]:
        return list(self.cluster.items(kinds.PODS, types.Pod))

    @once
    def namespaces(self) -> dict[str, dict[str, Any]]:
        return {item["metadata"]["name"]: item for item in self.cluster.items(kinds.NAMESPACES, dict)}

    @once
    def clock_offset(self) -> float:
        """Seconds that the API server's clock is ahead of ours."""
        before = time.time()
        there = self.cluster.ask(lambda kube: kube.server_time())
        return float(there - (before + time.time()) / 2)

    @once
    def facts(self) -> facts.Facts:
        aside = (Path(self.site.slurm.conf).parent / sitefiles.SITE_LUA).exists()
        return facts.gather(self.site, site_lua=aside)

    @once
    def files(self) -> tuple[sitefiles.File, ...]:
        """Files as `penstock apply` would write them."""
        return sitefiles.all_files(self.site, self.facts)

    @once
    def bridged_nodes(self) -> dict[str, model.NodeSpec]:
        return {node.name: node for node in clusters.bridged_nodes(self.site, self.facts.groups)}

    def is_ours(self, pod: types.Pod) -> bool:
        """Whether the pod belongs to a job of this Slurm cluster; others may share the Kubernetes."""
        cluster = label_of(self.settings.get("ClusterName", self.site.cluster))
        labels = pod.metadata.labels
        is_job = labels.get(wellknown.LABEL_APP) == wellknown.APP_VALUE
        return is_job and labels.get(wellknown.LABEL_CLUSTER) == cluster

    def look_again(self) -> None:
        """Query Slurm and then pods again, keeping only pods that were in the first list, too.

        Jobs start and end between two queries. A pod that is listed before and after Slurm is queried existed
        all the time, so its job must be in Slurm's answer.
        """
        before = {pod.metadata.uid for pod in self.pods}
        asked = [name for name in ("live_jobs", "slurm_nodes") if name in self.answers]
        for name in (*asked, "pods"):
            del self.answers[name]
        for name in asked:
            getattr(self, name)
        lasting = [pod for pod in self.pods if pod.metadata.uid in before]
        self.answers["pods"] = (lasting, None)

    def shared_nodes(self) -> Iterator[tuple[nodes.Node, resources.Amount]]:
        """Bridged nodes that exist on both sides: Slurm's view, and what is allocatable in Kubernetes."""
        for name in self.bridged_nodes:
            allocatable, node = self.allocatable(name), self.slurm_nodes.get(name)
            if allocatable is not None and node is not None:
                yield node, allocatable

    def allocatable(self, name: str) -> resources.Amount | None:
        """What is allocatable on a node; None if Kubernetes has no such node."""
        node = self.kube_nodes.get(name)
        return self.gpus_only(podview.amount(node.status.allocatable)) if node is not None else None

    def requested(self, node: str, *, ours: bool) -> resources.Amount:
        """Sum of the requests of pods on this node: of jobs' pods, or of all others."""
        total = resources.Amount()
        for pod in self.pods:
            if pod.spec.node_name == node and self.is_ours(pod) == ours and not podview.is_over(pod):
                total += podview.requested(pod)
        return self.gpus_only(total)

    def gpus_only(self, amount: resources.Amount) -> resources.Amount:
        """Drop devices that are not GPUs of this site."""
        return amount.only(set(policies.resolved(self.site).gpu_resources.values()))


def _text(path: Path) -> str:
    """Decode leniently: Slurm accepts any bytes in comments and descriptions."""
    return path.read_text(encoding="utf-8", errors="surrogateescape")
