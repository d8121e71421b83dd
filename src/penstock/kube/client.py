"""A thin client of the Kubernetes API: paths, errors, streams. Knows nothing of jobs.

Why not a library: docs/decisions/0002. Every request has a timeout; what cannot be known (no answer, 5xx,
429) is KubeUnavailable and never mistaken for "not there".
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

logging.getLogger("httpx2").setLevel(logging.WARNING)  # it tells of every request

Manifest = Mapping[str, Any]
T = TypeVar("T")

TIMEOUT = 15.0
LONGEST = 60.0  # for a whole answer: one that comes byte by byte is never late by TIMEOUT
JSON = "application/json"
MERGE = "application/merge-patch+json"
STRATEGIC = "application/strategic-merge-patch+json"
APPLY = "application/apply-patch+yaml"
METADATA_ONLY = "application/json;as=PartialObjectMetadataList;g=meta.k8s.io;v=v1,application/json"
CONNECTIONS = 16
"""For requests: the pool looks at each of its connections before every request, so it must stay small."""
SILENCE = 150.0  # a watch that is silent for longer than watches last is dead


class KubeClient:
    """One connection pool to one API server."""

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
        """The object, undecoded."""
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
        """A page of a list, undecoded: the first, or what comes `after` the one that ended with that word.

        With `metadata_only` what is in the objects stays where it is.
        """
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
        """Make the object; KubeConflict when there is one of that name."""
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
        """Change what `changes` names (JSON merge patch); KubeConflict when it names another resourceVersion
        than the object's. A strategic merge knows elements of lists by their keys; not of custom resources.
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
        """Make the object what the manifest says (server-side apply), or only ask whether it would.

        KubeConflict names the manager who wants a field otherwise; with `force` it is ours from now on.
        """
        dry = "All" if dry_run else ""
        query = {"fieldManager": manager, "force": str(force).lower(), "dryRun": dry}
        path = kind.path(namespace=namespace, name=manifest["metadata"]["name"], sub=sub)
        return await self._request("PATCH", path, query=query, body=manifest, content=APPLY)

    async def delete(
        self, kind: kinds.Kind, *, name: str, uid: str | None, namespace: str = "", grace: int | None = None
    ) -> None:
        """Ask for the object's end: only ever the very object of that uid; None for whichever there is."""
        options: dict[str, Any] = {} if uid is None else {"preconditions": {"uid": uid}}
        if grace is not None:
            options["gracePeriodSeconds"] = grace
        path = kind.path(namespace=namespace, name=name)
        await self._request("DELETE", path, body=options)

    async def watch(
        self, kind: kinds.Kind, *, version: str, seconds: int, namespace: str = ""
    ) -> AsyncIterator[types.Event]:
        """Changes after `version`, until the server ends the watch; KubeGone when the version is too old."""
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
        """What the API server's clock says, to the second, whether or not it lets us in."""
        response = await self._send("GET", "/version")
        try:
            return email.utils.parsedate_to_datetime(response.headers.get("Date", "")).timestamp()
        except (ValueError, TypeError) as error:
            raise errors.KubeUnavailable(f"the Kubernetes API does not tell the time: {error}") from error

    async def log(self, *, namespace: str, name: str, container: str) -> AsyncIterator[bytes]:
        """The container's output from its start, and on until it ends."""
        query = {"follow": "true", "container": container}
        path = kinds.PODS.path(namespace=namespace, name=name, sub="log")
        async with self._stream(path, query, read_timeout=None) as response:
            async for chunk in response.aiter_bytes():
                yield chunk

    async def run(self, command: Sequence[str], *, namespace: str, name: str, container: str) -> None:
        """Run a short command in a container; KubeError when it fails."""
        await execs.run(self._access, namespace=namespace, name=name, container=container, command=command)

    def stream(
        self, command: Sequence[str], *, namespace: str, name: str, container: str
    ) -> AsyncIterator[execs.Output]:
        """What a command in a container prints, until it has succeeded; KubeError when it fails."""
        return execs.stream(
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
            raise errors.KubeUnavailable(f"the Kubernetes API broke off: {apierrors.why(error)}") from error

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
        """The answer; of `query` what is not empty is sent."""
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
            raise errors.KubeUnavailable("somebody who is not the Kubernetes API answered")
        return response.content

    async def _send(self, method: str, path: str, **what: Any) -> httpx2.Response:
        """Whatever is answered; KubeUnavailable when nothing is."""
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
    """Lines end with a line feed only: text of anybody's pod may hold what else can break lines."""
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
            verify=access.tls or ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT),  # which trusts nobody
            trust_env=False,
            limits=limits,
            socket_options=execs.KEEP_ASKING,
        ),
    )


def ask(access: kubeconfig.Access, question: Callable[[KubeClient], Awaitable[T]]) -> T:
    """The answer to one question of a program that has no event loop."""

    async def answer() -> T:
        async with KubeClient(access) as kube:
            return await question(kube)

    return asyncio.run(answer())
