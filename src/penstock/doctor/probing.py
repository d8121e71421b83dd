"""A small pod on a real node: can the default image be had there, and is the NAS there and writable?"""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from typing import Any

import msgspec

from penstock.doctor.checks import Problem, Registry, Skip
from penstock.doctor.live import Live
from penstock.kube import reading, types
from penstock.render import manifests
from penstock.site import clusters, daemons

registry = Registry()
SECONDS = 60.0
POLL_SECONDS = 0.3
NOT_WRITABLE = 3
PROBE_FILE = ".penstock-doctor"
HOPELESS = (
    "ErrImagePull",
    "ImagePullBackOff",
    "InvalidImageName",
    "ErrImageNeverPull",
    "CreateContainerError",
)


@registry.add("pod", "a pod starts with the default image and can write the NAS")
def pod(live: Live) -> Iterator[Problem]:
    image = _image(live)
    node = next((name for name in live.bridged_nodes if name in live.kube_nodes), "")
    if not node:
        raise Skip("there is no node to try it on")
    manifest = _manifest(live, node=node, image=image)
    path = f"/api/v1/namespaces/{manifest['metadata']['namespace']}/pods"
    live.cluster.request("POST", path, body=manifest)
    try:
        found = _wait(live, f"{path}/{manifest['metadata']['name']}")
    finally:
        live.cluster.request(
            "DELETE", f"{path}/{manifest['metadata']['name']}", body={"gracePeriodSeconds": 0}
        )
    yield from _judge(found, node=node, image=image)


def _image(live: Live) -> str:
    images = [live.site.partitions[name].image for name in clusters.bridged_partitions(live.site)]
    image = live.site.registry.default_image or next((each for each in images if each), None)
    if not image:
        raise Skip("the site file has no default image")
    return image


def _judge(found: types.Pod, *, node: str, image: str) -> Iterator[Problem]:
    state = reading.container_state(found)
    if found.status.phase == "Succeeded":
        return
    if state.waiting is not None and state.waiting.reason in HOPELESS:
        yield Problem(
            f"image {image} cannot be had on {node}: {state.waiting.reason} {state.waiting.message}".strip(),
            "is the registry reachable from the node, and the name right? See registry.pull_secrets",
        )
    elif state.terminated is not None and state.terminated.exit_code == NOT_WRITABLE:
        yield Problem(f"the NAS cannot be written in a pod on {node}", "mount it on the node, read-write")
    else:
        why = found.status.message or found.status.reason or "it did not start in time"
        yield Problem(f"a pod on {node} did not run: {why}", "kubectl describe node, and the events there")


def _manifest(live: Live, *, node: str, image: str) -> dict[str, Any]:
    mounts = daemons.shared_mounts(live.site)[:1]
    sources = daemons.penstockd(live.site, slurm_uid=0).get("mount_sources", {})
    command = "".join(
        f"{{ touch {mount}/{PROBE_FILE} && rm {mount}/{PROBE_FILE}; }} || exit {NOT_WRITABLE}\n"
        for mount in mounts
    )
    container = {
        "name": "job",
        "image": image,
        "command": ["/bin/sh", "-c", command or "true"],
        "volumeMounts": [{"name": f"m{n}", "mountPath": mount} for n, mount in enumerate(mounts)],
    }
    volumes = [
        {"name": f"m{n}", **(sources.get(mount) or {"hostPath": {"path": mount, "type": "Directory"}})}
        for n, mount in enumerate(mounts)
    ]
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": manifests.meta(f"penstock-doctor-{os.getpid()}", namespace="default"),
        "spec": {
            "restartPolicy": "Never",
            "nodeName": node,
            "automountServiceAccountToken": False,
            "containers": [container],
            "volumes": volumes,
            "tolerations": [{"operator": "Exists"}],
        },
    }


def _wait(live: Live, path: str) -> types.Pod:
    deadline = time.monotonic() + SECONDS
    while True:
        found = msgspec.convert(live.cluster.request("GET", path), types.Pod, strict=False)
        waiting = reading.container_state(found).waiting
        is_hopeless = waiting is not None and waiting.reason in HOPELESS
        if reading.is_over(found) or is_hopeless or time.monotonic() > deadline:
            return found
        time.sleep(POLL_SECONDS)
