"""Log streaming: every byte, while it is written and after the end."""

from __future__ import annotations

import secrets
import time

from penstock_lab import testing
from tests.conformance import client


def test_a_followed_log_comes_while_it_is_written(
    lab: testing.RunningLab, api: client.Client, node: str
) -> None:
    """The first line arrives before the second is written, and the stream ends with the container."""
    shared = lab.place.nas / f"logs-{secrets.token_hex(4)}"
    shared.mkdir()
    volumes = [{"name": "v", "hostPath": {"path": str(shared), "type": "Directory"}}]
    mounts = {"volumeMounts": [{"name": "v", "mountPath": "/v"}]}
    script = "echo one; until [ -e /v/go ]; do sleep 0.1; done; echo two"
    api.create("pods", client.shell("talker", script, volumes=volumes, container=mounts))
    api.bind("talker", node)
    api.phase("talker", "Running")
    with api.follow("talker") as answer:
        chunks = answer.iter_bytes()
        first = next(chunks)
        assert api.get("pods", "talker")["status"]["phase"] == "Running"
        (shared / "go").touch()
        rest = b"".join(chunks)
    assert (first + rest) == b"one\ntwo\n"


def test_the_whole_log_is_there_after_the_end(api: client.Client, node: str) -> None:
    """stdout and stderr, from the beginning, last line without an end included."""
    script = "i=0; while [ $i -lt 2000 ]; do echo line $i; i=$((i+1)); done; sleep 0.5; printf end >&2"
    api.create("pods", client.shell("much", script))
    api.bind("much", node)
    api.phase("much", "Succeeded")
    expected = "".join(f"line {number}\n" for number in range(2000)) + "end"
    assert api.log("much").text == expected
    assert api.log("much", tailLines=1).text == "end"
    assert api.log("much", limitBytes=6).text == "line 0"


def test_a_pod_on_no_node_has_an_empty_log(api: client.Client) -> None:
    """204: an end of the stream that does not mean the end of the pod, so we follow only what is bound."""
    api.create("pods", client.pod("unbound"))
    answer = api.log("unbound", follow="true")
    assert (answer.status_code, answer.text) == (204, "")


def test_the_log_of_a_container_that_does_not_run_yet_is_a_bad_request(api: client.Client, node: str) -> None:
    """400, not an empty log: whoever follows tries again and misses nothing."""
    missing = {"name": "v", "secret": {"secretName": "not-there-yet"}}
    mounted = {"volumeMounts": [{"name": "v", "mountPath": "/v"}]}
    api.create("pods", client.pod("early", volumes=[missing], container=mounted))
    api.bind("early", node)
    api.until(lambda pod: pod["status"].get("containerStatuses"), "pods", "early")  # until then it may be 404
    answer = api.log("early", follow="true")
    assert (answer.status_code, answer.json()["reason"]) == (400, "BadRequest")


def test_log_of_a_missing_pod_is_not_found(api: client.Client) -> None:
    """404: the pod itself does not exist."""
    assert api.log("nobody").status_code == 404


def test_the_container_can_be_named(api: client.Client, node: str) -> None:
    """The right name works, another is a bad request."""
    api.create("pods", client.shell("named", "echo hi"))
    api.bind("named", node)
    api.phase("named", "Succeeded")
    assert api.log("named", container="job").text == "hi\n"
    assert api.log("named", container="other").status_code == 400


def test_large_log_is_rotated(api: client.Client, node: str) -> None:
    """Kubelets check every ten seconds and rotate at 10 MiB, so a log cannot deliver all output."""
    script = f"yes {'x' * 99} | head -n 120000; sleep 21; echo end; sleep 60"
    api.create("pods", client.shell("large", script))
    api.bind("large", node)
    api.phase("large", "Running")
    deadline = time.monotonic() + 60
    while not (log := api.log("large").text).endswith("end\n"):
        assert time.monotonic() < deadline, log[-200:]
        time.sleep(1)
    assert len(log) < 120000 * 100
