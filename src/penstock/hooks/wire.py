"""The protocol between hooks and penstockd: frames of byte strings, simple enough to need no import.

frame := length of the rest (4 bytes, big endian), then fields
field := length (4 bytes, big endian), then that many bytes

A message is a verb followed by names and values: b"admit", b"job", b"17", b"node", b"n1". A name may occur
more than once.
"""

import _socket

MAX_FRAME = 16 * 1024 * 1024  # enough: Slurm limits scripts to 4 MB, the kernel an environment to 2 MB


class WireError(Exception):
    """The peer sent something that is not a frame, or closed the connection within one."""


def pack(*fields: "bytes | str") -> bytes:
    """One frame with these fields. Text is sent as UTF-8, undecodable bytes unchanged."""
    parts = []
    for field in fields:
        data = field.encode("utf-8", "surrogateescape") if isinstance(field, str) else field
        parts.append(len(data).to_bytes(4, "big"))
        parts.append(data)
    body = b"".join(parts)
    if len(body) > MAX_FRAME:
        raise WireError(f"a message of {len(body)} bytes is over the limit of {MAX_FRAME}")
    return len(body).to_bytes(4, "big") + body


def unpack(body: bytes, most_fields: int = MAX_FRAME) -> "list[bytes]":
    """The fields of a frame's body."""
    fields: list[bytes] = []
    at = 0
    while at < len(body):
        end = at + 4 + int.from_bytes(body[at : at + 4], "big")
        if at + 4 > len(body) or end > len(body):
            raise WireError("a field runs past the end of its frame")
        if len(fields) == most_fields:
            raise WireError(f"a message of more than {most_fields} fields is over the limit")
        fields.append(body[at + 4 : end])
        at = end
    return fields


def connect(path: str, timeout: float) -> "_socket.socket":
    """A connection to penstockd. OSError if nobody listens."""
    sock = _socket.socket(_socket.AF_UNIX, _socket.SOCK_STREAM)
    try:
        sock.settimeout(timeout)
        sock.connect(path)
    except BaseException:
        sock.close()
        raise
    return sock


def ask(path: str, timeout: float, *words: str) -> "list[bytes] | None":
    """Send one request and return its answer. Raises OSError or WireError."""
    sock = connect(path, timeout)
    try:
        sock.sendall(pack(*words))
        return receive(sock)
    finally:
        sock.close()


def receive(sock: "_socket.socket") -> "list[bytes] | None":
    """The fields of the next frame; None if the peer closed the connection between frames."""
    head = _exactly(sock, 4)
    if not head:
        return None
    size = int.from_bytes(head, "big")
    if size > MAX_FRAME:
        raise WireError(f"a frame of {size} bytes is over the limit of {MAX_FRAME}")
    body = _exactly(sock, size)
    if len(body) < size:
        raise WireError("the connection closed within a frame")
    return unpack(body)


def _exactly(sock: "_socket.socket", size: int) -> bytes:
    """That many bytes, or none if the connection closed before the first."""
    chunks = []
    missing = size
    while missing:
        chunk = sock.recv(min(missing, 1 << 20))
        if not chunk:
            if missing < size:
                raise WireError("the connection closed within a frame")
            break
        chunks.append(chunk)
        missing -= len(chunk)
    return b"".join(chunks)
