"""Whatever the Kubernetes API, a pod's labels and annotations, or a command in a container contain: data or
a KubeError, and never a job that is not ours.
"""

from __future__ import annotations

import contextlib
from typing import Any

import msgspec
import pytest
from hypothesis import example, given
from hypothesis import strategies as some

from penstock import errors, wellknown
from penstock.bridge import attemptfiles
from penstock.judge import outcomes
from penstock.kube import apierrors, codec, execs, lists, podevents, podview, types
from penstock.model import sentences

JSON = some.recursive(
    some.none() | some.booleans() | some.integers(-(2**53), 2**53) | some.text(max_size=8),
    lambda inner: some.lists(inner, max_size=3) | some.dictionaries(some.text(max_size=6), inner, max_size=3),
    max_leaves=10,
)
LABELS = some.dictionaries(
    some.sampled_from(
        [
            wellknown.LABEL_APP,
            wellknown.LABEL_JOB_ID,
            wellknown.LABEL_RESTART,
            wellknown.LABEL_RANK,
            wellknown.LABEL_CLUSTER,
        ]
    ),
    some.text(max_size=6) | some.sampled_from([wellknown.APP_VALUE, "17", "0", "²", "-1", "1e3", "9" * 30]),
)
TERMINATED = some.fixed_dictionaries(
    {}, optional={"exitCode": some.integers(0, 255), "reason": some.text(max_size=8), "message": some.text()}
)
STATUS = some.fixed_dictionaries(
    {},
    optional={
        "phase": some.sampled_from(["Pending", "Running", "Succeeded", "Failed", "Unknown", ""]),
        "reason": some.text(max_size=8),
        "message": some.text(max_size=20),
        "conditions": some.lists(
            some.fixed_dictionaries({"type": some.just("DisruptionTarget"), "status": some.text()})
        ),
        "containerStatuses": some.lists(
            some.fixed_dictionaries(
                {
                    "name": some.sampled_from([wellknown.CONTAINER_NAME, "x"]),
                    "state": some.fixed_dictionaries({}, optional={"terminated": TERMINATED}),
                }
            ),
            max_size=2,
        ),
    },
)
KINDS: tuple[Any, ...] = (
    types.Pod,
    types.Node,
    lists.Page[types.Pod],
    lists.Page[podevents.Event],
    execs.ExecStatus,
)


@some.composite
def pods(draw: some.DrawFn) -> types.Pod:
    """A pod as the API may show it, with labels and a status that anybody may have written."""
    meta = {"name": "p", "namespace": "n", "uid": "u", "labels": draw(LABELS)}
    body = {"metadata": meta, "spec": {"containers": []}, "status": draw(STATUS)}
    return msgspec.json.decode(msgspec.json.encode(body), type=types.Pod)


@some.composite
def answers(draw: some.DrawFn) -> bytes:
    """JSON of the right or any other form, with bytes that are neither JSON nor text, or noise."""
    pod = {"metadata": {"name": "p", "labels": {"a": "b"}}, "status": {"message": "some words"}}
    plausible = some.sampled_from([pod, {"items": [pod]}, {"status": "Success", "message": "some words"}])
    body = msgspec.json.encode(draw(plausible | JSON))
    at = draw(some.integers(0, len(body)))
    return draw(some.just(body[:at] + draw(some.binary(max_size=2)) + body[at:]) | some.binary(max_size=200))


@example(
    b'{"metadata":{"name":"\x80"},"spec":{}}', types.Pod
)  # what JSON libraries pass on is not always text
@given(answers(), some.sampled_from(KINDS))
def test_any_answer_is_decoded_or_unavailable(answer: bytes, kind: Any) -> None:
    """Truncated, foreign or garbage: KubeUnavailable, by which nothing is deleted or promised."""
    with contextlib.suppress(errors.KubeUnavailable):
        assert isinstance(codec.decode(answer, kind), kind)


@given(answers(), some.integers(300, 599), some.text())
def test_any_error_answer_is_a_kube_error(body: bytes, code: int, wait: str) -> None:
    """Whatever is in the body and in Retry-After."""
    with pytest.raises(errors.KubeError) as caught:
        apierrors.raise_for(body, code, {"Retry-After": wait})
    assert caught.value.retry_after >= 0


@given(pods())
def test_only_our_labels_name_a_job(pod: types.Pod) -> None:
    """Other pods, and labels without a number, belong to no job."""
    found = podview.job_id(pod)
    labels = pod.metadata.labels
    ours = labels.get(wellknown.LABEL_APP) == wellknown.APP_VALUE
    assert found is None or (ours and int(labels[wellknown.LABEL_JOB_ID]) == found)


@given(pods())
def test_any_pod_has_at_most_one_outcome(pod: types.Pod) -> None:
    """One line of text, and an exit code that Slurm can record."""
    assert attemptfiles.facts_of(pod).rank >= 0
    outcome = outcomes.outcome_of(pod)
    assert outcome is None or (0 <= outcome.exit_code <= 255 and 0 <= outcome.signal < 128)
    assert outcome is None or "\n" not in sentences.outcome(outcome)


@given(some.text(max_size=20), some.text(max_size=20), LABELS)
def test_another_clusters_pods_are_never_ours(ours: str, theirs: str, labels: dict[str, str]) -> None:
    """By the cluster label, whatever else the pod says."""
    marked = {**labels, wellknown.LABEL_APP: wellknown.APP_VALUE, wellknown.LABEL_CLUSTER: theirs}
    body = {"metadata": {"name": "p", "labels": marked}, "spec": {"containers": []}}
    pod = msgspec.json.decode(msgspec.json.encode(body), type=types.Pod)
    seen = podview.as_seen_by(ours, pod)
    assert podview.job_id(seen) is None or ours == theirs
