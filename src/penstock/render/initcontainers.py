"""The init container of a job's pod, if it needs one: what must be there before its container is made.

A kubelet creates a missing subPath, as root: a folder of #K8S_MOUNT on the shared storage, or a folder where
/etc/hosts should be a file. So an init container checks the folders, on the node and as the job's owner, and
in a gang it makes the file. It requests no more than the job's container, so the pod's requests stay Slurm's
allocation (decision 20).
"""

from __future__ import annotations

from typing import Any

from penstock import wellknown
from penstock.model import jobs
from penstock.model.jobspec import PodSpec
from penstock.model.podpolicy import PodPolicy
from penstock.render import directives, hostnames

Manifest = dict[str, Any]
HOSTS = "/etc/hosts"
RUN = "run"  # the volume


def has_names(allocation: jobs.Allocation, policy: PodPolicy) -> bool:
    """Whether the job's pods get each other's names: a gang's, unless they have the node's network."""
    return len(allocation.shares) > 1 and policy.partition(allocation.partition).network == "pod"


def add(
    manifest: Manifest, allocation: jobs.Allocation, rank: int, *, asked: PodSpec, policy: PodPolicy
) -> None:
    """Add it, and /etc/hosts for the container that it makes it for."""
    spec, named = manifest["spec"], has_names(allocation, policy)
    (container,) = spec["containers"]
    if not named and not asked.mounts:
        return
    image = container["image"]
    if asked.mounts:  # the script's image may have a manipulated shell, or none
        image = policy.image_in(allocation.partition) or image
    made = _container(container, asked, image)
    if named:
        made["name"] = wellknown.NAMES_NAME
        held = rank == 0 and asked.own_entrypoint
        made["env"] = _variables(allocation.shares[rank].node, held=held)
        mount = {"name": RUN, "mountPath": HOSTS, "subPath": wellknown.HOSTS_FILE}
        container["volumeMounts"].append(mount)
    spec["initContainers"] = [made]


def _container(container: Manifest, asked: PodSpec, image: str) -> Manifest:
    requests = {name: container["resources"]["requests"][name] for name in ("cpu", "memory")}
    words = ("/bin/sh", f"{wellknown.AGENT_MOUNT}/agent.sh", "look", *(one.source for one in asked.mounts))
    return {name: container[name] for name in ("imagePullPolicy", "securityContext") if name in container} | {
        "name": wellknown.LOOKING_NAME,
        "image": image,
        "command": [directives.literally(word) for word in words],
        "resources": {"requests": requests, "limits": dict(requests)},
        "volumeMounts": [dict(one) for one in container["volumeMounts"]],
    }


def _variables(node: str, *, held: bool) -> list[Manifest]:
    """What the agent writes into the file, and whether it then waits for the other pods' lines: an image's
    own entrypoint cannot.
    """
    address = {"fieldRef": {"fieldPath": "status.podIP"}}
    names = " ".join(hostnames.names_of(node))
    found: list[Manifest] = [
        {"name": "PENSTOCK_ADDRESS", "valueFrom": address},
        {"name": "PENSTOCK_NAMES", "value": names},
    ]
    return [*found, {"name": "PENSTOCK_HELD", "value": "1"}] if held else found
