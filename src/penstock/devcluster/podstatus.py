"""What kubelet writes into a pod's status, from the states of its containers."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Final

from penstock.devcluster import times
from penstock.devcluster.statuses import Json


@dataclass
class ContainerState:
    """Where one container is: exactly one of waiting, running and terminated."""

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
        """None while it has not ended for good."""
        terminated = self.state.get("terminated")
        return int(terminated["exitCode"]) if terminated else None

    def wait(self, reason: str, message: str = "") -> None:
        if "terminated" in self.state:
            self.last = self.state
        self.state = {"waiting": {"reason": reason, **({"message": message} if message else {})}}

    def run(self, process: str) -> None:
        if "terminated" in self.state:
            self.last = self.state
        self.state = {"running": {"startedAt": times.now()}}
        self.process = f"penstock://{process}"

    def end(self, code: int, reason: str, *, message: str = "") -> None:
        started = self.state.get("running", {}).get("startedAt", "1970-01-01T00:00:00Z")
        ended = {"exitCode": code, "reason": reason, "startedAt": started, "finishedAt": times.now()}
        ended |= {"message": message} if message else {}
        self.state = {"terminated": {**ended, "containerID": self.process}}

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
    """All that is known of a pod on its node."""

    init: list[ContainerState]
    main: list[ContainerState]
    started_at: str = ""
    reason: str = ""
    message: str = ""
    failed: bool = False
    over: bool = False

    def has_ended(self) -> bool:
        """Every container has ended for good."""
        return all(one.exit_code is not None for one in self.main)

    def phase(self) -> str:
        codes = [one.exit_code for one in (*self.init, *self.main)]
        running = any(one.is_running for one in self.main)
        if (self.failed and not running) or (
            self.over and any(code is not None for code in codes) and set(codes) != {0}
        ):
            return "Failed"
        if self.has_ended():
            return "Succeeded" if set(codes) == {0} else "Failed"
        begun = any(one.is_running or one.restarts or one.exit_code is not None for one in self.main)
        return "Running" if begun else "Pending"


_OWN_CONDITIONS: Final = ("Initialized", "Ready", "ContainersReady", "PodScheduled")


def _condition(kind: str, holds: bool, old: list[Json], why: Json) -> Json:
    status = "True" if holds else "False"
    before: Any = next((one for one in old if one["type"] == kind), {})
    moved = before.get("lastTransitionTime") if before.get("status") == status else times.now()
    base = {"type": kind, "status": status, "lastProbeTime": None, "lastTransitionTime": moved or times.now()}
    return base if holds else {**base, **why}


def build(pod: Json, state: PodState) -> Json:
    """The whole status."""
    phase, old = state.phase(), pod["status"].get("conditions") or []
    initialized = all(one.exit_code == 0 for one in state.init)
    ready = phase == "Running" and all(one.is_running for one in state.main)
    done = (
        {"reason": "PodCompleted"}
        if phase == "Succeeded"
        else {"reason": "PodFailed" if phase == "Failed" else "ContainersNotReady"}
    )
    conditions = [
        _condition("Initialized", initialized, old, {"reason": "ContainersNotInitialized"}),
        _condition("Ready", ready, old, done),
        _condition("ContainersReady", ready, old, done),
        _condition("PodScheduled", True, old, {}),
        *(one for one in old if one["type"] not in _OWN_CONDITIONS),
    ]
    status = {
        "phase": phase,
        "conditions": conditions,
        "hostIP": "127.0.0.1",
        "hostIPs": [{"ip": "127.0.0.1"}],
        "podIP": "127.0.0.1",
        "podIPs": [{"ip": "127.0.0.1"}],
        "startTime": state.started_at,
        "qosClass": pod["status"].get("qosClass", "BestEffort"),
        "containerStatuses": [one.as_json(ready=one.is_running) for one in state.main],
    }
    if state.init:
        status["initContainerStatuses"] = [one.as_json(ready=one.exit_code == 0) for one in state.init]
    status.update(
        {key: value for key, value in (("reason", state.reason), ("message", state.message)) if value}
    )
    return status
