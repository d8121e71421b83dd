"""Is it well? Each check answers with what is wrong in a few words, or with nothing."""

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
"""Any answer on a busy machine, where a daemon may have to wait seconds for its turn."""
SILENCE_SECONDS = 30.0
_BROKEN_NODE_STATES = ("down", "fail", "error", "unk", "*")


def nothing() -> str:
    """Nothing is ever wrong."""
    return ""


def unix_socket(path: Path, *, greets: bool = False) -> str:
    """Somebody accepts connections there, and with `greets` also speaks first."""
    with socket.socket(socket.AF_UNIX) as client:
        client.settimeout(ANSWER_SECONDS)
        try:
            client.connect(os.fspath(path))
            return "" if not greets or client.recv(1) else "closes connections"
        except OSError as error:
            return f"does not answer on its socket: {error.strerror or error}"


def lock(path: Path) -> str:
    """A daemon of ours holds the lock by which others know that it runs; only root can see that."""
    try:
        return "" if presence.look(path).runs else "does not hold its lock"
    except PermissionError:
        return ""


def accounting(place: paths.LabPaths, port: int) -> str:
    """slurmdbd listens and answers a question through its database."""
    if not ports.is_listening(port):
        return f"does not listen on port {port}"
    argv = ("sacctmgr", "--noheader", "--parsable2", "show", "qos", "format=name")
    answer = _ask(argv, place)
    return "" if "normal" in answer.split() else answer or "knows no QOS yet"


def controller(place: paths.LabPaths, port: int) -> str:
    """slurmctld listens and answers a ping."""
    if not ports.is_listening(port):
        return f"does not listen on port {port}"
    answer = _ask(("scontrol", "ping"), place)
    return "" if " is UP" in answer else answer


def node(place: paths.LabPaths, name: str, port: int) -> str:
    """slurmd listens, and slurmctld is content with the node."""
    if not ports.is_listening(port):
        return f"does not listen on port {port}"
    try:
        state = node_state(place, name)
    except errors.LabError as error:
        return f"its state is unknown: {error.message}"
    return f"node is {state}" if any(word in state for word in _BROKEN_NODE_STATES) else ""


def drained(place: paths.LabPaths, name: str) -> str:
    """Somebody, a person or penstockd, keeps new jobs away from the node."""
    try:
        state = node_state(place, name)
    except errors.LabError as error:
        return f"its state is unknown: {error.message}"
    return f"node is {state}" if "drain" in state else ""


def node_state(place: paths.LabPaths, name: str) -> str:
    """The node's state in sinfo's words, such as idle or drained."""
    argv = ("sinfo", "--noheader", "--Node", f"--nodes={name}", "--format=%T")
    lines = subprocesses.run(argv, environment=shellenv.slurm(place), timeout=ANSWER_SECONDS).stdout.split()
    return lines[0].lower() if lines else "unknown"


def inbox(path: Path) -> str:
    """The intake that wrote this lives, and has said something lately."""
    try:
        said = _inbox(path)
    except (OSError, msgspec.MsgspecError, UnicodeDecodeError) as error:
        return f"has not said anything yet: {error}"
    if not Path(f"/proc/{said.pid}").exists():
        return "has not said anything yet"
    age = time.time() - path.stat().st_mtime
    return f"has been silent for {age:.0f} s" if age > SILENCE_SECONDS else ""


def inbox_problem(path: Path) -> str:
    """What the intake says is wrong with the folder."""
    try:
        return _inbox(path).problem
    except (OSError, msgspec.MsgspecError, UnicodeDecodeError) as error:
        return f"its inbox cannot be read: {error}"


def _inbox(path: Path) -> status.Inbox:
    return msgspec.json.decode(path.read_bytes(), type=status.Inbox)


def kubernetes(certificate: Path, port: int) -> str:
    """The API says that it is ready, with the certificate we made for it."""
    if not ports.is_listening(port):
        return f"does not listen on port {port}"
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
    """What the program says, be it an answer or a complaint."""
    try:
        return subprocesses.run(
            argv, environment=shellenv.slurm(place), timeout=ANSWER_SECONDS
        ).stdout.strip()
    except errors.LabError as error:
        return error.message
