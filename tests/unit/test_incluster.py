"""Access from within a pod: files as a kubelet lays them out, a real TLS server, renewed tokens."""

from __future__ import annotations

import http.server
import json
import ssl
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from penstock import errors
from penstock.daemon import settings
from penstock.install import kubeadmin
from penstock.kube import client, incluster, kinds, kubeconfig, types
from penstock.site import daemonsettings, loader
from penstock_lab import certificates
from tests.install import sites


class Api:
    """An API server that accepts only the current token, and records the tokens it got."""

    def __init__(self, folder: Path) -> None:
        self.token = "first"
        self.seen: list[str] = []
        key, certificate = folder / "key.pem", folder / "cert.pem"
        certificates.ensure_certificate(key=key, certificate=certificate)
        self.certificate = certificate.read_bytes()
        api = self

        class Handler(http.server.BaseHTTPRequestHandler):
            def do_GET(self) -> None:  # the library's name
                shown = self.headers.get("Authorization", "").removeprefix("Bearer ")
                api.seen.append(shown)
                body = json.dumps(
                    {"kind": "NodeList", "metadata": {}, "items": [], "message": "who are you?"}
                ).encode()
                self.send_response(200 if shown == api.token else 401)
                self.send_header("Content-Length", str(len(body)))
                self.end_headers()
                self.wfile.write(body)

            def log_message(self, format: str, *args: object) -> None:  # noqa: A002  # the library's name
                pass

        self.server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(certificate, key)
        self.server.socket = context.wrap_socket(self.server.socket, server_side=True)
        self.thread = threading.Thread(target=self.server.serve_forever)

    @property
    def environ(self) -> dict[str, str]:
        return {incluster.HOST: "127.0.0.1", incluster.PORT: str(self.server.server_port)}


@pytest.fixture
def api(tmp_path: Path) -> Iterator[Api]:
    running = Api(tmp_path)
    running.thread.start()
    yield running
    running.server.shutdown()
    running.thread.join()
    running.server.server_close()


class Account:
    """A service account's files: links to a folder that is swapped as a whole, as a kubelet does."""

    def __init__(self, folder: Path, certificate: bytes) -> None:
        self.folder, self.certificate, self.turn = folder, certificate, 0
        folder.mkdir()
        self.renew("first")
        for name in (incluster.TOKEN, incluster.AUTHORITY):
            (folder / name).symlink_to(f"..data/{name}")

    def renew(self, token: str) -> None:
        self.turn += 1
        data = self.folder / f"..{self.turn}"
        data.mkdir()
        (data / incluster.TOKEN).write_text(token)
        (data / incluster.AUTHORITY).write_bytes(self.certificate)
        link = self.folder / "..data_tmp"
        link.symlink_to(data.name)
        link.replace(self.folder / "..data")


@pytest.fixture
def account(tmp_path: Path, api: Api) -> Account:
    return Account(tmp_path / "serviceaccount", api.certificate)


async def test_a_renewed_token_is_used_at_once(api: Api, account: Account) -> None:
    """By penstockd's client, on an existing connection; the old one would be rejected."""
    kube = client.KubeClient(incluster.load(account.folder, api.environ))
    try:
        await kube.list(kinds.NODES)
        account.renew("second")
        api.token = "second"
        await kube.list(kinds.NODES)
    finally:
        await kube.close()
    assert api.seen == ["first", "second"]


def test_exec_uses_the_renewed_token(api: Api, account: Account) -> None:
    cluster = kubeadmin.Cluster(incluster.load(account.folder, api.environ))
    assert cluster.items(kinds.NODES, types.Node) == ()
    account.renew("second")
    with pytest.raises(errors.KubeError):
        cluster.items(kinds.NODES, types.Node)
    assert api.seen == ["first", "second"]


async def test_missing_token_file_keeps_the_last_token(api: Api, account: Account) -> None:
    """The API decides whether it is still valid."""
    found = incluster.load(account.folder, api.environ)
    (account.folder / "..data").unlink()
    assert found.bearer == "first"
    account.renew("")
    assert found.bearer == "first"
    account.renew("third")
    assert found.bearer == "third"


@pytest.mark.parametrize(
    ("missing", "words"),
    [("token", "cannot read the token"), ("ca.crt", "ca.crt"), ("", "this is not a pod")],
)
def test_missing_file_is_reported(api: Api, account: Account, missing: str, words: str) -> None:
    """With a hint."""
    environ = api.environ if missing else {}
    if missing:
        (account.folder / missing).unlink()
    with pytest.raises(errors.UsageError, match=words):
        incluster.load(account.folder, environ)


async def test_server_of_another_ca_is_rejected(api: Api, account: Account, tmp_path: Path) -> None:
    certificates.ensure_certificate(key=tmp_path / "k2", certificate=tmp_path / "c2")
    account.certificate = (tmp_path / "c2").read_bytes()
    account.renew("first")
    kube = client.KubeClient(incluster.load(account.folder, api.environ))
    with pytest.raises(errors.KubeUnavailable, match=r"(?i)certificate"):
        await kube.list(kinds.NODES)
    await kube.close()
    assert api.seen == []


def test_ipv6_address_has_brackets(api: Api, account: Account) -> None:
    environ = {incluster.HOST: "fd00::1", incluster.PORT: "6443"}
    assert incluster.load(account.folder, environ).server == "https://[fd00::1]:6443"


def test_a_kubeconfig_may_name_a_token_file(api: Api, account: Account, tmp_path: Path) -> None:
    """It is renewed in the same way."""
    config = {
        "current-context": "c",
        "contexts": [{"name": "c", "context": {"cluster": "c", "user": "u"}}],
        "clusters": [{"name": "c", "cluster": {"server": "http://127.0.0.1:1"}}],
        "users": [{"name": "u", "user": {"tokenFile": "serviceaccount/token"}}],
    }
    (tmp_path / "config").write_text(json.dumps(config))
    found = kubeconfig.load(tmp_path / "config")
    account.renew("second")
    assert found.bearer == "second"


def test_site_file_selects_pod_access(
    api: Api, account: Account, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """From site.yaml through penstockd.json to the pod's files, and for commands in the same pod."""
    for name, value in api.environ.items():
        monkeypatch.setenv(name, value)
    monkeypatch.delenv("KUBECONFIG", raising=False)
    monkeypatch.setenv("HOME", str(tmp_path))
    site = sites.site(
        (
            "kubernetes:\n",
            f"kubernetes:\n  access: in-cluster\n  service_account_dir: {account.folder}\n",
        ),
        ("penstockd:\n", "penstockd:\n  run: deployment\n"),
    )
    (tmp_path / "penstockd.json").write_text(json.dumps(daemonsettings.penstockd(site, slurm_uid=1)))
    found = settings.load(tmp_path / "penstockd.json").access()
    assert (found.server, found.bearer) == (f"https://127.0.0.1:{api.server.server_port}", "first")
    assert kubeadmin.admin(site).items(kinds.NODES, types.Node) == ()
    assert kubeadmin.as_penstockd(site).items(kinds.NODES, types.Node) == ()


@pytest.mark.parametrize(
    ("old", "new", "words"),
    [
        ("kubernetes:\n", "kubernetes:\n  access: in-cluster\n", "has no service account"),
        ("kubernetes:\n", "kubernetes:\n  access: incluster\n", "did you mean `in-cluster`?"),
        ("kubernetes:\n", "kubernetes:\n  api: 10.0.0.1:6443\n", "only used with `access: in-cluster`"),
    ],
)
def test_contradictory_access_is_reported(old: str, new: str, words: str) -> None:
    """With the place in the file and what to write instead."""
    with pytest.raises(errors.UsageError) as caught:
        loader.loads(sites.GOOD.read_text().replace(old, new).encode())
    assert words in caught.value.message
