"""Faults set through the admin API: of nodes, images, single pods, admission."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Final

from penstock_lab.devcluster import statuses
from penstock_lab.devcluster.statuses import Json

_KNOWN: Final[Mapping[str, tuple[int, Mapping[str, type]]]] = {
    "nodes": (1, {"ready": bool, "gone": bool, "stopped": bool, "reject": str}),
    "pods": (2, {"stuckTerminating": bool}),
    "images": (0, {"missing": list}),
    "admission": (0, {"labels": dict, "message": str}),
}
"""By kind of fault: number of names in its path, and its fields."""


class Faults:
    """The current faults; calls the listeners after each change."""

    def __init__(self) -> None:
        self._faults: dict[tuple[str, str], Json] = {}
        self.listeners: list[Callable[[], None]] = []

    def put(self, path: list[str], body: Any) -> None:
        """Set nodes/NAME, pods/NAMESPACE/NAME, images or admission; an empty body clears it."""
        count, allowed = _KNOWN.get(path[0] if path else "", (-1, {}))
        if len(path) - 1 != count:
            raise statuses.ApiError(*statuses.NO_SUCH_PATH)
        good = isinstance(body, dict) and all(
            name in allowed and isinstance(value, allowed[name]) for name, value in body.items()
        )
        if not good:
            known = ", ".join(f"{name} ({kind.__name__})" for name, kind in allowed.items())
            raise statuses.bad_request(f"a fault of {path[0]} is a JSON object; known are: {known}")
        key = (path[0], "/".join(path[1:]))
        self._faults.pop(key, None)
        if body:
            self._faults[key] = body
        self._tell()

    def clear(self) -> None:
        self._faults.clear()
        self._tell()

    def _tell(self) -> None:
        for listener in self.listeners:
            listener()

    def of(self, what: str, name: str = "") -> Json:
        return self._faults.get((what, name), {})

    def as_json(self) -> Json:
        named: dict[str, Json] = {"nodes": {}, "pods": {}, "images": {}, "admission": {}}
        for (what, name), fault in self._faults.items():
            named[what][name] = fault
        missing = sorted(self.of("images").get("missing", ()))
        return named | {"images": {"missing": missing}, "admission": self.of("admission")}

    def is_ready(self, node: str) -> bool:
        return bool(self.of("nodes", node).get("ready", True)) and not self.of("nodes", node).get("gone")

    def is_reachable(self, node: str) -> bool:
        """`stopped` is a hanging kubelet that the node controller has not noticed yet."""
        return self.is_ready(node) and not self.of("nodes", node).get("stopped")

    def is_stuck(self, pod: Json) -> bool:
        name = f"{pod['metadata']['namespace']}/{pod['metadata']['name']}"
        return bool(self.of("pods", name).get("stuckTerminating"))

    def check_admission(self, pod: Json) -> None:
        """Refuse pods with these labels, as a webhook would."""
        fault, labels = self.of("admission"), (pod.get("metadata") or {}).get("labels") or {}
        if fault.get("labels") and fault["labels"].items() <= labels.items():
            why = f'admission webhook "faults.devcluster" denied the request: {fault.get("message", "")}'
            raise statuses.ApiError(403, "Forbidden", why)
