"""Frames between hooks and penstockd."""

from __future__ import annotations

import os
import socket

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.daemon import connections
from penstock.hooks import wire


@given(st.lists(st.binary(max_size=300), max_size=20))
def test_fields_round_trip(fields: list[bytes]) -> None:
    frame = wire.pack(*fields)
    assert int.from_bytes(frame[:4], "big") == len(frame) - 4
    assert wire.unpack(frame[4:]) == fields


@given(st.binary(max_size=200))
def test_arbitrary_bytes_are_fields_or_an_error(body: bytes) -> None:
    """Only WireError is raised."""
    try:
        fields = wire.unpack(body)
    except wire.WireError:
        return
    assert sum(4 + len(field) for field in fields) == len(body)


def test_undecodable_bytes_are_sent_unchanged() -> None:
    """Arguments may not be UTF-8."""
    argument = b"caf\xe9".decode("utf-8", "surrogateescape")
    assert wire.unpack(wire.pack(argument)[4:]) == [b"caf\xe9"]


def test_a_frame_over_the_limit_is_not_sent(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(wire, "MAX_FRAME", 10)
    with pytest.raises(wire.WireError, match="over the limit"):
        wire.pack(b"x" * 11)


def pair() -> tuple[socket.socket, socket.socket]:
    return socket.socketpair()


def test_receive_joins_pieces() -> None:
    ours, theirs = pair()
    with ours, theirs:
        frame = wire.pack("exit", "7")
        theirs.sendall(frame[:3])
        theirs.sendall(frame[3:])
        assert wire.receive(ours) == [b"exit", b"7"]


def test_receive_distinguishes_end_from_break() -> None:
    """None after the last frame, WireError within one."""
    ours, theirs = pair()
    with ours:
        with theirs:
            theirs.sendall(wire.pack("started") + b"\0\0")
        assert wire.receive(ours) == [b"started"]
        with pytest.raises(wire.WireError, match="within a frame"):
            wire.receive(ours)


def test_receive_returns_none_between_frames() -> None:
    ours, theirs = pair()
    with ours:
        theirs.close()
        assert wire.receive(ours) is None


def test_receive_refuses_a_giant_frame() -> None:
    """A forged length must not make us wait for gigabytes."""
    ours, theirs = pair()
    with ours, theirs:
        theirs.sendall(b"\xff\xff\xff\xff")
        with pytest.raises(wire.WireError, match="over the limit"):
            wire.receive(ours)


def test_a_message_is_a_verb_with_named_values() -> None:
    """Names may repeat; numbers are checked; a missing value is named."""
    message = connections.parse([b"launch", b"argument", b"a", b"argument", b"b", b"skip", b"12"])
    assert message.verb == "launch"
    assert message.all("argument") == (b"a", b"b")
    assert message.number("skip") == 12
    with pytest.raises(wire.WireError, match="job is missing"):
        message.one("job")
    with pytest.raises(wire.WireError, match="not a number"):
        message.number("argument")


@pytest.mark.parametrize("fields", [[], [b"admit", b"job"]])
def test_name_without_a_value_is_refused(fields: list[bytes]) -> None:
    with pytest.raises(wire.WireError):
        connections.parse(fields)


def test_peer_is_from_so_peercred() -> None:
    ours, theirs = socket.socketpair()
    with ours, theirs:
        assert connections.peer_uid(ours) == os.getuid()
