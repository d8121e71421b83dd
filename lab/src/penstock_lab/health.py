"""Health checks of the daemons. Each returns what is wrong, or an empty string."""

from __future__ import annotations

import http.client
import os
import socket
import ssl
import time
from pathlib import Path

import msgspec

from penstock import errors, presence
from penstock.intake import status
from penstock_lab import paths, ports, shellenv, subprocesses

ANSWER_SECONDS = 10.0
"""Generous, since on a busy machine a daemon may wait seconds for the CPU."""
SILENCE_SECONDS = 30.0
_BROKEN_NODE_STATES = ("down", "fail", "error", "unk", "*")


def nothing() -> str:
    return ""


def unix_socket(path: Path, *, greets: bool = False) -> str:
    """Something accepts connections there and, with `greets`, sends the first byte."""
    with socket.socket(socket.AF_UNIX) as client:
        client.settimeout(ANSWER_SECONDS)
        try:
            client.connect(os.fspath(path))
            return "" if not greets or client.recv(1) else "closes connections"
        except OSError as error:
            return f"does not answer on its socket: {error.strerror or error}"


def lock(path: Path) -> str:
    """Our daemon holds its lock; only root can see that."""
    try:
        return "" if presence.look(path).runs else "does not hold its lock"
    except PermissionError:
        return ""


def listens(port: int) -> str:
    return "" if ports.is_listening(port) else f"does not listen on port {port}"


def accounting(place: paths.LabPaths, port: int) -> str:
    """slurmdbd listens and answers a query of its database."""
    if complaint := listens(port):
        return complaint
    argv = ("sacctmgr", "--noheader", "--parsable2", "show", "qos", "format=name")
    answer = _ask(argv, place)
    return "" if "normal" in answer.split() else answer or "knows no QOS yet"


def controller(place: paths.LabPaths, port: int) -> str:
    """slurmctld listens and answers a ping."""
    if complaint := listens(port):
        return complaint
    answer = _ask(("scontrol", "ping"), place)
    return "" if " is UP" in answer else answer


def node(place: paths.LabPaths, name: str, port: int) -> str:
    """slurmd listens, and slurmctld does not report the node as down."""
    return listens(port) or _node_in(_BROKEN_NODE_STATES, place, name)


def drained(place: paths.LabPaths, name: str) -> str:
    """The node is drained, by a person or by penstockd."""
    return _node_in(("drain",), place, name)


def _node_in(states: tuple[str, ...], place: paths.LabPaths, name: str) -> str:
    """Complains if sinfo shows the node in one of these states."""
    argv = ("sinfo", "--noheader", "--Node", f"--nodes={name}", "--format=%T")
    try:
        answer = subprocesses.run(argv, environment=shellenv.slurm(place), timeout=ANSWER_SECONDS)
    except errors.LabError as error:
        return f"its state is unknown: {error.message}"
    state = (answer.stdout.lower().split() or ["unknown"])[0]
    return f"node is {state}" if any(word in state for word in states) else ""


def inbox(path: Path) -> str:
    """The intake that wrote this status file is alive and updated it recently."""
    try:
        said = _inbox(path)
    except (OSError, msgspec.MsgspecError, UnicodeDecodeError) as error:
        return f"has not written its status yet: {error}"
    if not Path(f"/proc/{said.pid}").exists():
        return "has not written its status yet"
    age = time.time() - path.stat().st_mtime
    return f"has been silent for {age:.0f} s" if age > SILENCE_SECONDS else ""


def inbox_problem(path: Path) -> str:
    """The problem with the drop folder that the intake reports."""
    try:
        return _inbox(path).problem
    except (OSError, msgspec.MsgspecError, UnicodeDecodeError) as error:
        return f"its inbox cannot be read: {error}"


def _inbox(path: Path) -> status.Inbox:
    return msgspec.json.decode(path.read_bytes(), type=status.Inbox)


def kubernetes(certificate: Path, port: int) -> str:
    """The API is ready and has the certificate made for it."""
    if complaint := listens(port):
        return complaint
    try:
        context = ssl.create_default_context(cafile=str(certificate))
        connection = http.client.HTTPSConnection(
            ports.LOOPBACK, port, timeout=ANSWER_SECONDS, context=context
        )
        try:
            connection.request("GET", "/readyz")
            status = connection.getresponse().status
        finally:
            connection.close()
    except (OSError, http.client.HTTPException) as error:
        return f"does not answer: {error}"
    return "" if status == http.HTTPStatus.OK else f"answers {status} to /readyz"


def _ask(argv: tuple[str, ...], place: paths.LabPaths) -> str:
    """The program's output, or its error."""
    try:
        return subprocesses.run(
            argv, environment=shellenv.slurm(place), timeout=ANSWER_SECONDS
        ).stdout.strip()
    except errors.LabError as error:
        return error.message
