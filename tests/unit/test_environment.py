"""What of the submit environment enters the pod, read back by a real shell."""

from __future__ import annotations

import subprocess

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from penstock.render import environment

BYTES = st.binary(max_size=60).map(lambda value: value.replace(b"\0", b"0"))


def shell(text: bytes) -> bytes:
    """What /bin/sh prints when it runs the text."""
    result = subprocess.run(["/bin/sh"], input=text, capture_output=True, timeout=10, check=True)
    return result.stdout


@settings(max_examples=50, deadline=None)
@given(st.lists(BYTES, min_size=1, max_size=5))
def test_arguments_survive_the_shell(words: list[bytes]) -> None:
    """Quotes, newlines, dollars and bytes that are no text come back unchanged."""
    printed = shell(environment.set_line(words) + b"printf '%s\\0' \"$@\"\n")
    assert printed.split(b"\0")[:-1] == words


@settings(max_examples=50, deadline=None)
@given(BYTES)
def test_values_survive_the_shell(value: bytes) -> None:
    """An exported value is the same in a child process."""
    assert shell(environment.export_lines([(b"IT", value)]) + b"printenv IT\n") == value + b"\n"


@pytest.mark.parametrize(
    "name",
    [
        b"PATH",
        b"HOME",
        b"LD_LIBRARY_PATH",
        b"SSH_AUTH_SOCK",
        b"SUDO_USER",
        b"XDG_RUNTIME_DIR",
        b"BASH_FUNC_ml%%",
        b"1X",
        b"",
    ],
)
def test_what_belongs_to_the_host_stays_there(name: bytes) -> None:
    """The image's own PATH and HOME are right; names no shell can export are left out."""
    assert environment.entering([name + b"=value"]) == ()


def test_the_rest_comes_along_in_order() -> None:
    """Users' and Slurm's variables enter; a value may hold an equals sign."""
    found = environment.entering([b"SLURM_JOB_ID=17", b"OPTIONS=a=b", b"PATH=/bin"])
    assert found == ((b"OPTIONS", b"a=b"), (b"SLURM_JOB_ID", b"17"))
