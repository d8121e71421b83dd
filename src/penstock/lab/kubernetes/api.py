"""A few calls of the Kubernetes API for setting a cluster up and looking at it, with nothing but http.client.

penstockd's own client speaks of pods and Secrets only, and speaks asynchronously; here a step of `lab up`
patches a node or applies a role and is done.
"""

from __future__ import annotations

import http.client
import ssl
import urllib.parse
from pathlib import Path
from typing import Any

import msgspec

from penstock import errors
from penstock.kube import kubeconfig

SECONDS = 10.0
MERGE = "application/merge-patch+json"
STRATEGIC = "application/strategic-merge-patch+json"
APPLY = "application/apply-patch+yaml"
FIELD_MANAGER = "penstock-lab"


def request(config: Path, method: str, path: str, *, body: Any = None, kind: str = "application/json") -> Any:
    """The answer, decoded; KubeError with the API's own words when it refuses."""
    return ask(kubeconfig.load(config), method, path, body=body, kind=kind)


def ask(
    access: kubeconfig.Access, method: str, path: str, *, body: Any = None, kind: str = "application/json"
) -> Any:
    """The same for one who asks often: reading a kubeconfig takes longer than the answer."""
    connection = _connect(access)
    headers = {"Content-Type": kind, "Accept": "application/json"}
    if access.token:
        headers["Authorization"] = f"Bearer {access.token}"
    try:
        connection.request(method, path, msgspec.json.encode(body) if body is not None else None, headers)
        response = connection.getresponse()
        content = response.read()
    except (OSError, http.client.HTTPException) as error:
        raise errors.KubeUnavailable(f"the Kubernetes API does not answer: {error}") from error
    finally:
        connection.close()
    return _decoded(response.status, content)


def apply(config: Path, path: str, manifest: Any) -> Any:
    """Make the object what the manifest says, whether it was there or not."""
    query = urllib.parse.urlencode({"fieldManager": FIELD_MANAGER, "force": "true"})
    return request(config, "PATCH", f"{path}?{query}", body=manifest, kind=APPLY)


def node_complaint(config: Path, name: str) -> str:
    """Why the node cannot take pods; nothing when it can."""
    try:
        node = request(config, "GET", f"/api/v1/nodes/{name}")
    except errors.KubeNotFound:
        return "its node has not come up yet"
    except (errors.KubeError, errors.UsageError) as error:
        return error.message
    return ready_complaint(node)


def ready_complaint(node: dict[str, Any]) -> str:
    """What the node's Ready condition says if it is not True."""
    for condition in node.get("status", {}).get("conditions", ()):
        if condition["type"] == "Ready":
            return "" if condition["status"] == "True" else str(condition.get("message") or "not Ready")
    return "says nothing of being Ready"


def _connect(access: kubeconfig.Access) -> http.client.HTTPConnection:
    address = urllib.parse.urlsplit(access.server)
    host = address.hostname or ""
    if address.scheme == "http":
        return http.client.HTTPConnection(host, address.port, timeout=SECONDS)
    context = access.tls or ssl.create_default_context()
    return http.client.HTTPSConnection(host, address.port, timeout=SECONDS, context=context)


def _decoded(status: int, content: bytes) -> Any:
    try:
        answer = msgspec.json.decode(content) if content else {}
    except msgspec.MsgspecError:
        answer = {"message": content[:200].decode(errors="replace")}
    if status < http.HTTPStatus.BAD_REQUEST:
        return answer
    kinds = {404: errors.KubeNotFound, 409: errors.KubeConflict, 429: errors.KubeUnavailable}
    kind = kinds.get(status, errors.KubeUnavailable if status >= 500 else errors.KubeError)
    message = answer.get("message") or f"the Kubernetes API answered {status}"
    raise kind(message, status=status, reason=answer.get("reason", ""))
