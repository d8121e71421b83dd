"""How a job's container ended, read off its pod: the numbers for Slurm's record, the reason in words, and
whether the job deserves another try."""

from __future__ import annotations

import dataclasses

from penstock.kube import reading, types

LOST = 1  # exit code for ends in which no container exit code exists; the reason tells
AGENTS_WORD = "penstock: "  # begins what the agent leaves there when it cannot say it in the job's output
NEVER = frozenset({"NodeAffinity"})  # asked for labels that the node lacks: trying again changes nothing
NEVER_RAN = frozenset({"StartError", "ContainerCannotRun"})  # the runtime could not start the program
KILLED = 137
KILLED_FROM_OUTSIDE = "the container was killed from outside (SIGKILL), as happens when its node goes away"
NOT_INSIDE = "a folder cannot be mounted, as when a link leads out of the shared folders"
_NO_SHELL = "/bin/sh"


@dataclasses.dataclass(frozen=True)
class Outcome:
    """The end of a job: its exit code or signal, why when that is not the script's own doing."""

    exit_code: int
    reason: str = ""
    signal: int = 0
    requeue: bool = False
    """The cluster's doing, not the job's: Slurm should run it again."""
    began: bool = True
    """Whether the script may have begun."""
    succeeded: bool = False
    """The script itself ended well, and `exit_code` is another because its pod was being deleted."""

    def as_asked(self) -> Outcome:
        """This end where the pod was deleted because Slurm wanted the job's end: the script's own."""
        if self.reason != VANISHED.reason:
            return self
        code = 0 if self.succeeded else self.exit_code
        return dataclasses.replace(self, exit_code=code, reason="", succeeded=False)


VANISHED = Outcome(LOST, "the job's pod was deleted from outside")
NODE_LOST = Outcome(LOST, "the pod's node is gone from Kubernetes", requeue=True)


def outcome_of(pod: types.Pod) -> Outcome | None:
    """The end of the job, or None while it goes on."""
    looking, state = reading.looking_state(pod), reading.container_state(pod)
    if looking.terminated is not None and looking.terminated.exit_code:
        return _terminated(looking.terminated, pod)
    if state.terminated is not None:
        return _terminated(state.terminated, pod)
    if pod.status.phase == "Failed":
        # Kubelet refused the pod (OutOfcpu, NodeAffinity …) or the node went away before it ran.
        reason = _words(pod.status.reason or "pod failed", pod.status.message)
        requeue = pod.status.reason not in NEVER
        return Outcome(LOST, reason, requeue=requeue, began=reading.has_started(pod))
    if pod.status.phase == "Succeeded":
        return Outcome(0)
    for waiting in (looking.waiting, state.waiting):
        if waiting is not None and waiting.reason in reading.HOPELESS:
            return Outcome(LOST, _hopeless(waiting))
    return None


def _hopeless(waiting: types.Waiting) -> str:
    """What the kubelet says; of a folder it does not say which, so that nobody learns of the node's files."""
    if "subPath" in waiting.message:
        return f"{waiting.reason}: #K8S_MOUNT: {NOT_INSIDE} ({' '.join(waiting.message.split())})"
    return _words(waiting.reason, waiting.message)


def _terminated(end: types.Terminated, pod: types.Pod) -> Outcome:
    signal, disruption = reading.signal_of(end), reading.disruption(pod)
    if disruption or pod.status.reason:
        reason = disruption or _words(pod.status.reason, pod.status.message)
        return Outcome(end.exit_code or LOST, reason, signal=signal, requeue=True)
    if pod.metadata.deletion_timestamp:
        code = end.exit_code or LOST
        return Outcome(code, VANISHED.reason, signal=signal, succeeded=not end.exit_code)
    if end.reason in ("Completed", "Error", ""):
        said = " ".join(end.message.split())
        reason = said.removeprefix(AGENTS_WORD) if said.startswith(AGENTS_WORD) else ""
        # The agent has last words for every end that it lives to see.
        if end.exit_code == KILLED and not said:
            reason = KILLED_FROM_OUTSIDE
        return Outcome(end.exit_code, reason, signal=signal)
    # What never ran has no code of its own; the runtime's 128 would be a FAILED 0:0 in sacct.
    code = LOST if end.reason in NEVER_RAN else end.exit_code or LOST
    return Outcome(code, _abnormal(end, pod), signal=signal)


def _abnormal(end: types.Terminated, pod: types.Pod) -> str:
    """OOMKilled, StartError and the like, in plain words."""
    if end.reason == "OOMKilled":
        limit = reading.requested(pod).memory // 2**20
        return f"OOMKilled: the job used more memory than its limit of {limit}Mi (--mem)"
    if end.reason in NEVER_RAN and _NO_SHELL in end.message:
        return f"{end.reason}: the image has no /bin/sh, which the job's agent needs"
    return _words(end.reason, end.message)


def _words(reason: str, message: str) -> str:
    """One line, whatever the API wrote."""
    return " ".join(f"{reason}: {message}".split()) if message else reason
