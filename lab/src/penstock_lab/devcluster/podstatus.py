"""Derives a pod's status from the states of its containers, as kubelet does."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Final

from penstock_lab.devcluster import podnetwork
from penstock_lab.devcluster.objectstore import now
from penstock_lab.devcluster.statuses import Json

_OWN_CONDITIONS: Final = ("Initialized", "Ready", "ContainersReady", "PodScheduled")


@dataclass
class ContainerState:
    """A container's state: exactly one of waiting, running and terminated."""

    name: str
    image: str
    state: Json = field(default_factory=lambda: {"waiting": {"reason": "ContainerCreating"}})
    last: Json = field(default_factory=dict)
    restarts: int = 0
    process: str = ""

    @property
    def is_running(self) -> bool:
        return "running" in self.state

    @property
    def exit_code(self) -> int | None:
        """None unless it has terminated."""
        terminated = self.state.get("terminated")
        return int(terminated["exitCode"]) if terminated else None

    def _become(self, state: Json) -> None:
        self.last = self.state if "terminated" in self.state else self.last
        self.state = state

    def wait(self, reason: str, message: str = "") -> None:
        self._become({"waiting": {"reason": reason, **({"message": message} if message else {})}})

    def run(self, process: str) -> None:
        self._become({"running": {"startedAt": now()}})
        self.process = f"penstock://{process}"

    def end(self, code: int, reason: str, *, message: str = "") -> None:
        started = self.state.get("running", {}).get("startedAt", "1970-01-01T00:00:00Z")
        ended = {"exitCode": code, "reason": reason, "startedAt": started, "finishedAt": now()}
        words = {"message": message} if message else {}
        self.state = {"terminated": {**ended, **words, "containerID": self.process}}

    def as_json(self, *, ready: bool) -> Json:
        return {
            "name": self.name,
            "image": self.image,
            "imageID": self.image,
            "containerID": self.process,
            "ready": ready,
            "started": self.is_running,
            "restartCount": self.restarts,
            "state": self.state,
            "lastState": self.last,
        }


@dataclass
class PodState:
    containers: list[ContainerState]
    init: list[ContainerState] = field(default_factory=list)
    started_at: str = ""
    address: str = ""
    failure: Json = field(default_factory=dict)
    """Reason and message if the pod itself has failed."""
    over: bool = False

    def phase(self) -> str:
        codes = {one.exit_code for one in (*self.init, *self.containers)}
        running = any(one.is_running for one in self.containers)
        if None not in codes:
            return "Succeeded" if codes == {0} and not self.failure else "Failed"
        if (self.failure and not running) or (self.over and codes != {None}):
            return "Failed"
        begun = any(one.restarts or one.exit_code is not None for one in self.containers)
        return "Running" if running or begun else "Pending"


def _condition(kind: str, holds: bool, old: list[Json], reason: str) -> Json:
    status = "True" if holds else "False"
    before: Any = next((one for one in old if one["type"] == kind and one["status"] == status), {})
    base = {"type": kind, "status": status, "lastProbeTime": None}
    why = {} if holds else {"reason": reason}
    return {**base, "lastTransitionTime": before.get("lastTransitionTime") or now(), **why}


def build(pod: Json, state: PodState) -> Json:
    phase, old = state.phase(), pod["status"].get("conditions") or []
    ready = phase == "Running" and all(one.is_running for one in state.containers)
    why = {"Succeeded": "PodCompleted", "Failed": "PodFailed"}.get(phase, "ContainersNotReady")
    init = [one.as_json(ready=one.exit_code == 0) for one in state.init]
    initialized = all(one.exit_code == 0 for one in state.init)
    holding = {"Initialized": initialized, "Ready": ready, "ContainersReady": ready, "PodScheduled": True}
    conditions = [_condition(kind, holds, old, why) for kind, holds in holding.items()]
    return {
        "phase": phase,
        "conditions": [*conditions, *(one for one in old if one["type"] not in _OWN_CONDITIONS)],
        **podnetwork.status(state.address),
        "startTime": state.started_at,
        "containerStatuses": [one.as_json(ready=one.is_running) for one in state.containers],
        **({"initContainerStatuses": init} if init else {}),
        **state.failure,
    }
