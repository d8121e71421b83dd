"""penstockd's role is enough and no more: what it asks for is what it may do, and each part is used.

Two halves of one proof: the API server's own audit log says what penstockd asked for while jobs of every kind
ran, and each right is taken away once to see the request refused.
"""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import Awaitable, Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from penstock import errors
from penstock.kube import client as kube_client
from penstock.kube import kinds, kubeconfig
from penstock.render import namespaces, rbac
from penstock_lab import spec, testing
from penstock_lab.kubernetes import api as lab_api
from penstock_lab.kubernetes import variants
from tests.conformance import client

RARE = {("events", "list"), ("pods/exec", "create")}
"""Asked for only when a pod does not start for minutes; and counted as the GET that it is."""

EVERYBODYS = {("selfsubjectaccessreviews.authorization.k8s.io", "create")}
"""Whoever can log in may ask what he may do; the doctor does."""


@pytest.fixture
def real(lab: testing.RunningLab) -> testing.RunningLab:
    """A lab whose API server checks rights; the dev cluster knows only readers and writers."""
    if testing.kubernetes() != spec.REAL:
        pytest.skip("the dev cluster has no roles")
    return lab


def asked_for(log: Path) -> list[tuple[str, str, int]]:
    """Resource, verb and answer of every request in the audit log."""
    found = []
    for line in log.read_text().splitlines():
        entry = json.loads(line)
        what = entry["objectRef"]
        plural = ".".join(part for part in (what["resource"], what.get("apiGroup")) if part)
        resource = "/".join(part for part in (plural, what.get("subresource")) if part)
        found.append((resource, entry["verb"], entry.get("responseStatus", {}).get("code", 0)))
    return found


def run_jobs_of_every_kind(lab: testing.RunningLab) -> None:
    """Output on the NAS, fetched and from a log, a signal into a pod, an end that is cancelled."""
    output = lab.home / "rights.out"
    script = "#!/bin/bash\ntrap 'echo got it' USR1\necho up\nfor i in {1..300}; do sleep 0.2; done\n"
    running = lab.sbatch(script, f"--output={output}")
    streamed = lab.sbatch("#!/bin/sh\necho hello\n", "--output=/dev/shm/penstock-%j.out")
    by_itself = lab.sbatch("#!/bin/sh\n#K8S_COMMAND=@entrypoint\n")
    wait_for_text(output, "up")
    lab.run_as_user(("scancel", "--batch", "--signal=USR1", running))
    wait_for_text(output, "got it")
    lab.run_as_user(("scancel", running))
    try:
        assert lab.accounted(streamed)[0] == "COMPLETED"
        assert lab.accounted(by_itself)[0] == "COMPLETED"
        assert lab.accounted(running)[0].startswith("CANCELLED")
        lab.wait_for(running, "CANCELLED")
    finally:
        Path(f"/dev/shm/penstock-{streamed}.out").unlink(missing_ok=True)  # noqa: S108 - ours, by job id


def wait_for_text(file: Path, text: str) -> None:
    deadline = time.monotonic() + 30
    while not (file.exists() and text in file.read_text()):
        assert time.monotonic() < deadline, f"{file} does not say {text!r}"
        time.sleep(0.05)


def test_penstockd_asks_for_what_it_may_and_uses_all_of_it(real: testing.RunningLab) -> None:
    """No request was refused for want of rights, and no right went unused."""
    log = variants.cluster_of(real.place, spec.load(real.place)).audit_log
    before = len(asked_for(log))  # an API server that has just started forbids everything for a moment
    run_jobs_of_every_kind(real)
    asked = asked_for(log)
    assert [entry for entry in asked[before:] if entry[2] == 403] == []
    used = {(resource, verb) for resource, verb, _ in asked} - EVERYBODYS
    granted = set(rbac.pairs())
    assert used <= granted
    assert granted - used <= RARE


@pytest.fixture
def restored_role(real: testing.RunningLab) -> Iterator[None]:
    """Whatever a test does to the role, it is whole again afterwards."""
    yield
    lab_api.cluster(real.place.admin_kubeconfig).apply(rbac.render_role())


Request = Callable[[kube_client.KubeClient, str], Awaitable[object]]


async def first_of(events: Any) -> None:
    """Begin a stream and leave it."""
    async for _ in events:
        return


async def run_command(kube: kube_client.KubeClient, space: str) -> None:
    await kube.run(["true"], namespace=space, name="target", container="job")


REQUESTS: dict[tuple[str, str], Request] = {
    ("pods", "get"): lambda kube, space: kube.get(kinds.PODS, namespace=space, name="target"),
    ("pods", "list"): lambda kube, space: kube.list(kinds.PODS),
    ("pods", "watch"): lambda kube, space: first_of(kube.watch(kinds.PODS, version="0", seconds=1)),
    ("pods", "create"): lambda kube, space: kube.create(kinds.PODS, client.pod("made"), namespace=space),
    ("pods", "delete"): lambda kube, space: kube.delete(
        kinds.PODS, namespace=space, name="target", uid="none"
    ),
    ("pods/binding", "create"): lambda kube, space: kube.create(
        kinds.PODS, {"target": {"kind": "Node", "name": "n1"}}, namespace=space, name="target", sub="binding"
    ),
    ("pods/log", "get"): lambda kube, space: first_of(
        kube.log(namespace=space, name="target", container="job")
    ),
    ("pods/exec", "get"): run_command,
    ("pods/exec", "create"): run_command,
    ("secrets", "create"): lambda kube, space: kube.create(
        kinds.SECRETS, {"metadata": {"name": "made"}}, namespace=space
    ),
    ("nodes", "get"): lambda kube, space: kube.get(kinds.NODES, name="n1"),
    ("nodes", "list"): lambda kube, space: kube.list(kinds.NODES),
    ("nodes", "watch"): lambda kube, space: first_of(kube.watch(kinds.NODES, version="0", seconds=1)),
    ("namespaces", "create"): lambda kube, space: kube.create(
        kinds.NAMESPACES, {"metadata": {"name": f"{space}-made"}}
    ),
    ("resourcequotas", "create"): lambda kube, space: kube.create(
        kinds.RESOURCE_QUOTAS, namespaces.render_quota({"pods": "1000"}), namespace=space
    ),
    (str(kinds.NETWORK_POLICIES), "create"): lambda kube, space: kube.create(
        kinds.NETWORK_POLICIES, namespaces.render_network_policy(), namespace=space
    ),
    ("events", "list"): lambda kube, space: kube.list(kinds.EVENTS, namespace=space),
}
"""What penstockd does with each right, through its own client."""


def answer_to(config: Path, request: Request, namespace: str) -> int:
    """The status of the API's answer; 200 stands for any success."""

    async def ask() -> int:
        kube = kube_client.KubeClient(kubeconfig.load(config))
        try:
            await request(kube, namespace)
        except errors.KubeError as error:
            return error.status
        finally:
            await kube.close()
        return 200

    return asyncio.run(ask())


def test_every_right_has_a_request_that_needs_it() -> None:
    """The table below the role is whole: a new right without a proof is noticed."""
    assert sorted(REQUESTS) == sorted(rbac.pairs())


@pytest.mark.usefixtures("restored_role")
@pytest.mark.parametrize("pair", rbac.pairs(), ids="-".join)
def test_without_a_right_its_request_is_forbidden(
    real: testing.RunningLab, api: client.Client, pair: tuple[str, str]
) -> None:
    """Allowed with the whole role, 403 without this one part of it."""
    place = real.place
    api.create("pods", client.pod("target"))
    assert answer_to(place.penstockd_kubeconfig, REQUESTS[pair], api.namespace) != 403
    lab_api.cluster(place.admin_kubeconfig).apply(rbac.render_role(without=pair))
    deadline = time.monotonic() + 10
    while answer_to(place.penstockd_kubeconfig, REQUESTS[pair], api.namespace) != 403:
        assert time.monotonic() < deadline, f"still allowed without {pair}"
        time.sleep(0.1)


@pytest.mark.usefixtures("restored_role")
def test_job_survives_temporary_loss_of_rights(real: testing.RunningLab) -> None:
    """An API server that has just started forbids everything: the launch waits, and nothing is lost."""
    log = variants.cluster_of(real.place, spec.load(real.place)).audit_log
    lab_api.cluster(real.place.admin_kubeconfig).apply(rbac.render_role(without=("pods", "create")))
    output = real.home / "moment.out"
    before = len(asked_for(log))
    job_id = real.sbatch("#!/bin/sh\necho ran\n", f"--output={output}")
    testing.until(lambda: ("pods", "create", 403) in asked_for(log)[before:], seconds=60)
    assert real.job(job_id)["JobState"] == "RUNNING"
    lab_api.cluster(real.place.admin_kubeconfig).apply(rbac.render_role())
    assert real.accounted(job_id, timeout=60) == ["COMPLETED", "0:0"]
    assert output.read_text() == "ran\n"


@pytest.mark.parametrize(
    ("method", "path"),
    [
        ("GET", "/api/v1/secrets"),
        ("GET", "/api/v1/namespaces/default/secrets/any"),
        ("DELETE", "/api/v1/nodes/n1"),
        ("DELETE", "/api/v1/namespaces/default"),
        ("POST", "/apis/rbac.authorization.k8s.io/v1/clusterrolebindings"),
        ("GET", "/api/v1/namespaces/kube-system/serviceaccounts"),
    ],
)
def test_other_requests_of_penstockd_are_forbidden(real: testing.RunningLab, method: str, path: str) -> None:
    """Whatever its role does not list."""
    with client.Client(real.place.penstockd_kubeconfig, "default") as found:
        assert found.call(method, path, {} if method == "POST" else None)["code"] == 403
