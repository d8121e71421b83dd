"""An API server behind a path, or at an IPv6 address: all connections use the same address."""

from __future__ import annotations

import contextlib
import http.server
import socket
import threading
from collections.abc import Iterator

import pytest

from penstock import errors
from penstock.install import kubeadmin
from penstock.kube import addresses, client, kinds, kubeconfig, types

PREFIX = "/k8s/clusters/c-1"


class Api(http.server.BaseHTTPRequestHandler):
    """Several clusters behind one address; records requests."""

    asked: list[tuple[str, str]]

    def do_GET(self) -> None:
        self.asked.append((self.path.partition("?")[0], self.headers["Host"]))
        is_ours = self.path.startswith(f"{PREFIX}/") and "Upgrade" not in self.headers
        content = b'{"metadata":{},"items":[]}' if is_ours else b'{"kind":"Status","message":"no","code":404}'
        self.send_response(200 if is_ours else 404)
        self.send_header("Content-Length", str(len(content)))
        self.end_headers()
        self.wfile.write(content)

    def log_message(self, *_: object) -> None:
        """Nothing."""


class Server6(http.server.ThreadingHTTPServer):
    address_family = socket.AF_INET6


@contextlib.contextmanager
def listening(host: str) -> Iterator[tuple[int, list[tuple[str, str]]]]:
    """Its port, and the requested paths with their Host headers."""
    asked: list[tuple[str, str]] = []
    handler = type("Handler", (Api,), {"asked": asked})
    server = (Server6 if ":" in host else http.server.ThreadingHTTPServer)((host, 0), handler)
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    try:
        yield server.server_address[1], asked
    finally:
        server.shutdown()
        thread.join(10)
        server.server_close()


def has_ipv6() -> bool:
    try:
        with socket.socket(socket.AF_INET6) as one:
            one.bind(("::1", 0))
    except OSError:
        return False
    return True


HOSTS = [
    "127.0.0.1",
    pytest.param("::1", marks=pytest.mark.skipif(not has_ipv6(), reason="no IPv6 on this machine")),
]


@pytest.mark.parametrize("host", HOSTS)
async def test_exec_uses_the_path_prefix(host: str) -> None:
    named = f"[{host}]" if ":" in host else host
    with listening(host) as (port, asked):
        kube = client.KubeClient(kubeconfig.Access(server=f"http://{named}:{port}{PREFIX}"))
        await kube.list(kinds.PODS)
        with pytest.raises(errors.KubeNotFound):
            await kube.run(("true",), namespace="a", name="b", container="job")
        await kube.close()
    assert asked == [
        (f"{PREFIX}/api/v1/pods", f"{named}:{port}"),
        (f"{PREFIX}/api/v1/namespaces/a/pods/b/exec", f"{named}:{port}"),
    ]


@pytest.mark.parametrize("host", HOSTS)
def test_requests_use_the_path_prefix(host: str) -> None:
    """Objects, and the time."""
    named = f"[{host}]" if ":" in host else host
    with listening(host) as (port, asked):
        cluster = kubeadmin.Cluster(kubeconfig.Access(server=f"http://{named}:{port}{PREFIX}/"))
        assert cluster.items(kinds.NODES, types.Node) == ()
        assert cluster.ask(lambda kube: kube.server_time()) > 0
    assert asked == [
        (f"{PREFIX}/api/v1/nodes", f"{named}:{port}"),
        (f"{PREFIX}/version", f"{named}:{port}"),
    ]


@pytest.mark.parametrize(
    ("server", "host", "port", "authority", "prefix"),
    [
        ("https://api.example.org", "api.example.org", 443, "api.example.org:443", ""),
        ("http://10.0.0.1/", "10.0.0.1", 80, "10.0.0.1:80", ""),
        ("https://[fd00::1]", "fd00::1", 443, "[fd00::1]:443", ""),
        ("https://[fd00::1]:6443/a/b/", "fd00::1", 6443, "[fd00::1]:6443", "/a/b"),
    ],
)
def test_parse_address(server: str, host: str, port: int, authority: str, prefix: str) -> None:
    """The default port is the scheme's."""
    found = addresses.parse(server)
    assert (found.host, found.port, found.authority, found.prefix) == (host, port, authority, prefix)


@pytest.mark.parametrize(
    "server", ["", "api:6443", "ftp://api", "https://", "https://api:abc", "https://[::1"]
)
def test_invalid_address_is_reported(server: str) -> None:
    with pytest.raises(errors.UsageError, match="is not the address of an API server: "):
        addresses.parse(server)
