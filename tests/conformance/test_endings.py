"""How containers end: exit code, signal, memory; what Slurm's record is made of."""

from __future__ import annotations

import pytest

from tests.conformance import client


@pytest.mark.parametrize(
    ("script", "phase", "code", "reason"),
    [
        ("exit 0", "Succeeded", 0, "Completed"),
        ("exit 7", "Failed", 7, "Error"),
        ("sleep 9 & kill -KILL $!; wait $!; exit $?", "Failed", 137, "Error"),
        ("kill -TERM 1; exit 4", "Failed", 4, "Error"),
    ],
)
def test_exit_code_and_reason(
    api: client.Client, node: str, script: str, phase: str, code: int, reason: str
) -> None:
    """The code is the first process's own, which ignores signals that it does not handle."""
    api.create("pods", client.shell("p", script))
    api.bind("p", node)
    found = api.phase("p", "Succeeded", "Failed")
    end = client.terminated(found)
    assert (found["status"]["phase"], end["exitCode"], end["reason"]) == (phase, code, reason)
    assert end["startedAt"] <= end["finishedAt"]


def test_oom_killed(api: client.Client, node: str) -> None:
    """OOMKilled, 137."""
    limits = {"resources": {"limits": {"memory": "48Mi"}}}
    script = "x=$(head -c 200000000 /dev/zero | tr '\\0' x); echo ${#x}"
    api.create("pods", client.shell("hungry", script, container=limits))
    api.bind("hungry", node)
    end = client.terminated(api.phase("hungry", "Failed"))
    assert (end["reason"], end["exitCode"]) == ("OOMKilled", 137)


def test_missing_program(api: client.Client, node: str) -> None:
    """The container has not run, and its message names the program."""
    api.create("pods", client.pod("bare", "/bin/sh", "-c", "true", container={"image": "lab/pause:1"}))
    api.bind("bare", node)
    end = client.terminated(api.phase("bare", "Failed"))
    assert (end["reason"], end["exitCode"]) == ("StartError", 128)
    assert 'exec: "/bin/sh": stat /bin/sh: no such file or directory' in end["message"]


def test_every_container_has_the_api_servers_variables(api: client.Client, node: str) -> None:
    """Eight variables, also without service links and without a token; whoever does not want them unsets
    them.
    """
    script = "env | sed -n 's/^\\(KUBERNETES_[^=]*\\)=.*/\\1/p' | sort | tr '\\n' ' ' >/dev/termination-log"
    api.create("pods", client.shell("told", script, enableServiceLinks=False))
    api.bind("told", node)
    names = client.terminated(api.phase("told", "Succeeded", "Failed"))["message"].split()
    port = "KUBERNETES_PORT_443_TCP"
    service = "KUBERNETES_SERVICE"
    assert names == [
        *("KUBERNETES_PORT", port, f"{port}_ADDR", f"{port}_PORT", f"{port}_PROTO"),
        *(f"{service}_HOST", f"{service}_PORT", f"{service}_PORT_HTTPS"),
    ]


def test_termination_message_keeps_the_end(api: client.Client, node: str) -> None:
    """4,096 bytes, counted from the end of the file."""
    api.create(
        "pods", client.shell("p", "{ head -c 9000 /dev/zero | tr '\\0' x; echo end; } >/dev/termination-log")
    )
    api.bind("p", node)
    message = client.terminated(api.phase("p", "Succeeded"))["message"]
    assert message == "x" * 4092 + "end\n"


def test_restart_policy_never(api: client.Client, node: str) -> None:
    """An ended container is not restarted."""
    api.create("pods", client.shell("once", "exit 1"))
    api.bind("once", node)
    found = api.phase("once", "Failed")
    assert found["status"]["containerStatuses"][0]["restartCount"] == 0


def test_an_active_deadline_ends_the_pod(api: client.Client, node: str) -> None:
    """Failed with DeadlineExceeded."""
    api.create("pods", client.shell("slow", "sleep 60", activeDeadlineSeconds=2))
    api.bind("slow", node)
    assert api.phase("slow", "Failed")["status"]["reason"] == "DeadlineExceeded"
