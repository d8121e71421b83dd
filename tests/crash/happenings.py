"""Events in the lives of the crash matrix's jobs, other than kills."""

from __future__ import annotations

import json
from concurrent import futures

from penstock import wellknown
from penstock.model import jobs
from penstock.render import pods as rendering
from penstock_lab import spec, testing
from tests.crash.tasks import Job
from tests.e2e import breaking, labs, semantics

Lab = testing.RunningLab
GPU = wellknown.GPU_RESOURCE
PATIENCE = ("seconds=270)", "seconds=3)")
"""The Epilog's timeout, normal and short."""


# -- what users and administrators do ------------------------------------------------------------------


def scancel(lab: Lab, job: Job) -> None:
    lab.run(("scancel", job.job_id))


def scontrol_requeue(lab: Lab, job: Job) -> None:
    lab.run(("scontrol", "requeue", job.job_id))


def cancel(lab: Lab, job: Job) -> None:
    job.begun()
    scancel(lab, job)


def requeue(lab: Lab, job: Job) -> None:
    job.begun()
    scontrol_requeue(lab, job)


def signal(lab: Lab, job: Job) -> None:
    job.begun()
    lab.run(("scancel", "--batch", "--signal=USR1", job.job_id))


def delete(lab: Lab, job: Job) -> None:
    """Delete the pod."""
    job.begun()
    for pod in semantics.pods(lab, job.job_id):
        meta = pod["metadata"]
        argv = ("kubectl", "delete", "pod", "-n", meta["namespace"], meta["name"], "--wait=false")
        lab.run((*argv, "--grace-period=1"))


def evict(lab: Lab, job: Job) -> None:
    """Evict the pod."""
    job.begun()
    (pod,) = semantics.pods(lab, job.job_id)
    meta = {name: pod["metadata"][name] for name in ("name", "namespace")}
    body = {
        "apiVersion": "policy/v1",
        "kind": "Eviction",
        "metadata": meta,
        "deleteOptions": {"gracePeriodSeconds": 1},
    }
    path = f"/api/v1/namespaces/{meta['namespace']}/pods/{meta['name']}/eviction"
    lab.run(("kubectl", "create", "--raw", path, "-f", "-"), stdin=json.dumps(body))


def go(lab: Lab, job: Job) -> None:
    """Create the file for which the script waits."""
    (job.folder / "go").touch()


# -- penstockd's past ----------------------------------------------------------------------------------


def crash_twice(lab: Lab, job: Job) -> None:
    """Kill and restart penstockd, so that it has to recover."""
    job.begun()
    labs.kill(lab.place, "penstockd")
    pool = futures.ThreadPoolExecutor(max_workers=1)
    job.meanwhile.append(pool.submit(testing.lab_command, lab.place, "up", check=False))
    pool.shutdown(wait=False)


def forget_the_user(lab: Lab) -> None:
    """Delete the user's namespace, and restart penstockd so that it forgets it."""
    lab.run(("kubectl", "delete", "namespace", f"user-{lab.user}", "--ignore-not-found", "--wait=true"))
    labs.kill(lab.place, "penstockd")
    testing.lab_command(lab.place, "up")


def closed_to_others(lab: Lab, job: Job) -> None:
    """The user's namespace is completely set up."""
    argv = ("kubectl", "get", "networkpolicies", "-n", f"user-{lab.user}", "-o", "name")
    assert lab.run(argv).stdout.strip()


def leave_an_orphan(lab: Lab) -> None:
    """A pod of a job that never existed, on no node."""
    identity = jobs.JobIdentity(job_id=999999, restart=0, uid=0)
    labels = rendering.labels_of(identity, spec.load(lab.place).name)
    manifest = _foreign("orphan", labels, {"schedulerName": wellknown.SCHEDULER_NAME})
    lab.run(("kubectl", "apply", "-f", "-"), stdin=manifest)


# -- nodes ---------------------------------------------------------------------------------------------


def _foreign(name: str, labels: dict[str, str], spec: dict[str, object]) -> str:
    container = {"name": "c", "image": "busybox", "command": ["sleep", "600"]}
    if "nodeName" in spec:
        container["resources"] = {"requests": {GPU: "3"}, "limits": {GPU: "3"}}  # type: ignore[assignment]  # JSON
    pod = {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": name, "namespace": "default", "labels": labels},
        "spec": {**spec, "terminationGracePeriodSeconds": 1, "containers": [container]},
    }
    return json.dumps(pod)


def occupy(lab: Lab) -> None:
    """A foreign pod has three of the node's four GPUs."""
    lab.run(("kubectl", "apply", "-f", "-"), stdin=_foreign("notebook", {}, {"nodeName": "n4"}))


def vacate(lab: Lab, job: Job) -> None:
    lab.run(("kubectl", "delete", "pod", "notebook", "--wait=true"))


def refuse_pods(lab: Lab) -> None:
    """Make a kubelet reject pods."""
    _break(lab, "nodes/n4", {"reject": "OutOfcpu"})


def _break(lab: Lab, what: str, fault: dict[str, object]) -> None:
    cluster = breaking.DevCluster(lab)
    cluster.set(what, fault)
    cluster.leave()


def take_pods(lab: Lab, job: Job) -> None:
    """Clear all faults."""
    with breaking.DevCluster(lab):
        pass


def drain(lab: Lab) -> None:
    """Drain a node as penstockd would have done before its restart."""
    reason = "penstock: pods of job 1 may still run here"
    lab.run(("scontrol", "update", "NodeName=n4", "State=DRAIN", f"Reason={reason}"))


def hurry_the_epilog(lab: Lab) -> None:
    _swap(lab, *PATIENCE)


def _swap(lab: Lab, old: str, new: str) -> None:
    file = lab.place.libexec / wellknown.EPILOG
    file.write_text(file.read_text().replace(old, new))


def hold_the_pod(lab: Lab, job: Job) -> None:
    """End the job while its pod stays Terminating."""
    job.begun()
    (pod,) = semantics.pods(lab, job.job_id)
    name = f"{pod['metadata']['namespace']}/{pod['metadata']['name']}"
    _break(lab, f"pods/{name}", {"stuckTerminating": True})
    go(lab, job)


def let_go(lab: Lab, job: Job) -> None:
    _swap(lab, *reversed(PATIENCE))
    take_pods(lab, job)
