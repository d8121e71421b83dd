"""Small languages: selectors, quantities, $(VAR), paths, protobuf, kubectl's STATUS column."""

from __future__ import annotations

import base64
import contextlib
from collections.abc import Iterator
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock_lab.devcluster import (
    apirequests,
    containers,
    kindtable,
    nodeobjects,
    podstatus,
    protobuf,
    quotas,
    statuses,
    tables,
    watches,
)


@contextlib.contextmanager
def only_refusals(*codes: int) -> Iterator[None]:
    """Whatever happens inside is either fine or a refusal with one of these codes."""
    try:
        yield
    except statuses.ApiError as refused:
        if refused.code not in codes:
            raise


def labelled(**labels: str) -> dict[str, Any]:
    return {"metadata": {"labels": labels}}


@pytest.mark.parametrize(
    ("selector", "matching", "other"),
    [
        ("a=1", {"a": "1"}, {"a": "2"}),
        ("a==1", {"a": "1"}, {}),
        ("a!=1", {}, {"a": "1"}),
        ("a", {"a": ""}, {"b": ""}),
        ("!a", {"b": ""}, {"a": ""}),
        ("a in (1, 2)", {"a": "2"}, {"a": "3"}),
        ("a notin (1,2)", {}, {"a": "1"}),
        ("a=1,b in (x,y),!c", {"a": "1", "b": "y"}, {"a": "1", "b": "y", "c": ""}),
        ("x.io/long-name_1=v", {"x.io/long-name_1": "v"}, {}),
        ("a=", {"a": ""}, {"a": "1"}),
    ],
)
def test_label_selectors(selector: str, matching: dict[str, str], other: dict[str, str]) -> None:
    """Every operator of the label selector language."""
    assert watches.selector(selector)(labelled(**matching))
    assert not watches.selector(selector)(labelled(**other))


@pytest.mark.parametrize("selector", ["a=b=c", "a in 1", "(", "a in (1", "a b"])
def test_invalid_selectors_are_bad_requests(selector: str) -> None:
    """A selector that cannot be parsed is a bad request, not an empty list."""
    with pytest.raises(statuses.ApiError) as refused:
        watches.selector(selector)
    assert refused.value.code == 400


@given(st.text(max_size=30))
def test_selectors_never_crash(text: str) -> None:
    """Any text is either understood or refused."""
    for words in ((text, ""), ("", text)):
        with only_refusals(400):
            assert watches.selector(*words)({"metadata": {}}) in (True, False)


def test_field_selectors() -> None:
    """Nested fields, missing fields as empty, booleans in lower case."""
    obj = {"spec": {"nodeName": "n1", "unschedulable": True}, "status": {}}
    assert watches.selector("", "spec.nodeName=n1,status.phase!=Running")(obj)
    assert watches.selector("", "spec.nodeName!=,status.phase=")(obj)
    assert watches.selector("", "spec.unschedulable=true")(obj)
    assert not watches.selector("", "spec.nodeName=n2")(obj)
    assert watches.selector()(obj)


@pytest.mark.parametrize(
    ("text", "thousandths"),
    [
        ("1", 1000),
        ("500m", 500),
        ("0.5", 500),
        (".5", 500),
        ("1.5Gi", 1536 * 1024**2 * 1000),
        ("32768Mi", 32768 * 1024**2 * 1000),
        ("1k", 1_000_000),
        ("1e3", 1_000_000),
        ("2E", 2 * 10**18 * 1000),
        ("1u", 1),
        (4, 4000),
        ("-1", -1000),
    ],
)
def test_quantities(text: object, thousandths: int) -> None:
    """Decimal, binary and exponent forms; what is finer than a thousandth is rounded up."""
    assert quotas.parse(text) == thousandths


@pytest.mark.parametrize("text", ["", "m", "1 Gi", "1gi", "0x1", "1e", None, "1Gi1"])
def test_invalid_quantities_are_bad_requests(text: object) -> None:
    """Anything else is a bad request."""
    with pytest.raises(statuses.ApiError):
        quotas.parse(text)


@given(amount=st.integers(0, 10**18), resource=st.sampled_from(["cpu", "memory", "pods"]))
def test_canonical_form_keeps_the_value(amount: int, resource: str) -> None:
    """The canonical form has the same value and is unique."""
    for text in (f"{amount}m", quotas.show(amount, resource)):
        written = quotas.canonical(text)
        assert quotas.parse(written) == amount
        assert quotas.canonical(written) == written


@given(amount=st.integers(0, 10**18), resource=st.sampled_from(["cpu", "memory", "pods"]))
def test_shown_quantities_parse_back(amount: int, resource: str) -> None:
    """Showing and parsing again loses nothing."""
    assert quotas.parse(quotas.show(amount, resource)) == amount


def test_requests_of_a_pod() -> None:
    """Containers add up, init containers count when larger, limits stand in for missing requests."""
    spec = {
        "containers": [
            {"resources": {"requests": {"cpu": "1"}, "limits": {"cpu": "2", "memory": "1Ki"}}},
            {"resources": {"requests": {"cpu": "500m"}}},
            {},
        ],
        "initContainers": [{"resources": {"requests": {"cpu": "3", "x/y": "1"}}}, {"resources": None}],
    }
    assert quotas.of_pod({"spec": spec}) == {"cpu": 3000, "memory": 1024_000, "x/y": 1000}
    assert quotas.of_pod({"spec": spec}, "limits") == {"cpu": 2000, "memory": 1024_000}


def test_shortage_names_the_first_missing_resource() -> None:
    """The first insufficient resource with its amounts, also one that the node does not have."""
    node = nodeobjects.node_object(nodeobjects.NodeSpec("n", cpus=2, memory_mb=1))

    def pod(**requests: str) -> dict[str, Any]:
        return {"spec": {"containers": [{"resources": {"requests": requests}}]}}

    assert quotas.shortage(node, pod(cpu="1500m"), {"cpu": 1500}) == ("cpu", 1500, 1500, 2000)
    assert quotas.shortage(node, pod(cpu="1500m"), {}) is None
    assert quotas.shortage(node, pod(gpu="1"), {}) == ("gpu", 1000, 0, 0)


@pytest.mark.parametrize(
    ("text", "result"),
    [
        ("$(A)", "1"),
        ("x$(A)y$(B)", "x1y2"),
        ("$(C)", "$(C)"),
        ("$$(A)", "$(A)"),
        ("$$", "$"),
        ("$A", "$A"),
        ("$(A", "$(A"),
    ],
)
def test_variable_expansion(text: str, result: str) -> None:
    """Known names are replaced, unknown ones stay, $$ is a dollar sign."""
    assert containers.expand(text, {"A": "1", "B": "2"}) == result


@given(st.text("$()AB x", max_size=20))
def test_expansion_without_variables_unescapes_dollars(text: str) -> None:
    """Nothing but doubled dollar signs changes when no variable is known."""
    assert containers.expand(text, {}).replace("$", "") == text.replace("$", "")


@pytest.mark.parametrize(
    ("path", "expected"),
    [
        ("/api/v1/pods", ("pods", None, "", "")),
        ("/api/v1/namespaces/a/pods/p/log", ("pods", "a", "p", "log")),
        ("/api/v1/namespaces/a", ("namespaces", None, "a", "")),
        ("/api/v1/namespaces/a/finalize", ("namespaces", None, "a", "finalize")),
        ("/api/v1/nodes/n/status", ("nodes", None, "n", "status")),
        ("/apis/apps/v1/namespaces/a/deployments", ("deployments", "a", "", "")),
    ],
)
def test_paths(path: str, expected: tuple[str, str | None, str, str]) -> None:
    """Namespaced or not, with name and subresource."""
    found = apirequests.target_of(path, kindtable.Registry())
    assert (found.kind.plural, found.namespace, found.name, found.subresource) == expected


@pytest.mark.parametrize(
    "path",
    [
        "/",
        "/api",
        "/api/v1",
        "/api/v2/pods",
        "/api/v1/pods/p",
        "/api/v1/namespaces/a/nodes",
        "/api/v1/nodes/n/log",
        "/x/y/z",
        "/api/v1/namespaces/a/pods/p/log/x",
        "/apis/apps/v1",
    ],
)
def test_unknown_paths_are_404(path: str) -> None:
    """Paths that name nothing served are 404."""
    with pytest.raises(statuses.ApiError) as refused:
        apirequests.target_of(path, kindtable.Registry())
    assert refused.value.code == 404


def field(number: int, content: bytes) -> bytes:
    assert len(content) < 128
    return bytes([number << 3 | 2, len(content)]) + content


def enveloped(kind: str, body: bytes) -> bytes:
    return protobuf.MAGIC + field(1, field(1, b"v1") + field(2, kind.encode())) + field(2, body)


def test_protobuf_of_a_secret() -> None:
    """Names, labels and binary data arrive; numbers and unknown fields are passed over."""
    metadata = (
        field(1, b"s")
        + field(3, b"")
        + field(11, field(1, b"k") + field(2, b"v"))
        + bytes([7 << 3, 0x96, 0x01])
    )
    body = field(1, metadata) + field(2, field(1, b"key") + field(2, b"\x00\xff")) + field(3, b"Opaque")
    assert protobuf.decode(enveloped("Secret", body)) == {
        "apiVersion": "v1",
        "kind": "Secret",
        "metadata": {"name": "s", "labels": {"k": "v"}},
        "data": {"key": base64.b64encode(b"\x00\xff").decode()},
        "type": "Opaque",
    }


def test_protobuf_of_an_eviction() -> None:
    """Its options say how long the pod gets, none at all included, and whether it is meant."""
    options = bytes([1 << 3, 0]) + field(5, b"All")
    found = protobuf.decode(enveloped("Eviction", field(1, field(1, b"p")) + field(2, options)))
    assert found["deleteOptions"] == {"gracePeriodSeconds": 0, "dryRun": "All"}


def test_protobuf_of_other_kinds_is_refused() -> None:
    """A kind without a description is 415, with the advice to send JSON."""
    with pytest.raises(statuses.ApiError, match="Deployment; send JSON") as refused:
        protobuf.decode(enveloped("Deployment", b""))
    assert refused.value.code == 415


@given(st.binary(max_size=60))
def test_invalid_protobuf_is_a_bad_request(data: bytes) -> None:
    """Any bytes are decoded or refused, never a crash."""
    with only_refusals(400, 415):
        assert isinstance(protobuf.decode(protobuf.MAGIC + data), dict)


def shown(
    phase: str = "Running", *states: dict[str, Any], init: tuple[dict[str, Any], ...] = (), **more: Any
) -> str:
    """The STATUS word of a pod with these container states."""
    metadata = {"deletionTimestamp": "now"} if more.pop("deleting", False) else {}
    status = {"phase": phase, "containerStatuses": [{"state": state} for state in states], **more}
    status["initContainerStatuses"] = [{"state": state} for state in init]
    return tables.pod_word({"metadata": metadata, "status": status})


def ended(code: int, reason: str = "") -> dict[str, Any]:
    return {"terminated": {"exitCode": code, "reason": reason}}


def test_status_column_is_kubectls() -> None:
    """The words known from kubectl."""
    running: dict[str, Any] = {"running": {}}
    assert shown("Pending") == "Pending"
    assert shown("Running", running) == "Running"
    assert shown("Pending", {"waiting": {"reason": "ContainerCreating"}}) == "ContainerCreating"
    assert shown("Failed", ended(137, "OOMKilled")) == "OOMKilled"
    assert shown("Failed", ended(3)) == "ExitCode:3"
    assert shown("Succeeded", ended(0, "Completed")) == "Completed"
    assert shown("Running", ended(0, "Completed"), running) == "Running"
    assert shown("Running", running, deleting=True) == "Terminating"
    assert shown("Failed", reason="OutOfcpu") == "OutOfcpu"
    assert shown("Pending", init=(running,)) == "Init:0/1"
    waiting = {"waiting": {"reason": "CrashLoopBackOff"}}
    assert shown("Pending", init=(ended(0), waiting)) == "Init:CrashLoopBackOff"
    assert shown("Failed", init=(ended(1, "Error"),)) == "Init:Error"


@pytest.mark.parametrize(
    ("seconds", "text"),
    [(0, "0s"), (119, "119s"), (120, "2m"), (150, "2m30s"), (700, "11m"), (7200, "2h"), (200_000, "2d")],
)
def test_ages(seconds: int, text: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Durations are shortened as kubectl does."""
    monkeypatch.setattr("time.time", lambda: 1_000_000_000.0 + seconds)
    assert tables.age({"metadata": {"creationTimestamp": "2001-09-09T01:46:40Z"}}) == text


CODES = st.lists(st.sampled_from([None, 0, 1, 137]), min_size=1, max_size=4)


@given(codes=CODES, over=st.booleans())
def test_phase_is_derived_from_containers(codes: list[int | None], over: bool) -> None:
    """A pod succeeds if all containers did, fails if one did not, and ends when all have."""
    state = podstatus.PodState([], over=over)
    for number, code in enumerate(codes):
        one = podstatus.ContainerState(f"c{number}", "image")
        one.run("p")
        if code is not None:
            one.end(code, "Completed" if code == 0 else "Error")
        state.containers.append(one)
    phase = state.phase()
    if None not in codes:
        assert phase == ("Succeeded" if set(codes) == {0} else "Failed")
    elif not over:
        assert phase == "Running"


def test_quota_counts_under_every_name() -> None:
    """A pod counts as pod, as object, and with its requests and limits; a finished one only as object."""
    container = {"resources": {"requests": {"cpu": "1"}, "limits": {"nvidia.com/gpu": "2"}}}
    pod = {"status": {"phase": "Running"}, "spec": {"containers": [container]}}
    assert quotas.usage_of(kindtable.PODS, pod) == {
        "count/pods": 1000,
        "pods": 1000,
        "cpu": 1000,
        "requests.cpu": 1000,
        "requests.nvidia.com/gpu": 2000,
        "limits.nvidia.com/gpu": 2000,
    }
    assert quotas.usage_of(kindtable.PODS, {**pod, "status": {"phase": "Failed"}}) == {"count/pods": 1000}
