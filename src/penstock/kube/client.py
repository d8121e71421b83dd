"""A thin client of the Kubernetes API: paths, errors, streams. Knows nothing of jobs.

Why not a library: docs/decisions/0002. Every request has a timeout; what cannot be known (no answer, 5xx,
429) is KubeUnavailable and never mistaken for "not there".
"""

from __future__ import annotations

import contextlib
from collections.abc import AsyncIterator, Mapping
from typing import Any

import httpx2
import msgspec

from penstock import errors
from penstock.kube import kubeconfig, types

Manifest = Mapping[str, Any]

TIMEOUT = 15.0
_ERRORS: dict[int, type[errors.KubeError]] = {
    404: errors.KubeNotFound,
    409: errors.KubeConflict,
    410: errors.KubeGone,
    429: errors.KubeUnavailable,
}


def path_of(resource: str, *, namespace: str = "", name: str = "", sub: str = "") -> str:
    """The URL path of a core/v1 resource."""
    parts = ["/api/v1"]
    if namespace:
        parts += ["namespaces", namespace]
    parts.append(resource)
    parts += [part for part in (name, sub) if part]
    return "/".join(parts)


class KubeClient:
    """One connection pool to one API server."""

    def __init__(self, access: kubeconfig.Access) -> None:
        headers = {"Accept": "application/json", "User-Agent": "penstock"}
        if access.token:
            headers["Authorization"] = f"Bearer {access.token}"
        self._http = httpx2.AsyncClient(
            base_url=access.server,
            headers=headers,
            verify=access.tls if access.tls is not None else True,
            timeout=TIMEOUT,
            trust_env=False,
        )

    async def close(self) -> None:
        await self._http.aclose()

    async def get(
        self, resource: str, *, namespace: str = "", name: str = "", query: dict[str, str] | None = None
    ) -> bytes:
        """The object or list, undecoded."""
        return await self._request("GET", path_of(resource, namespace=namespace, name=name), query=query)

    async def create(
        self, resource: str, manifest: Manifest, *, namespace: str = "", name: str = "", sub: str = ""
    ) -> bytes:
        """Make the object; KubeConflict when there is one of that name."""
        path = path_of(resource, namespace=namespace, name=name, sub=sub)
        return await self._request("POST", path, body=msgspec.json.encode(manifest))

    async def delete(
        self, resource: str, *, namespace: str, name: str, uid: str, grace: int | None = None
    ) -> None:
        """Ask for the object's end; only ever the very object of that uid."""
        options: dict[str, Any] = {"preconditions": {"uid": uid}}
        if grace is not None:
            options["gracePeriodSeconds"] = grace
        await self._request(
            "DELETE", path_of(resource, namespace=namespace, name=name), body=msgspec.json.encode(options)
        )

    async def watch(self, resource: str, *, version: str, seconds: int) -> AsyncIterator[types.Event]:
        """Changes after `version`, until the server ends the watch; KubeGone when the version is too old."""
        query = {
            "watch": "1",
            "resourceVersion": version,
            "allowWatchBookmarks": "true",
            "timeoutSeconds": str(seconds),
        }
        decode = msgspec.json.Decoder(types.Event).decode
        async with self._stream(path_of(resource), query, read_timeout=seconds + TIMEOUT) as lines:
            async for line in lines.aiter_lines():
                if line:
                    event = decode(line)
                    if event.type == "ERROR":
                        _raise_status(msgspec.json.decode(event.object, type=types.ApiStatus), 0)
                    yield event

    async def log(self, *, namespace: str, name: str, container: str) -> AsyncIterator[bytes]:
        """The container's output from its start, and on until it ends."""
        query = {"follow": "true", "container": container}
        path = path_of("pods", namespace=namespace, name=name, sub="log")
        async with self._stream(path, query, read_timeout=None) as response:
            async for chunk in response.aiter_bytes():
                yield chunk

    @contextlib.asynccontextmanager
    async def _stream(
        self, path: str, query: dict[str, str], *, read_timeout: float | None
    ) -> AsyncIterator[httpx2.Response]:
        timeout = httpx2.Timeout(TIMEOUT, read=read_timeout)
        try:
            async with self._http.stream("GET", path, params=query, timeout=timeout) as response:
                if response.status_code >= 400:
                    await response.aread()
                    _raise_for(response)
                yield response
        except httpx2.HTTPError as error:
            raise errors.KubeUnavailable(f"the Kubernetes API broke off: {_words(error)}") from error

    async def _request(
        self, method: str, path: str, *, query: dict[str, str] | None = None, body: bytes | None = None
    ) -> bytes:
        headers = {"Content-Type": "application/json"} if body is not None else {}
        try:
            response = await self._http.request(method, path, params=query, content=body, headers=headers)
        except httpx2.HTTPError as error:
            raise errors.KubeUnavailable(f"the Kubernetes API does not answer: {_words(error)}") from error
        if response.status_code >= 400:
            _raise_for(response)
        return response.content


def _words(error: Exception) -> str:
    return str(error) or type(error).__name__


def _raise_for(response: httpx2.Response) -> None:
    try:
        status = msgspec.json.decode(response.content, type=types.ApiStatus)
    except msgspec.MsgspecError:
        status = types.ApiStatus(message=response.text[:200])
    _raise_status(status, response.status_code)


def _raise_status(status: types.ApiStatus, code: int) -> None:
    code = code or status.code
    kind = _ERRORS.get(code, errors.KubeUnavailable if code >= 500 else errors.KubeError)
    raise kind(status.message or f"the Kubernetes API answered {code}", status=code, reason=status.reason)
