"""How a job's container ended, read off its pod: the number for Slurm's record and the reason in words."""

from __future__ import annotations

import dataclasses
import signal

from penstock.kube import reading, types

LOST = 1  # exit code for ends in which no container exit code exists; the reason tells


@dataclasses.dataclass(frozen=True)
class Outcome:
    """The end of a job: its exit code, and why when that is not the script's own doing."""

    exit_code: int
    reason: str = ""


VANISHED = Outcome(LOST, "the job's pod was deleted from outside")
STOPPED = Outcome(128 + signal.SIGTERM)  # we removed the pod ourselves and its last word was not heard


def outcome_of(pod: types.Pod) -> Outcome | None:
    """The end of the job, or None while it goes on."""
    state = reading.container_state(pod)
    if state.terminated is not None:
        return Outcome(state.terminated.exit_code, _terminated_reason(state.terminated, pod))
    if pod.status.phase == "Failed":
        return Outcome(LOST, _words(pod.status.reason or "pod failed", pod.status.message))
    if pod.status.phase == "Succeeded":
        return Outcome(0)
    if state.waiting is not None and state.waiting.reason in reading.HOPELESS:
        return Outcome(LOST, _words(state.waiting.reason, state.waiting.message))
    return None


def _terminated_reason(end: types.Terminated, pod: types.Pod) -> str:
    if pod.status.reason:
        return _words(pod.status.reason, pod.status.message)
    if end.reason in ("Completed", "Error", ""):
        return ""
    return _words(end.reason, end.message)


def _words(reason: str, message: str) -> str:
    return f"{reason}: {message}" if message else reason
