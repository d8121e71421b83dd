"""Isolation on the real thing: what a job's pod may be, and whose pods a user can see."""

from __future__ import annotations

import asyncio
import pwd
import re
import subprocess
import time
from collections.abc import Iterator

import pytest

from penstock.bridge import owners
from penstock.model import jobs, launches
from penstock.model import resources as amounts
from penstock.model.podpolicy import PodPolicy
from penstock.render import pods
from penstock_lab import spec, testing
from tests.conformance import client

LEVEL = "pod-security.kubernetes.io/enforce"


@pytest.fixture
def real(lab: testing.RunningLab) -> testing.RunningLab:
    """A lab whose API server checks what pods may be and who asks."""
    if testing.kubernetes() != spec.REAL:
        pytest.skip("the dev cluster has neither Pod Security nor roles")
    return lab


def job_pod(api: client.Client, user: str, *, mounts: tuple[str, ...]) -> client.Json:
    """Rank 0 of a job as penstockd would make it, in the test's namespace."""
    owner = asyncio.run(owners.Owners().of(pwd.getpwnam(user).pw_uid))
    share = jobs.NodeShare(node="n1", amount=amounts.Amount(millicpus=1000, memory=2**28, gpus=0))
    identity = jobs.JobIdentity(job_id=1, restart=0, uid=owner.uid)
    request = launches.LaunchRequest(
        interpreter=b"/bin/sh",
        script=b"#!/bin/sh\ntrue\n",
        arguments=(),
        environment=(),
        workdir=b"/tmp",
        stdout=b"/dev/null",
        stderr=b"/dev/null",
    )
    policy = PodPolicy(
        default_image=client.IMAGE, shared_mounts=mounts, namespace_pattern=api.namespace, kill_wait=5
    )
    allocation = jobs.Allocation(identity=identity, shares=(share,), partition="gpu")
    return pods.render_pod(allocation, 0, owner=owner, request=request, policy=policy)


def enforce(api: client.Client, level: str) -> None:
    """From now on the test's namespace takes only pods of this level."""
    patch = {"metadata": {"labels": {LEVEL: level}}}
    api.call("PATCH", f"/api/v1/namespaces/{api.namespace}", patch, kind="application/merge-patch+json")


def test_a_job_without_shared_folders_is_restricted(real: testing.RunningLab, api: client.Client) -> None:
    """The strictest level takes it as it is."""
    enforce(api, "restricted")
    made = api.create("pods", job_pod(api, real.user, mounts=()))
    assert made["kind"] == "Pod", made


@pytest.mark.parametrize("level", ["baseline", "restricted"])
def test_only_host_path_violates_pod_security(
    real: testing.RunningLab, api: client.Client, level: str
) -> None:
    """A host path is the only violation at either level."""
    enforce(api, level)
    answer = api.create("pods", job_pod(api, real.user, mounts=(str(real.place.nas),)))
    assert answer["code"] == 403
    complaints = re.sub(r"\(.*?\)", "", answer["message"].partition(": ")[2].partition(": ")[2])
    assert {part.strip() for part in complaints.split(",")} <= {"hostPath volumes", "restricted volume types"}


def test_a_host_path_needs_a_namespace_that_lets_it(real: testing.RunningLab, api: client.Client) -> None:
    """Privileged, or no level at all."""
    enforce(api, "privileged")
    assert api.create("pods", job_pod(api, real.user, mounts=(str(real.place.nas),)))["kind"] == "Pod"


def test_a_job_runs_as_its_user_without_any_privilege(real: testing.RunningLab) -> None:
    """Uid, gid, no capability, no new privileges, a read-only agent, no token: seen from inside."""
    script = """#!/bin/bash
id -u; id -g
grep -E '^(CapEff|NoNewPrivs|Seccomp):' /proc/self/status | tr -d '\\t'
touch /penstock/x 2>/dev/null && echo agent writable
ls /var/run/secrets 2>/dev/null && echo token there
echo end
"""
    job_id = real.sbatch(script)
    assert real.accounted(job_id)[0] == "COMPLETED"
    entry = pwd.getpwnam(real.user)
    lines = (real.home / f"slurm-{job_id}.out").read_text().split()
    status = ["NoNewPrivs:1", "CapEff:0000000000000000", "Seccomp:2"]
    assert sorted(lines) == sorted([str(entry.pw_uid), str(entry.pw_gid), *status, "end"])


@pytest.fixture
def other(real: testing.RunningLab) -> Iterator[str]:
    """A second user of the lab."""
    name = f"penstock-o{real.place.directory.name[-6:]}"
    argv = ["useradd", "--system", "--user-group", "--no-create-home", "--shell", "/usr/sbin/nologin", name]
    subprocess.run(argv, check=True, timeout=30)
    try:
        testing.lab_command(real.place, "adduser", name)
        yield name
    finally:
        subprocess.run(["userdel", name], check=True, timeout=30)


def test_a_user_sees_his_own_pods_and_nobody_elses(real: testing.RunningLab, other: str) -> None:
    """His namespace answers, another's is Forbidden, and another's credentials cannot be read."""
    mine, theirs = f"user-{real.user}", f"user-{other}"
    output = real.home / "own.out"
    job_id = real.sbatch("#!/bin/sh\necho secret words; sleep 20\n", f"--output={output}")
    deadline = time.monotonic() + 30
    while not (output.exists() and "secret" in output.read_text()):
        assert time.monotonic() < deadline
        time.sleep(0.1)
    shown = real.run_as_user(("kubectl", "get", "pods", "-n", mine, "-o", "name")).stdout
    assert f"pod/slurm-job-{job_id}" in shown
    for verb, what, place in (("get", "pods", mine), ("get", "secrets", mine), ("get", "pods", "default")):
        result = real.run_as_user(("kubectl", verb, what, "-n", place), user=other, check=False)
        assert "Forbidden" in result.stderr, (verb, what, place)
    own = real.run_as_user(("kubectl", "get", "pods", "-n", theirs), user=other)
    assert "slurm-" not in own.stdout
    stolen = real.run_as_user(("cat", str(real.place.user_kubeconfig(real.user))), user=other, check=False)
    assert "Permission denied" in stolen.stderr
    real.run_as_user(("scancel", job_id))


@pytest.mark.parametrize("what", ["secrets", "pods/exec", "pods"])
def test_a_user_changes_nothing_past_slurm(real: testing.RunningLab, what: str) -> None:
    """No Secret, no command in a pod, no pod of one's own: everything goes through sbatch."""
    verb = "get" if what == "secrets" else "create"
    argv = ("kubectl", "auth", "can-i", verb, what, "-n", f"user-{real.user}")
    assert real.run_as_user(argv, check=False).stdout.strip() == "no"


@pytest.mark.parametrize("port", ["etcd_port", "kubelet"])
def test_etcd_and_kubelets_require_authentication(real: testing.RunningLab, port: str) -> None:
    """They listen on loopback and require a certificate or a token."""
    lab = spec.load(real.place)
    number = lab.cluster_port if port == "etcd_port" else lab.cluster_port + 5
    path = "/v3/kv/range" if port == "etcd_port" else "/pods"
    url = f"https://127.0.0.1:{number}{path}"
    code = (
        "import ssl,sys,urllib.request,urllib.error\n"
        "context = ssl._create_unverified_context()\n"
        "try: print(urllib.request.urlopen(sys.argv[1], context=context, timeout=5).status)\n"
        "except urllib.error.HTTPError as error: print(error.code)\n"
        "except OSError as error: print('refused', error)\n"
    )
    said = real.run_as_user(("/usr/bin/python3", "-c", code, url)).stdout.strip()
    assert said == "401" or said.startswith("refused")
