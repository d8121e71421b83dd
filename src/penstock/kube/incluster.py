"""Access from within a pod: the API's address from the environment, token and CA from the service account's
files.

The token is valid for an hour and renewed in its file well before that, so it is read for every request.
"""

from __future__ import annotations

import os
import ssl
from collections.abc import Mapping
from pathlib import Path

from penstock import errors, wellknown
from penstock.kube import kubeconfig

SERVICE_ACCOUNT = Path("/var/run/secrets/kubernetes.io/serviceaccount")
HOST, PORT = "KUBERNETES_SERVICE_HOST", "KUBERNETES_SERVICE_PORT"
TOKEN, AUTHORITY = "token", "ca.crt"  # file names


def load(folder: Path = SERVICE_ACCOUNT, environ: Mapping[str, str] = os.environ) -> kubeconfig.Access:
    """The pod's own access. UsageError outside a pod or without a service account."""
    host, port = environ.get(HOST, ""), environ.get(PORT, "443")
    if not host:
        raise errors.UsageError(
            f"{HOST} is not set: this is not a pod",
            hint="outside the cluster set `kubernetes.access: kubeconfig` in the site file",
        )
    try:
        tls = ssl.create_default_context(cafile=str(folder / AUTHORITY))
    except (OSError, ssl.SSLError) as error:
        raise errors.UsageError(
            f"cannot read {folder / AUTHORITY}: {error.strerror or error}",
            hint="does the pod have a service account, and automountServiceAccountToken not false?",
        ) from error
    token = kubeconfig.TokenFile(folder / TOKEN)
    token.read()
    address = f"[{host}]" if ":" in host else host
    return kubeconfig.Access(server=f"https://{address}:{port}", token_file=token, tls=tls)


def is_pod(folder: Path = SERVICE_ACCOUNT, environ: Mapping[str, str] = os.environ) -> bool:
    """Whether this process runs in a pod with a service account."""
    return bool(environ.get(HOST)) and (folder / TOKEN).exists()


def of_person(environ: Mapping[str, str] = os.environ) -> kubeconfig.Access:
    """The access that kubectl would use: $KUBECONFIG, ~/.kube/config, or in a pod its service account."""
    named = environ.get(wellknown.ENV_KUBECONFIG, "").partition(":")[0]
    path = Path(named) if named else Path.home() / ".kube" / "config"
    if not named and not path.exists() and is_pod(environ=environ):
        return load(environ=environ)
    return kubeconfig.load(path)
