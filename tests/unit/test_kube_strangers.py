"""Answers that do not come from the Kubernetes API: from a proxy, a portal, a login page."""

from __future__ import annotations

import contextlib
import dataclasses
import http.server
import socket
import ssl
import threading
from collections.abc import Iterator

import httpx2
import pytest

from penstock import errors
from penstock.install import kubeadmin
from penstock.kube import apierrors, client, kinds, kubeconfig, types

POD = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "p", "namespace": "n"}}
PAGE = b"<html>Please log in</html>"
STRANGE = [(200, PAGE), (200, b""), (200, b"[]"), (200, b'"ok"'), (302, PAGE), (302, b""), (302, b"{}")]


@contextlib.contextmanager
def answering(code: int, body: bytes) -> Iterator[str]:
    """A server with the same answer to everything; its address."""

    class Handler(http.server.BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self.rfile.read(int(self.headers.get("Content-Length") or 0))
            self.send_response(code)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        do_POST = do_PATCH = do_DELETE = do_GET  # noqa: N815  # the library's names

        def log_request(self, code: int | str = "-", size: int | str = "-") -> None:
            """Nobody reads it."""

    server = http.server.HTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_port}"
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


@pytest.mark.parametrize(("code", "body"), STRANGE)
def test_foreign_answer_is_reported(code: int, body: bytes) -> None:
    """No traceback, and nothing counts as created, deleted or absent."""
    with answering(code, body) as server:
        cluster = kubeadmin.Cluster(kubeconfig.Access(server=server))
        for ask in (cluster.get, cluster.get_settled, cluster.apply, cluster.delete):
            with pytest.raises(errors.KubeUnavailable):
                ask(POD)
        with pytest.raises(errors.KubeUnavailable):
            cluster.items(kinds.NODES, types.Node)


@pytest.mark.parametrize("body", [b"{}", b'{"items": null}', b'{"metadata": null}'])
def test_empty_object_is_not_a_list(body: bytes) -> None:
    """An invalid list is not an empty list."""
    with answering(200, body) as server:
        cluster = kubeadmin.Cluster(kubeconfig.Access(server=server))
        for ask in (lambda: cluster.get(POD), lambda: cluster.items(kinds.NODES, types.Node)):
            with pytest.raises(errors.KubeUnavailable):
                ask()


@pytest.mark.parametrize(
    ("error", "words"),
    [
        (OSError(111, "Connect call failed ('127.0.0.1', 1)"), "[Errno 111] Connection refused"),
        (ConnectionResetError(104, "Connection reset by peer"), "[Errno 104] Connection reset by peer"),
        (socket.gaierror(-2, "Name or service not known"), "[Errno -2] Name or service not known"),
        (ExceptionGroup("both", [OSError(113, "Connect call failed (x)")]), "[Errno 113] No route to host"),
        (ssl.SSLCertVerificationError(1, "self-signed certificate"), "self-signed certificate"),
        (ValueError("deep inside"), "All connection attempts failed"),
    ],
)
def test_missing_answer_has_its_cause(error: Exception, words: str) -> None:
    """Libraries in between only say that something failed."""
    silence = httpx2.ConnectError("All connection attempts failed")
    silence.__cause__ = error
    assert words in apierrors.why(silence)


async def test_message_names_server_and_kubeconfig() -> None:
    """For people; penstockd's log does not need it."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
    found = kubeconfig.Access(server=f"http://127.0.0.1:{port}")
    for access_, at, hint in (
        (found, "", ""),
        (dataclasses.replace(found, origin="/k"), f" at {found.server}", "is the server right in /k?"),
    ):
        async with client.KubeClient(access_) as kube:
            with pytest.raises(errors.KubeUnavailable) as silence:
                await kube.list(kinds.PODS)
        reason = "does not answer: [Errno 111] Connection refused"
        assert silence.value.message == f"the Kubernetes API{at} {reason}"
        assert hint in silence.value.hint


@pytest.mark.parametrize(("code", "body"), STRANGE)
async def test_foreign_answer_is_not_success(code: int, body: bytes) -> None:
    """A Secret, binding or deletion is not done because something answered."""
    with answering(code, body) as server:
        kube = client.KubeClient(kubeconfig.Access(server=server))
        try:
            with pytest.raises(errors.KubeUnavailable):
                await kube.create(kinds.PODS, {}, namespace="n", name="p", sub="binding")
            with pytest.raises(errors.KubeUnavailable):
                await kube.delete(kinds.PODS, namespace="n", name="p", uid="u")
            with pytest.raises(errors.KubeUnavailable):
                await kube.get(kinds.PODS, namespace="n", name="p")
        finally:
            await kube.close()
