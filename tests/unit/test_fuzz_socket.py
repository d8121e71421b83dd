"""Whatever comes over penstockd's socket: an answer or a closed connection, and nothing is made or promised.

Whole messages with fields of every kind, one after the other on one connection, go through the server as it
is; only Slurm and Kubernetes are played. An exception that nobody expects would end up at the loop's handler.
"""

from __future__ import annotations

import asyncio
import contextlib
import dataclasses
import json
import tempfile
from pathlib import Path
from typing import Any

import msgspec
from hypothesis import given, settings
from hypothesis import strategies as some

from penstock import errors
from penstock.hooks import wire
from penstock.render import pods as rendering
from penstock.render import secrets
from penstock.sbatch import k8s
from penstock.sbatch import poddirectives as pods_of_scripts
from tests.unit import fakes, test_sessions

VERBS = (
    "admit",
    "launch",
    "release",
    "abandon",
    "describe",
    "audit",
    "metrics",
    "ping",
    "signal",
    "synced",
    "x",
)
NAMES = (
    *(
        "job",
        "uid",
        "gid",
        "user",
        "restart",
        "node",
        "slurm_job_id",
        "attach",
        "skip",
        "skip_error",
        "number",
    ),
    *(
        "everyone",
        "interpreter",
        "script",
        "workdir",
        "stdout",
        "stderr",
        "stdin",
        "umask",
        "argument",
        "environment",
    ),
)
VALUES = some.binary(max_size=30) | some.sampled_from(
    [
        b"7",
        b"0",
        b"1",
        b"-1",
        b"9" * 30,
        b"9" * 5000,
        b"65",
        b"n1",
        b"/nas/o",
        b"#!/x\n#K8S_IMAGE=\n",
        b"\xff\0",
    ]
)
PLAUSIBLE = [
    b"CITY=Z\xfcrich",
    b"CITY=Z\xc3\xbcrich",
    b"/nas/M\xfcller",
    b"echo 'Z\xfcrich'",
    b"/nas/a:/b:ro",
    b"@entrypoint",
]
PAIRS = some.tuples(some.sampled_from(NAMES).map(str.encode) | some.binary(max_size=5), VALUES)
PATHS = dict.fromkeys(("interpreter", "workdir", "stdout", "stderr"), b"/nas/o")
NUMBERS = dict.fromkeys(("skip", "skip_error"), b"0")
WHOLE = {"slurm_job_id": b"7", "attach": b"1", "script": b"#!/x\n"} | NUMBERS | PATHS


@some.composite
def messages(draw: some.DrawFn) -> bytes:
    """A frame: mostly a message, with a field too many or too few now and then."""
    pairs = draw(some.lists(PAIRS, max_size=8))
    if draw(some.booleans()):
        pairs += [(name.encode(), value) for name, value in WHOLE.items()]
    words = [draw(some.sampled_from(VERBS)).encode(), *(word for pair in pairs for word in pair)]
    return wire.pack(*words[: draw(some.integers(1, len(words)))])


DIALOGUES = some.lists(messages() | some.binary(max_size=20), min_size=1, max_size=4).map(b"".join)


async def unexpected(data: bytes, folder: Path) -> tuple[list[dict[str, Any]], test_sessions.World]:
    """What nobody caught while the server heard this, and the world after it."""
    caught: list[dict[str, Any]] = []
    asyncio.get_running_loop().set_exception_handler(lambda loop, context: caught.append(context))
    world = test_sessions.World(folder / "s")
    async with await asyncio.start_unix_server(world.server.handle, world.path) as listening:
        reader, writer = await asyncio.open_unix_connection(world.path)
        with contextlib.suppress(ConnectionError):
            writer.write(data)
            writer.write_eof()
            await asyncio.wait_for(reader.read(), 20)
        writer.close()
        with contextlib.suppress(ConnectionError):
            await writer.wait_closed()
        listening.close()
        for task in asyncio.all_tasks() - {asyncio.current_task()}:
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(task, 20)
    return caught, world


@settings(max_examples=150)
@given(DIALOGUES)
def test_any_dialogue_ends_in_words(data: bytes) -> None:
    """No exception that nobody expects; no pod for a job that Slurm does not know."""
    with tempfile.TemporaryDirectory() as folder:
        caught, world = asyncio.run(unexpected(data, Path(folder)))
    assert caught == []
    assert not [call for call in world.kube.calls if call[:2] == ("create", "pods")]
    assert not fakes.reserved(world.bridge)
    assert not any(job.launchers for job in world.bridge.context.store.all())


K8S_LINES = some.binary(max_size=300) | some.tuples(
    some.sampled_from(k8s.NAMES), some.binary(max_size=30) | some.sampled_from(PLAUSIBLE)
).map(lambda pair: pair[0].encode() + b"=" + pair[1])


@settings(max_examples=300)
@given(K8S_LINES.map(lambda tail: b"#!/bin/sh\n#K8S_" + tail), some.sampled_from(["", "@entrypoint"]))
def test_any_k8s_line_is_made_into_objects_or_refused_in_words(script: bytes, command: str) -> None:
    """As penstockd reads a launcher's script, renders its pod and its Secret, and sends them."""
    with contextlib.suppress(errors.UsageError):
        pod = pods_of_scripts.pod_of(script)
        wish = msgspec.structs.replace(pod, own_entrypoint=pod.own_entrypoint or bool(command))
        request = dataclasses.replace(fakes.REQUEST, pod=wish)
        whose: dict[str, Any] = {"owner": fakes.OWNER, "request": request, "policy": fakes.SETTINGS}
        made = (
            rendering.render_pod(fakes.allocation(), 0, **whose),
            secrets.render_secret(fakes.identity(), **whose, owner_pod_uid="1"),
        )
        assert json.loads(msgspec.json.encode(made)) == list(made)
