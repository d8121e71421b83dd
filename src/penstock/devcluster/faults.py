"""What is broken on purpose, set through the admin API: nodes, images, single pods."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from penstock.devcluster import statuses
from penstock.devcluster.statuses import Json

NODE_FAULTS = {"ready": bool, "gone": bool, "reject": str, "stopped": bool}
POD_FAULTS = {"stuckTerminating": bool}
IMAGE_FAULTS = {"missing": list}
ADMISSION_FAULTS = {"labels": dict, "message": str}


def _checked(body: Any, allowed: Mapping[str, type[Any]]) -> Json:
    if not isinstance(body, dict):
        raise statuses.bad_request("a fault is a JSON object")
    for name, value in body.items():
        if name not in allowed or not isinstance(value, allowed[name]):
            known = ", ".join(f"{field} ({kind.__name__})" for field, kind in allowed.items())
            raise statuses.bad_request(f"unknown fault {name!r} or wrong type; known are: {known}")
    return body


class Faults:
    """The list of faults; whoever has to act on a change listens."""

    def __init__(self) -> None:
        self._nodes: dict[str, Json] = {}
        self._pods: dict[tuple[str, str], Json] = {}
        self._images: set[str] = set()
        self._admission: Json = {}
        self._listeners: list[Callable[[], None]] = []

    def listen(self, listener: Callable[[], None]) -> None:
        self._listeners.append(listener)

    def _tell(self) -> None:
        for listener in self._listeners:
            listener()

    def as_json(self) -> Json:
        return {
            "nodes": self._nodes,
            "pods": {f"{namespace}/{name}": fault for (namespace, name), fault in self._pods.items()},
            "images": {"missing": sorted(self._images)},
            "admission": self._admission,
        }

    def set_node(self, name: str, body: Any) -> None:
        """Faults of one node: {"ready": false}, {"gone": true}, {"reject": "OutOfcpu"}, or {"stopped": true}
        for a kubelet that stands still, which nobody has noticed yet; empty clears.
        """
        fault = _checked(body, NODE_FAULTS)
        self._nodes.pop(name, None)
        if fault:
            self._nodes[name] = fault
        self._tell()

    def set_pod(self, namespace: str, name: str, body: Any) -> None:
        fault = _checked(body, POD_FAULTS)
        self._pods.pop((namespace, name), None)
        if fault.get("stuckTerminating"):
            self._pods[namespace, name] = fault
        self._tell()

    def set_images(self, body: Any) -> None:
        self._images = {str(image) for image in _checked(body, IMAGE_FAULTS).get("missing", [])}
        self._tell()

    def set_admission(self, body: Any) -> None:
        """Pods with these labels are refused, as a webhook would: {"labels": {...}, "message": "..."}."""
        self._admission = _checked(body, ADMISSION_FAULTS)

    def check_admission(self, pod: Json) -> None:
        """ApiError when the pod is one of those."""
        wanted = self._admission.get("labels")
        labels = (pod.get("metadata") or {}).get("labels") or {}
        if wanted and wanted.items() <= labels.items():
            why = f'admission webhook "faults.devcluster" denied the request: {self._admission["message"]}'
            raise statuses.ApiError(403, "Forbidden", why)

    def clear(self) -> None:
        self._admission = {}
        self._nodes.clear()
        self._pods.clear()
        self._images.clear()
        self._tell()

    def is_ready(self, node: str) -> bool:
        return self._nodes.get(node, {}).get("ready", True) is not False and not self.is_gone(node)

    def is_reachable(self, node: str) -> bool:
        return self.is_ready(node) and not self._nodes.get(node, {}).get("stopped")

    def is_gone(self, node: str) -> bool:
        return bool(self._nodes.get(node, {}).get("gone"))

    def rejection(self, node: str) -> str:
        return str(self._nodes.get(node, {}).get("reject", ""))

    def is_missing(self, image: str) -> bool:
        return image in self._images

    def is_stuck(self, pod: Json) -> bool:
        return (pod["metadata"]["namespace"], pod["metadata"]["name"]) in self._pods
