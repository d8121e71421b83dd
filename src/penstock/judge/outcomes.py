"""How a job's container ended, derived from its pod: exit code, signal and kind, and whether to requeue."""

from __future__ import annotations

from penstock.kube import podview, types
from penstock.model.reasons import LOST, VANISHED, Outcome, OutcomeKind

AGENT_PREFIX = "penstock: "  # of termination messages that the agent could not write to the job's output
PERMANENT_REJECTIONS = frozenset({"NodeAffinity"})  # the node lacks required labels: a requeue does not help
NEVER_RAN = frozenset({"StartError", "ContainerCannotRun"})  # the runtime could not start the program
KILLED = 137
# Only a new image or spec ends these. Until then the job is RUNNING in Slurm for nothing.
HOPELESS = frozenset(
    {
        "ImagePullBackOff",
        "InvalidImageName",
        "ErrImageNeverPull",
        "CreateContainerConfigError",
        "CreateContainerError",
    }
)
_NO_SHELL = "/bin/sh"


def outcome_of(pod: types.Pod) -> Outcome | None:
    """The job's outcome, or None while the pod is pending or running."""
    init, state = podview.init_state(pod), podview.container_state(pod)
    if init.terminated is not None and init.terminated.exit_code:
        return _terminated(init.terminated, pod)
    if state.terminated is not None:
        return _terminated(state.terminated, pod)
    if pod.status.phase == "Failed":
        return _rejected(pod)
    if pod.status.phase == "Succeeded":
        return Outcome(exit_code=0)
    stuck = hopeless(pod)
    return None if stuck is None else _never_starts(stuck)


def hopeless(pod: types.Pod) -> types.Waiting | None:
    """The waiting state of a container that cannot start."""
    for state in (podview.init_state(pod), podview.container_state(pod)):
        if state.waiting is not None and state.waiting.reason in HOPELESS:
            return state.waiting
    return None


def own_end(pod: types.Pod) -> Outcome | None:
    """The container's own end; None for a deleted or evicted pod, whose exit code is not its script's."""
    if podview.container_state(pod).terminated is None:
        return None
    outcome = outcome_of(pod)
    by_others = (OutcomeKind.EVICTED, OutcomeKind.POD_DELETED)
    return None if outcome is None or outcome.kind in by_others else outcome


def _rejected(pod: types.Pod) -> Outcome:
    """The kubelet rejected the pod (OutOfcpu, NodeAffinity …) or the node went away before it ran."""
    return Outcome(
        kind=OutcomeKind.REJECTED,
        exit_code=LOST,
        detail=one_line(pod.status.reason or "pod failed", pod.status.message),
        requeue=pod.status.reason not in PERMANENT_REJECTIONS,
        began=podview.has_started(pod),
    )


def _never_starts(waiting: types.Waiting) -> Outcome:
    """The kubelet's reason. It names no host path, so users learn nothing about the node's files."""
    kind = OutcomeKind.MOUNT_FAILED if "subPath" in waiting.message else OutcomeKind.CANNOT_START
    return Outcome(kind=kind, exit_code=LOST, detail=one_line(waiting.reason, waiting.message))


def _terminated(end: types.Terminated, pod: types.Pod) -> Outcome:
    signal, disruption = podview.signal_of(end), podview.disruption(pod)
    if disruption or pod.status.reason:
        detail = disruption or one_line(pod.status.reason, pod.status.message)
        code = end.exit_code or LOST
        return Outcome(kind=OutcomeKind.EVICTED, exit_code=code, detail=detail, signal=signal, requeue=True)
    if pod.metadata.deletion_timestamp:
        code = end.exit_code or LOST
        return Outcome(kind=VANISHED.kind, exit_code=code, signal=signal, succeeded=not end.exit_code)
    if end.reason in ("Completed", "Error", ""):
        return _by_itself(end, signal)
    return _abnormal(end, pod, signal)


def _by_itself(end: types.Terminated, signal: int) -> Outcome:
    """The agent writes a termination message unless it was killed itself."""
    said = " ".join(end.message.split())
    if said.startswith(AGENT_PREFIX):
        detail = said.removeprefix(AGENT_PREFIX)
        return Outcome(kind=OutcomeKind.AGENT_FAILED, exit_code=end.exit_code, detail=detail, signal=signal)
    kind = OutcomeKind.KILLED if end.exit_code == KILLED and not said else OutcomeKind.EXITED
    return Outcome(kind=kind, exit_code=end.exit_code, signal=signal)


def _abnormal(end: types.Terminated, pod: types.Pod, signal: int) -> Outcome:
    """OOMKilled, StartError and the like. A container that never ran has no exit code: sacct would show the
    runtime's 128 as FAILED 0:0.
    """
    code = LOST if end.reason in NEVER_RAN else end.exit_code or LOST
    kind, detail = OutcomeKind.CONTAINER_FAILED, one_line(end.reason, end.message)
    if end.reason == "OOMKilled":
        kind, detail = OutcomeKind.OUT_OF_MEMORY, f"{podview.requested(pod).memory // 2**20}Mi"
    elif end.reason in NEVER_RAN and _NO_SHELL in end.message:
        kind, detail = OutcomeKind.NO_SHELL, end.reason
    return Outcome(kind=kind, exit_code=code, detail=detail, signal=signal)


def one_line(reason: str, message: str) -> str:
    return " ".join(f"{reason}: {message}".split()) if message else reason
