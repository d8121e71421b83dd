"""Starts a small pod on a node: can the default image be pulled there, and is the NAS mounted and writable?

The pod resembles a job's pod. It runs in a namespace that has the pull secrets and the claim of the NAS. It
never runs as root, whom a file server may refuse (root_squash) what users may do, but as the caller of the
doctor, or as nobody if that is root. It writes a hidden file, which is not a job, into the drop folder, which
everybody may write.
"""

from __future__ import annotations

import os
import shlex
import time
from collections.abc import Iterator
from typing import Any

from penstock import errors, wellknown
from penstock.doctor import kubernetes_side
from penstock.doctor.checks import Problem, Registry, Skip
from penstock.doctor.live import Live
from penstock.judge import outcomes
from penstock.kube import codec, kinds, podevents, podview, types
from penstock.render import manifests, pods
from penstock.site import clusters, policies
from penstock.site.schema import Site

registry = Registry()
SECONDS = 60.0
POLL_SECONDS = 0.3
NOT_WRITABLE = 3
NOBODY = 65534
FALLBACK_NAMESPACE = "default"
"""For a pod that needs no other objects, while Penstock has no namespace yet."""
MOUNT = "mount the folder on the node, or correct `nas` and `nas.shared_mounts` in the site file"


@registry.add("pod", "a pod with the default image starts and can write to the NAS")
def pod(live: Live) -> Iterator[Problem]:
    image = _image(live)
    node = next((name for name in live.bridged_nodes if name in live.kube_nodes), "")
    if not node:
        raise Skip("no bridged node exists in Kubernetes")
    manifest = _manifest(live.site, node=node, image=image, home=_home(live))
    home, name = manifest["metadata"]["namespace"], manifest["metadata"]["name"]
    live.cluster.create(manifest)
    try:
        found = _wait(live, home, name)
        warnings = _warnings(live, found)
    finally:
        live.cluster.ask(lambda kube: kube.delete(kinds.PODS, namespace=home, name=name, uid=None, grace=0))
    yield from _judge(found, warnings, node=node, image=image)


def _home(live: Live) -> str:
    """The first namespace that has all the pod needs: Penstock's, as for prepulled images, or a user's."""
    ours = live.site.kubernetes.namespace
    known = (live.namespaces.get(name) for name in (ours, *kubernetes_side.user_namespaces(live)))
    metas = [namespace["metadata"] for namespace in known if namespace is not None]
    homes: list[str] = [meta["name"] for meta in metas if not meta.get("deletionTimestamp")]
    needs = [("Secret", name) for name in live.site.registry.pull_secrets]
    claims = [volume.get("persistentVolumeClaim") for volume in _volumes(live.site)]
    needs += [("PersistentVolumeClaim", claim["claimName"]) for claim in claims if claim]
    if not needs:
        return ours if ours in homes else FALLBACK_NAMESPACE
    for home in homes:
        if all(_exists(live, kind, name, home) for kind, name in needs):
            return home
    words = ", ".join(f"{kind} {name}" for kind, name in needs)
    raise Skip(f"no namespace of Penstock or its users has what the pod needs: {words}")


def _exists(live: Live, kind: str, name: str, home: str) -> bool:
    metadata = {"name": name, "namespace": home}
    return live.cluster.get({"apiVersion": "v1", "kind": kind, "metadata": metadata}) is not None


def _image(live: Live) -> str:
    images = [live.site.partitions[name].image for name in clusters.bridged_partitions(live.site)]
    image = live.site.registry.default_image or next((each for each in images if each), None)
    if not image:
        raise Skip("the site file has no default image")
    return image


def _warnings(live: Live, found: types.Pod) -> str:
    """Warning events of a pod that did not succeed."""
    if found.status.phase == "Succeeded":
        return ""
    meta = found.metadata
    try:
        items = live.cluster.items(
            kinds.EVENTS, podevents.Event, namespace=meta.namespace, fields=podevents.about(meta.uid)
        )
    except errors.KubeError:
        return ""
    return "; ".join(podevents.words(items))


def _judge(found: types.Pod, warnings: str, *, node: str, image: str) -> Iterator[Problem]:
    end, stuck = podview.container_state(found).terminated, outcomes.hopeless(found)
    if found.status.phase == "Succeeded":
        return
    if stuck is not None:
        why = warnings or f"{stuck.reason} {stuck.message}".strip()
        remedy = "check the image's name, registry.pull_secrets, and that the node reaches the registry"
        yield Problem(f"image {image} cannot be pulled on {node}: {why}", remedy)
    elif end is not None and end.exit_code == NOT_WRITABLE:
        yield Problem(
            f"users cannot write to the NAS's drop folder in a pod on {node}",
            "mount the NAS on the node, read-write; `penstock doctor --only nas-folders` checks the folder",
        )
    else:
        why = warnings or found.status.message or found.status.reason or "it did not start in time"
        remedy = MOUNT if "FailedMount" in warnings else f"see `kubectl describe node {node}`"
        yield Problem(f"a pod on {node} did not run: {why}", remedy)


def _manifest(site: Site, *, node: str, image: str, home: str) -> dict[str, Any]:
    name = f"penstock-doctor-{os.getpid()}"
    uid, gid = (os.getuid(), os.getgid()) if os.getuid() != 0 else (NOBODY, NOBODY)
    container = {
        "name": "job",
        "image": image,
        "command": ["/bin/sh", "-c", _script(site, f".{name}")],
        "volumeMounts": [{"name": f"m{n}", "mountPath": mount} for n, mount in enumerate(_mounts(site))],
        "resources": {"requests": {"cpu": "0", "memory": "0"}},  # a user's LimitRange would ask for more
        "securityContext": {"allowPrivilegeEscalation": False, "capabilities": {"drop": ["ALL"]}},
    }
    secrets = [{"name": secret} for secret in site.registry.pull_secrets]
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": manifests.meta(name, namespace=home),
        "spec": {
            "restartPolicy": "Never",
            "nodeName": node,
            "automountServiceAccountToken": False,
            "securityContext": {
                "runAsUser": uid,
                "runAsGroup": gid,
                "runAsNonRoot": True,
                "seccompProfile": {"type": "RuntimeDefault"},
            },
            "containers": [container],
            "volumes": _volumes(site),
            "tolerations": [{"operator": "Exists"}],
            **({"imagePullSecrets": secrets} if secrets else {}),
        },
    }


def _mounts(site: Site) -> tuple[str, ...]:
    return policies.resolved(site).shared_mounts[:1]


def _volumes(site: Site) -> list[dict[str, Any]]:
    policy = policies.resolved(site)
    return [{"name": f"m{n}", **pods.volume_source(mount, policy)} for n, mount in enumerate(_mounts(site))]


def _script(site: Site, file: str) -> str:
    """Write to the drop folder, the only one that everybody may write; other mounts need only exist."""
    if site.nas is None or not site.nas.in_pods:
        return "true"
    path = shlex.quote(f"{site.nas.path}/{site.nas.drop}/{wellknown.DROP_SUBMIT}/{file}")
    return f"{{ touch {path} && rm {path}; }} || exit {NOT_WRITABLE}"


def _wait(live: Live, home: str, name: str) -> types.Pod:
    deadline = time.monotonic() + SECONDS
    while True:
        answer = live.cluster.ask(lambda kube: kube.get(kinds.PODS, namespace=home, name=name))
        found = codec.decode(answer, types.Pod)
        if podview.is_over(found) or outcomes.hopeless(found) or time.monotonic() > deadline:
            return found
        time.sleep(POLL_SECONDS)
