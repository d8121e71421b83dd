"""A thin client of the Kubernetes API: paths, errors, streams. Knows nothing of jobs.

Why not a library: docs/decisions/0002. Every request has a timeout. No answer, 5xx and 429 are
KubeUnavailable, never mistaken for "not found".
"""

from __future__ import annotations

import asyncio
import contextlib
import email.utils
import logging
import ssl
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from typing import Any, TypeVar

import httpx2
import msgspec

from penstock import errors
from penstock.kube import addresses, apierrors, codec, execs, kinds, kubeconfig, types

logging.getLogger("httpx2").setLevel(logging.WARNING)  # it logs every request

Manifest = Mapping[str, Any]
T = TypeVar("T")

TIMEOUT = 15.0
LONGEST = 60.0  # for a whole answer: TIMEOUT does not catch one that comes byte by byte
JSON = "application/json"
MERGE = "application/merge-patch+json"
STRATEGIC = "application/strategic-merge-patch+json"
APPLY = "application/apply-patch+yaml"
METADATA_ONLY = "application/json;as=PartialObjectMetadataList;g=meta.k8s.io;v=v1,application/json"
CONNECTIONS = 16  # for requests. Small, because the pool checks every connection before each request
SILENCE = 150.0  # longer than any watch lasts: a watch silent for this long is dead


class KubeClient:
    """The connection pools to one API server."""

    def __init__(
        self, access: kubeconfig.Access, *, on_answer: Callable[[str, str], None] = lambda verb, code: None
    ) -> None:
        self._on_answer = on_answer
        addresses.parse(access.server)
        self._access = access
        self._http = _connect(access, httpx2.Limits(max_connections=CONNECTIONS))
        self._streams = _connect(access, httpx2.Limits())

    async def __aenter__(self) -> KubeClient:
        return self

    async def __aexit__(self, *why: object) -> None:
        await self.close()

    async def close(self) -> None:
        await self._http.aclose()
        await self._streams.aclose()

    async def get(self, kind: kinds.Kind, *, name: str, namespace: str = "", sub: kinds.Sub = "") -> bytes:
        """The undecoded object."""
        return await self._request("GET", kind.path(namespace=namespace, name=name, sub=sub))

    async def list(
        self,
        kind: kinds.Kind,
        *,
        namespace: str = "",
        labels: str = "",
        fields: str = "",
        limit: int = 0,
        after: str = "",
        metadata_only: bool = False,
    ) -> bytes:
        """A page of a list, undecoded: the first, or the one `after` a continue token."""
        query = {
            "labelSelector": labels,
            "fieldSelector": fields,
            "limit": str(limit or ""),
            "continue": after,
        }
        accept = METADATA_ONLY if metadata_only else JSON
        return await self._request("GET", kind.path(namespace=namespace), query=query, accept=accept)

    async def create(
        self,
        kind: kinds.Kind,
        manifest: Manifest,
        *,
        namespace: str = "",
        name: str = "",
        sub: kinds.Sub = "",
    ) -> bytes:
        """Create the object. KubeConflict if the name is taken."""
        path = kind.path(namespace=namespace, name=name, sub=sub)
        return await self._request("POST", path, body=manifest)

    async def patch(
        self,
        kind: kinds.Kind,
        changes: Manifest,
        *,
        name: str,
        namespace: str = "",
        sub: kinds.Sub = "",
        strategic: bool = False,
    ) -> bytes:
        """Apply a JSON merge patch, or a strategic one, which merges lists by key (not for custom
        resources). KubeConflict if `changes` names another resourceVersion than the object's.
        """
        path = kind.path(namespace=namespace, name=name, sub=sub)
        return await self._request("PATCH", path, body=changes, content=STRATEGIC if strategic else MERGE)

    async def apply(
        self,
        kind: kinds.Kind,
        manifest: Manifest,
        *,
        manager: str,
        namespace: str = "",
        sub: kinds.Sub = "",
        force: bool = False,
        dry_run: bool = False,
    ) -> bytes:
        """Server-side apply, or a dry run. KubeConflict names a field's owner; `force` takes it over."""
        dry = "All" if dry_run else ""
        query = {"fieldManager": manager, "force": str(force).lower(), "dryRun": dry}
        path = kind.path(namespace=namespace, name=manifest["metadata"]["name"], sub=sub)
        return await self._request("PATCH", path, query=query, body=manifest, content=APPLY)

    async def delete(
        self, kind: kinds.Kind, *, name: str, uid: str | None, namespace: str = "", grace: int | None = None
    ) -> None:
        """Request deletion of the object with this uid; with None, of any object of that name."""
        options: dict[str, Any] = {} if uid is None else {"preconditions": {"uid": uid}}
        if grace is not None:
            options["gracePeriodSeconds"] = grace
        path = kind.path(namespace=namespace, name=name)
        await self._request("DELETE", path, body=options)

    async def watch(
        self, kind: kinds.Kind, *, version: str, seconds: int, namespace: str = ""
    ) -> AsyncIterator[types.Event]:
        """Changes after `version` until the server ends the watch. KubeGone if the version is too old."""
        query = {
            "watch": "1",
            "resourceVersion": version,
            "allowWatchBookmarks": "true",
            "timeoutSeconds": str(seconds),
        }
        async with self._stream(kind.path(namespace=namespace), query, read_timeout=SILENCE) as response:
            async for line in _lines(response.aiter_bytes()):
                if line.strip():
                    event = codec.decode(line, types.Event)
                    if event.type == "ERROR":
                        status = codec.decode(event.object, types.ApiStatus)
                        apierrors.raise_status(status, status.code)
                    yield event

    async def server_time(self) -> float:
        """The API server's time, to the second. Works without valid credentials."""
        response = await self._send("GET", "/version")
        try:
            return email.utils.parsedate_to_datetime(response.headers.get("Date", "")).timestamp()
        except (ValueError, TypeError) as error:
            raise errors.KubeUnavailable(f"the Kubernetes API sent no valid Date header: {error}") from error

    async def log(self, *, namespace: str, name: str, container: str) -> AsyncIterator[bytes]:
        """The container's output from its start, followed until it ends."""
        query = {"follow": "true", "container": container}
        path = kinds.PODS.path(namespace=namespace, name=name, sub="log")
        async with self._stream(path, query, read_timeout=None) as response:
            async for chunk in response.aiter_bytes():
                yield chunk

    async def run(
        self, command: Sequence[str], *, namespace: str, name: str, container: str, text: bytes = b""
    ) -> None:
        """Run a short command in a container, with `text` on its stdin. KubeError if it fails."""
        await execs.run(
            self._access, namespace=namespace, name=name, container=container, command=command, text=text
        )

    def stream(
        self, command: Sequence[str], *, namespace: str, name: str, container: str
    ) -> AsyncIterator[execs.Output]:
        """Output of a command in a container, until it has succeeded. KubeError if it fails."""
        return execs.stream(
            self._access, namespace=namespace, name=name, container=container, command=command
        )

    def converse(
        self, command: Sequence[str], *, namespace: str, name: str, container: str
    ) -> contextlib.AbstractAsyncContextManager[execs.Conversation]:
        """A command in a container with which to exchange data."""
        return execs.converse(
            self._access, namespace=namespace, name=name, container=container, command=command
        )

    @contextlib.asynccontextmanager
    async def _stream(
        self, path: str, query: dict[str, str], *, read_timeout: float | None
    ) -> AsyncIterator[httpx2.Response]:
        timeout = httpx2.Timeout(TIMEOUT, read=read_timeout)
        try:
            async with self._streams.stream("GET", path, params=query, timeout=timeout) as response:
                if not response.is_success:
                    await response.aread()
                    apierrors.raise_for(response.content, response.status_code, response.headers)
                yield response
        except httpx2.HTTPError as error:
            raise errors.KubeUnavailable(
                f"the connection to the Kubernetes API broke: {apierrors.why(error)}"
            ) from error

    async def _request(
        self,
        method: str,
        path: str,
        *,
        query: Mapping[str, str] = {},
        body: Manifest | None = None,
        content: str = JSON,
        accept: str = JSON,
    ) -> bytes:
        """Send a request with the non-empty parameters of `query`; returns the body."""
        params = {name: value for name, value in query.items() if value}
        headers = {"Accept": accept} | ({"Content-Type": content} if body is not None else {})
        sent = msgspec.json.encode(body) if body is not None else None
        response = await self._send(method, path, params=params, content=sent, headers=headers)
        if response.status_code == httpx2.codes.UNAUTHORIZED and self._access.origin:
            raise errors.KubeUnavailable(
                f"the Kubernetes API at {self._access.server} does not accept the credentials in "
                f"{self._access.origin}: they are expired, revoked or of another cluster",
                status=response.status_code,
                hint=self._access.renew,
            )
        if not response.is_success:
            apierrors.raise_for(response.content, response.status_code, response.headers)
        if response.content[:1] != b"{":
            raise errors.KubeUnavailable("the answer does not come from the Kubernetes API")
        return response.content

    async def _send(self, method: str, path: str, **what: Any) -> httpx2.Response:
        """Any answer of the server. KubeUnavailable if there is none."""
        try:
            async with asyncio.timeout(LONGEST):
                response = await self._http.request(method, path, **what)
        except (httpx2.HTTPError, TimeoutError) as error:
            self._on_answer(method, "none")
            origin, at = self._access.origin, f" at {self._access.server}" if self._access.origin else ""
            raise errors.KubeUnavailable(
                f"the Kubernetes API{at} does not answer: {apierrors.why(error)}",
                hint=f"Is it up, and is the server right in {origin}?" if origin else "",
            ) from error
        self._on_answer(method, str(response.status_code))
        return response


async def _lines(chunks: AsyncIterator[bytes]) -> AsyncIterator[bytes]:
    """Split at line feeds only: text in pods may contain other line separators."""
    rest: list[bytes] = []
    async for chunk in chunks:
        first, *others = chunk.split(b"\n")
        rest.append(first)
        for other in others:
            yield b"".join(rest)
            rest = [other]
    yield b"".join(rest)


def _connect(access: kubeconfig.Access, limits: httpx2.Limits) -> httpx2.AsyncClient:
    def authorize(request: httpx2.Request) -> httpx2.Request:
        token = access.bearer
        if token:
            request.headers["Authorization"] = f"Bearer {token}"
        return request

    return httpx2.AsyncClient(
        base_url=access.server,
        headers={"Accept": JSON, "User-Agent": "penstock"},
        auth=authorize,
        timeout=TIMEOUT,
        trust_env=False,
        transport=httpx2.AsyncHTTPTransport(
            verify=access.tls or ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT),  # trusts no certificate
            trust_env=False,
            limits=limits,
            socket_options=execs.KEEP_ASKING,
        ),
    )


def ask(access: kubeconfig.Access, question: Callable[[KubeClient], Awaitable[T]]) -> T:
    """Run one query for a program without an event loop."""

    async def answer() -> T:
        async with KubeClient(access) as kube:
            return await question(kube)

    return asyncio.run(answer())
