"""A small pod on a real node: can the default image be had there, and is the NAS there and writable?

It is as much like a job's pod as it can be. It goes where the Secrets for the registry and the claim of the
NAS are. It is never root, whom a file server may turn away (root_squash) where users can write: it runs as
whoever calls the doctor, for root as nobody, and writes where everybody may: into the drop folder, where
hidden files are no jobs.
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
NO_HOME = "default"
"""Where a pod goes that needs nothing, when Penstock has no namespace yet."""
MOUNT = "mount the folder on the node, or correct `nas` and `nas.shared_mounts` in the site file"


@registry.add("pod", "a pod starts with the default image and can write the NAS")
def pod(live: Live) -> Iterator[Problem]:
    image = _image(live)
    node = next((name for name in live.bridged_nodes if name in live.kube_nodes), "")
    if not node:
        raise Skip("there is no node to try it on")
    manifest = _manifest(live.site, node=node, image=image, home=_home(live))
    home, name = manifest["metadata"]["namespace"], manifest["metadata"]["name"]
    live.cluster.create(manifest)
    try:
        found = _wait(live, home, name)
        told = _warnings(live, found)
    finally:
        live.cluster.ask(lambda kube: kube.delete(kinds.PODS, namespace=home, name=name, uid=None, grace=0))
    yield from _judge(found, told, node=node, image=image)


def _home(live: Live) -> str:
    """The first namespace with all that the pod needs: Penstock's, as for prepulled images, or a user's."""
    ours = live.site.kubernetes.namespace
    known = (ours, *kubernetes_side.user_namespaces(live))
    homes = [name for name in known if _is_in_use(live.namespaces.get(name))]
    needs = [("Secret", name) for name in live.site.registry.pull_secrets]
    needs += [("PersistentVolumeClaim", claim) for claim in _claims(live.site)]
    if not needs:
        return ours if ours in homes else NO_HOME
    for home in homes:
        if all(_is_there(live, kind, name, home) for kind, name in needs):
            return home
    words = ", ".join(f"{kind} {name}" for kind, name in needs)
    raise Skip(f"no namespace of Penstock or its users has what the pod needs: {words}")


def _is_in_use(namespace: dict[str, Any] | None) -> bool:
    return namespace is not None and not namespace["metadata"].get("deletionTimestamp")


def _is_there(live: Live, kind: str, name: str, home: str) -> bool:
    metadata = {"name": name, "namespace": home}
    return live.cluster.get({"apiVersion": "v1", "kind": kind, "metadata": metadata}) is not None


def _claims(site: Site) -> list[str]:
    sources = (volume.get("persistentVolumeClaim", {}) for volume in _volumes(site))
    return [source["claimName"] for source in sources if source]


def _image(live: Live) -> str:
    images = [live.site.partitions[name].image for name in clusters.bridged_partitions(live.site)]
    image = live.site.registry.default_image or next((each for each in images if each), None)
    if not image:
        raise Skip("the site file has no default image")
    return image


def _warnings(live: Live, found: types.Pod) -> str:
    """What the cluster complains of about a pod that did not do what it should."""
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


def _judge(found: types.Pod, told: str, *, node: str, image: str) -> Iterator[Problem]:
    end, stuck = podview.container_state(found).terminated, outcomes.hopeless(found)
    if found.status.phase == "Succeeded":
        return
    if stuck is not None:
        yield Problem(
            f"image {image} cannot be had on {node}: {told or f'{stuck.reason} {stuck.message}'.strip()}",
            "is the registry reachable from the node, and the name right? See registry.pull_secrets",
        )
    elif end is not None and end.exit_code == NOT_WRITABLE:
        yield Problem(
            f"users cannot write the NAS's drop folder in a pod on {node}",
            "mount the NAS on the node, read-write; `penstock doctor --only nas-folders` looks at the folder",
        )
    else:
        why = told or found.status.message or found.status.reason or "it did not start in time"
        remedy = MOUNT if "FailedMount" in told else f"kubectl describe node {node}, and the events there"
        yield Problem(f"a pod on {node} did not run: {why}", remedy)


def _manifest(site: Site, *, node: str, image: str, home: str) -> dict[str, Any]:
    name = f"penstock-doctor-{os.getpid()}"
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
            "securityContext": _security(),
            "containers": [container],
            "volumes": _volumes(site),
            "tolerations": [{"operator": "Exists"}],
            **({"imagePullSecrets": secrets} if secrets else {}),
        },
    }


def _security() -> dict[str, Any]:
    """A user, as in the pods of jobs."""
    is_root = os.getuid() == 0
    return {
        "runAsUser": NOBODY if is_root else os.getuid(),
        "runAsGroup": NOBODY if is_root else os.getgid(),
        "runAsNonRoot": True,
        "seccompProfile": {"type": "RuntimeDefault"},
    }


def _mounts(site: Site) -> tuple[str, ...]:
    return policies.resolved(site).shared_mounts[:1]


def _volumes(site: Site) -> list[dict[str, Any]]:
    policy = policies.resolved(site)
    return [{"name": f"m{n}", **pods.volume_source(mount, policy)} for n, mount in enumerate(_mounts(site))]


def _script(site: Site, file: str) -> str:
    """Only the NAS has a folder that everybody may write; of others it is enough that they are there."""
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
