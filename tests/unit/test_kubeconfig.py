"""Invalid kubeconfigs: a one-line error with the file's name, never a traceback."""

from __future__ import annotations

import base64
import json
import ssl
import subprocess
from pathlib import Path
from typing import Any

import pytest

from penstock import errors
from penstock.kube import kubeconfig
from penstock_lab import certificates

SERVER = "https://127.0.0.1:1"


def config(*, cluster: Any = None, user: Any = None, **others: Any) -> dict[str, Any]:
    """A valid one, except for the given parts."""
    return {
        "current-context": "x",
        "contexts": [{"name": "x", "context": {"cluster": "c", "user": "u"}}],
        "clusters": [{"name": "c", "cluster": {"server": SERVER} if cluster is None else cluster}],
        "users": [{"name": "u", "user": {"token": "t"} if user is None else user}],
    } | others


def data(content: bytes) -> str:
    return base64.b64encode(content).decode()


def pair(folder: Path) -> tuple[bytes, bytes]:
    """A certificate and its key."""
    key, certificate = folder / "key.pem", folder / "certificate.pem"
    certificates.ensure_certificate(key=key, certificate=certificate)
    return certificate.read_bytes(), key.read_bytes()


def load(folder: Path, document: Any) -> kubeconfig.Access:
    (folder / "config").write_text(document if isinstance(document, str) else json.dumps(document))
    return kubeconfig.load(folder / "config")


BAD = {
    "no server": (config(cluster={"server": ""}), "the cluster of context 'x' has no server"),
    "no cluster": (config(clusters=[{"name": "c"}]), "the cluster of context 'x' has no server"),
    "no scheme": (config(cluster={"server": "api:6443"}), "'api:6443' is not the address of an API server"),
    "no port": (config(cluster={"server": "https://api:abc"}), "'https://api:abc' is not the address"),
    "an authority that is none": (
        config(cluster={"server": SERVER, "certificate-authority-data": data(b"garbage")}),
        "certificate-authority contains no PEM certificates",
    ),
    "an authority in DER": (
        config(cluster={"server": SERVER, "certificate-authority-data": data(b"\x30\x82\xff")}),
        "certificate-authority contains no PEM certificates",
    ),
    "a certificate that is none": (
        config(user={"client-certificate-data": data(b"x"), "client-key-data": data(b"y")}),
        "client-certificate and client-key are not a PEM certificate and its key",
    ),
    "a certificate without a key": (
        config(user={"client-certificate-data": data(b"x")}),
        "there is a client-certificate and no client-key",
    ),
    "data that is not base64": (
        config(user={"client-certificate-data": "?"}),
        "cannot read client-certificate",
    ),
    "contexts that are words": (config(contexts=["x"]), "contexts must be a list of mappings"),
    "contexts that are a mapping": (config(contexts={"x": 1}), "contexts must be a list of mappings"),
    "a context that is a word": (
        config(contexts=[{"name": "x", "context": "foo"}]),
        "context 'x' must be a mapping",
    ),
    "a cluster that is a word": (config(cluster="foo"), "cluster 'c' must be a mapping"),
    "a user that is a list": (config(user=["token"]), "user 'u' must be a mapping"),
    "a user that is not there": (config(users=[]), "no user named 'u'"),
    "a date that is none": ("since: 2024-99-99", "is not a kubeconfig"),
}


@pytest.mark.parametrize(("document", "words"), BAD.values(), ids=BAD)
def test_error_names_the_file(tmp_path: Path, document: Any, words: str) -> None:
    with pytest.raises(errors.UsageError) as caught:
        load(tmp_path, document)
    assert caught.value.message.startswith(str(tmp_path / "config"))
    assert words in caught.value.message


def test_certificates_are_used(tmp_path: Path) -> None:
    """Inline, or in files relative to the kubeconfig."""
    certificate, key = pair(tmp_path)
    inline = {"client-certificate-data": data(certificate), "client-key-data": data(key)}
    beside = {"client-certificate": "certificate.pem", "client-key": "key.pem"}
    trusting = {"server": SERVER, "certificate-authority": "certificate.pem"}
    for user in (inline, beside):
        tls = load(tmp_path, config(cluster=trusting, user=user)).tls
        assert tls is not None
        assert (tls.verify_mode, len(tls.get_ca_certs())) == (ssl.CERT_REQUIRED, 1)
    assert load(tmp_path, config(cluster={"server": "http://127.0.0.1:1"})).tls is None


def test_unusable_key_is_reported(tmp_path: Path) -> None:
    """A key of another certificate or with a passphrase; nobody is prompted."""
    certificate, key = pair(tmp_path)
    (tmp_path / "other").mkdir()
    locking = ("openssl", "ec", "-aes256", "-passout", "pass:secret")
    locked = subprocess.run(locking, input=key, capture_output=True, check=True, timeout=30).stdout
    for wrong in (pair(tmp_path / "other")[1], locked):
        user = {"client-certificate-data": data(certificate), "client-key-data": data(wrong)}
        with pytest.raises(errors.UsageError, match="are not a PEM certificate and its key") as caught:
            load(tmp_path, config(user=user))
        assert "passphrase" in caught.value.hint


@pytest.mark.parametrize("word", ["false", "no", "0", 1])
def test_skip_tls_verify_must_be_boolean(tmp_path: Path, word: Any) -> None:
    """kubectl refuses such a file, too."""
    path = tmp_path / "config"
    cluster = {"server": SERVER, "insecure-skip-tls-verify": word}
    path.write_text(json.dumps(config(cluster=cluster)))
    with pytest.raises(errors.UsageError, match="insecure-skip-tls-verify must be"):
        kubeconfig.load(path)
