"""The frames between hooks and penstockd."""

from __future__ import annotations

import os
import socket

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.daemon import connections
from penstock.hooks import wire


@given(st.lists(st.binary(max_size=300), max_size=20))
def test_fields_come_back_as_they_were(fields: list[bytes]) -> None:
    """Any bytes survive packing and unpacking."""
    frame = wire.pack(*fields)
    assert int.from_bytes(frame[:4], "big") == len(frame) - 4
    assert wire.unpack(frame[4:]) == fields


@given(st.binary(max_size=200))
def test_arbitrary_bytes_are_fields_or_an_error(body: bytes) -> None:
    """Nonsense raises WireError and nothing else."""
    try:
        fields = wire.unpack(body)
    except wire.WireError:
        return
    assert sum(4 + len(field) for field in fields) == len(body)


def test_text_with_undecodable_bytes_is_sent_as_it_was() -> None:
    """Arguments that are not UTF-8 reach the pod unchanged."""
    argument = b"caf\xe9".decode("utf-8", "surrogateescape")
    assert wire.unpack(wire.pack(argument)[4:]) == [b"caf\xe9"]


def test_a_frame_over_the_limit_is_not_sent(monkeypatch: pytest.MonkeyPatch) -> None:
    """What the other side would refuse is refused before it is sent."""
    monkeypatch.setattr(wire, "MAX_FRAME", 10)
    with pytest.raises(wire.WireError, match="over the limit"):
        wire.pack(b"x" * 11)


def pair() -> tuple[socket.socket, socket.socket]:
    return socket.socketpair()


def test_receive_joins_what_arrives_in_pieces() -> None:
    """A frame may come in any number of pieces."""
    ours, theirs = pair()
    with ours, theirs:
        frame = wire.pack("exit", "7")
        theirs.sendall(frame[:3])
        theirs.sendall(frame[3:])
        assert wire.receive(ours) == [b"exit", b"7"]


def test_receive_tells_an_end_from_a_break() -> None:
    """None after the last frame; an error within one."""
    ours, theirs = pair()
    with ours:
        with theirs:
            theirs.sendall(wire.pack("started") + b"\0\0")
        assert wire.receive(ours) == [b"started"]
        with pytest.raises(wire.WireError, match="within a frame"):
            wire.receive(ours)


def test_receive_ends_quietly_between_frames() -> None:
    """A closed connection is not an error when nothing was under way."""
    ours, theirs = pair()
    with ours:
        theirs.close()
        assert wire.receive(ours) is None


def test_receive_refuses_a_giant_frame() -> None:
    """A length nobody would send does not make us wait for gigabytes."""
    ours, theirs = pair()
    with ours, theirs:
        theirs.sendall(b"\xff\xff\xff\xff")
        with pytest.raises(wire.WireError, match="over the limit"):
            wire.receive(ours)


def test_a_message_is_a_verb_with_named_values() -> None:
    """Names may repeat; numbers are checked; what is missing is named."""
    message = connections.parse([b"launch", b"argument", b"a", b"argument", b"b", b"skip", b"12"])
    assert message.verb == "launch"
    assert message.all("argument") == (b"a", b"b")
    assert message.number("skip") == 12
    with pytest.raises(wire.WireError, match="job is missing"):
        message.one("job")
    with pytest.raises(wire.WireError, match="not a number"):
        message.number("argument")


@pytest.mark.parametrize("fields", [[], [b"admit", b"job"]])
def test_half_a_message_is_refused(fields: list[bytes]) -> None:
    """A name without a value is nonsense."""
    with pytest.raises(wire.WireError):
        connections.parse(fields)


def test_the_peer_is_who_the_kernel_says() -> None:
    """SO_PEERCRED names this process's user."""
    ours, theirs = socket.socketpair()
    with ours, theirs:
        assert connections.peer_uid(ours) == os.getuid()
