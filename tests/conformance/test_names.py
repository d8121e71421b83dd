"""A pod's host name, address and /etc/hosts, and a file of its own in the place of the kubelet's."""

from __future__ import annotations

import pytest

from penstock import errors
from penstock.kube import execs, kubeconfig
from penstock_lab import testing
from tests.conformance import client

USER = {"runAsUser": 4711, "runAsGroup": 4711, "runAsNonRoot": True}
RUN = {"name": "run", "mountPath": "/penstock-run"}
HOSTS = {"name": "run", "mountPath": "/etc/hosts", "subPath": "hosts"}
WAITS = "until [ -e /penstock-run/go ]; do sleep 0.1; done"


def own_hosts(name: str, prepare: str, script: str) -> client.Json:
    """A pod whose init container runs `prepare`, and whose /etc/hosts is a file of a volume."""
    init = {
        "name": "names",
        "image": client.IMAGE,
        "command": ["/bin/sh", "-c", prepare],
        "volumeMounts": [RUN],
        "env": [{"name": "ADDRESS", "valueFrom": {"fieldRef": {"fieldPath": "status.podIP"}}}],
    }
    volumes = [{"name": "run", "emptyDir": {}}]
    container = {"volumeMounts": [RUN, HOSTS]}
    more = {"hostname": "n7", "initContainers": [init], "volumes": volumes, "securityContext": USER}
    return client.shell(name, script, container=container, **more)


def test_lone_pod_finds_itself(api: client.Client, node: str) -> None:
    """By its host name, one address, in a file that its user cannot change."""
    api.create("pods", client.shell("p", "hostname; hostname -i; echo >>/etc/hosts", hostname="n7"))
    api.bind("p", node)
    own = api.phase("p", "Succeeded", "Failed")["status"]["podIP"]
    assert api.log("p").text.splitlines()[:2] == ["n7", own]


def test_hosts_file_of_a_volume(api: client.Client, node: str) -> None:
    """Made by an init container that knows the address; the pod's user may add to it at any time."""
    prepare = 'echo "$ADDRESS n7" >/penstock-run/hosts'
    script = "hostname -i; echo 10.9.8.7 other >>/penstock-run/hosts; cat /etc/hosts"
    api.create("pods", own_hosts("p", prepare, script))
    api.bind("p", node)
    own = api.phase("p", "Succeeded", "Failed")["status"]["podIP"]
    assert api.log("p").text.split("\n") == [own, f"{own} n7", "10.9.8.7 other", ""]


async def test_exec_in_an_init_container(lab: testing.RunningLab, api: client.Client, node: str) -> None:
    """While it runs, with input; the pod has its address, and its container waits."""
    api.create("pods", own_hosts("p", f"echo $ADDRESS n7 >/penstock-run/hosts; {WAITS}", "cat /etc/hosts"))
    api.bind("p", node)
    found = api.until(lambda pod: "running" in str(pod["status"].get("initContainerStatuses")), "pods", "p")
    assert found["status"]["podIP"]
    assert list(found["status"]["containerStatuses"][0]["state"]) == ["waiting"]
    access = kubeconfig.load(lab.place.admin_kubeconfig)
    command = ("/bin/sh", "-c", "read -r line && echo $line >>/penstock-run/hosts && : >/penstock-run/go")
    there = {"namespace": api.namespace, "name": "p"}
    with pytest.raises(errors.KubeUnavailable):
        await execs.run(access, **there, container="job", command=command, text=b"10.9.8.7 other\n")
    await execs.run(access, **there, container="names", command=command, text=b"10.9.8.7 other\n")
    api.phase("p", "Succeeded")
    assert api.log("p").text.endswith(" n7\n10.9.8.7 other\n")


async def test_input_that_ends_the_command(lab: testing.RunningLab, api: client.Client, node: str) -> None:
    """More than fits into one message, and a command that fails says so."""
    api.create("pods", client.shell("p", "trap 'exit 0' TERM; while :; do sleep 0.1; done"))
    api.bind("p", node)
    api.phase("p", "Running")
    access, there = kubeconfig.load(lab.place.admin_kubeconfig), {"namespace": api.namespace, "name": "p"}
    counts = 'n=0; while read -r line && [ "$line" != . ]; do n=$((n + 1)); done; [ $n = 5000 ]'
    words = ("/bin/sh", "-c", counts)
    text = b"10.0.0.1 a-node-of-a-large-gang\n"
    await execs.run(access, **there, container="job", command=words, text=text * 5000 + b".\n")
    with pytest.raises(errors.KubeError, match="non-zero exit code"):
        await execs.run(access, **there, container="job", command=words, text=text * 4999 + b".\n")
