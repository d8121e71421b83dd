"""Refusals and outcomes as sentences for people: Slurm's comment, the job's stderr, tables."""

from __future__ import annotations

from collections.abc import Iterable

from penstock import wording
from penstock.model.reasons import Outcome, OutcomeKind, Refusal, RefusalKind

NAMED_HOLDERS = 3  # how many pods a refusal names

_REFUSALS = {
    RefusalKind.API_UNAVAILABLE: "waits for Kubernetes: the API does not answer",
    RefusalKind.CANCELLED: "was cancelled before it could start",
    RefusalKind.NOT_PREPARED: "cannot start: not submitted through Penstock's job_submit plugin; "
    "cancel and resubmit",
    RefusalKind.NODE_UNKNOWN: "waits for node {0.node}: Kubernetes does not know it",
    RefusalKind.NODE_NOT_READY: "waits for node {0.node}: not Ready in Kubernetes",
    RefusalKind.NODE_CORDONED: "waits for node {0.node}: cordoned in Kubernetes",
    RefusalKind.NO_ROOM: "waits for {0.resource} on {0.node}: {0.free} free of {0.wanted} needed",
    RefusalKind.EARLIER_POD: "waits for pod {0.pod} of its earlier attempt to be gone",
    RefusalKind.UNSAFE_ENVIRONMENT: "cancelled: its environment would run code on the Slurm node "
    "({0.detail}); resubmit without that",
    RefusalKind.UNREADABLE_ENVIRONMENT: "waits for the administrator: "
    "the environment that Slurm keeps of it cannot be read ({0.detail})",
}
_OUTCOMES = {
    OutcomeKind.OUT_OF_MEMORY: "OOMKilled: the job used more memory than its limit of {0.detail} (--mem)",
    OutcomeKind.KILLED: "the container was killed from outside (SIGKILL), as happens when its node goes away",
    OutcomeKind.POD_DELETED: "the job's pod was deleted from outside",
    OutcomeKind.NODE_LOST: "the pod's node is gone from Kubernetes",
    OutcomeKind.MOUNT_FAILED: "#K8S_MOUNT: a folder cannot be mounted, as when a link leads out of the "
    "shared folders ({0.detail})",
    OutcomeKind.NO_SHELL: "{0.detail}: the image has no /bin/sh, which the job's agent needs",
    OutcomeKind.NOT_ALLOWED: "not started: {0.detail}",
    OutcomeKind.NOT_ADMITTED: "not started: {0.detail}",
    OutcomeKind.API_REFUSED: "not started: {0.detail}",
    OutcomeKind.RANK_ENDED: "its pod ended with exit code {0.detail}",
    OutcomeKind.NODE_GONE: "not started: node {0.node} has left Kubernetes",
    OutcomeKind.NODE_TAKEN_BACK: "not started: Slurm has taken node {0.node} back",
}


def refusal(one: Refusal) -> str:
    text = _REFUSALS[one.kind].format(one)
    return f"{text}, held by {wording.some(one.held_by, NAMED_HOLDERS)}" if one.held_by else text


def refusals(several: Iterable[Refusal]) -> str:
    return "; ".join(map(refusal, several))


def outcome(one: Outcome) -> str:
    """Why the job ended; empty if the script ended by itself."""
    if one.recorded:
        return one.recorded
    text = _OUTCOMES.get(one.kind, "{0.detail}").format(one)
    if not one.rank:
        return text
    place = f"not started: rank {one.rank} on {one.node}" if one.node else f"rank {one.rank}"
    return f"{place}: {text}"
