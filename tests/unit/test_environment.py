"""Which of the submit environment enters the pod, as a real shell reads it."""

from __future__ import annotations

import shutil
import subprocess

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from penstock.render import podenv

BYTES = st.binary(max_size=60).map(lambda value: value.replace(b"\0", b"0"))


def shell(text: bytes) -> bytes:
    """Output of /bin/sh for the text."""
    result = subprocess.run(["/bin/sh"], input=text, capture_output=True, timeout=60, check=True)
    return result.stdout


@settings(max_examples=50, deadline=None)
@given(st.lists(BYTES, min_size=1, max_size=5))
def test_arguments_survive_the_shell(words: list[bytes]) -> None:
    """Quotes, newlines, dollars and non-text bytes are unchanged."""
    printed = shell(podenv.set_line(words) + b"printf '%s\\0' \"$@\"\n")
    assert printed.split(b"\0")[:-1] == words


@settings(max_examples=50, deadline=None)
@given(BYTES)
def test_values_survive_the_shell(value: bytes) -> None:
    assert shell(podenv.export_lines([(b"IT", value)]) + b"printenv IT\n") == value + b"\n"


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
def test_host_variables_are_dropped(name: bytes) -> None:
    """The image has its own PATH and HOME; names that no shell can export are dropped, too."""
    assert podenv.entering([name + b"=value"]) == ()


@pytest.mark.parametrize(
    ("export", "names"),
    [
        (b"", set()),
        (b"ALL", set()),
        (b"NONE", set()),
        (b"NIL", set()),
        (b"PATH,HOME", {b"PATH", b"HOME"}),
        (b"ALL,PATH=/a:/b", {b"PATH"}),
        (b"ALL,LIST='a,PATH,b'", {b"LIST"}),
        (b'ALL,LIST="a,PATH,b",HOME', {b"LIST", b"HOME"}),
        (b"A=it's", {b"A"}),
    ],
)
def test_export_lists_name_variables(export: bytes, names: set[bytes]) -> None:
    """ALL and the like are not names, and a quoted comma does not separate."""
    assert podenv.exported_by_name(export) == names


def test_host_variable_enters_if_exported_by_name() -> None:
    """PATH by name is passed, HOME is not."""
    given = [b"PATH=/mine", b"HOME=/home/a", b"SLURM_EXPORT_ENV=ALL,PATH=/mine"]
    names = [name for name, _ in podenv.entering(given)]
    assert names == [b"PATH", b"SLURM_EXPORT_ENV"]


@pytest.mark.parametrize("name", [b"CUDA_VISIBLE_DEVICES", b"SLURM_CONF", b"ROCR_VISIBLE_DEVICES"])
def test_some_variables_never_enter(name: bytes) -> None:
    """A container counts its GPUs from 0: the node's numbers would hide them, even if exported by name."""
    assert podenv.entering([name + b"=3", b"SLURM_EXPORT_ENV=" + name]) == ((b"SLURM_EXPORT_ENV", name),)


@given(st.binary(max_size=80))
def test_any_export_list_is_parsed(export: bytes) -> None:
    """No name contains a comma outside of quotes."""
    for name in podenv.exported_by_name(export):
        assert b"=" not in name


def test_other_variables_enter_in_order() -> None:
    """Users' and Slurm's variables; a value may contain an equals sign."""
    found = podenv.entering([b"SLURM_JOB_ID=17", b"OPTIONS=a=b", b"PATH=/bin"])
    assert found == ((b"OPTIONS", b"a=b"), (b"SLURM_JOB_ID", b"17"))


def test_variables_put_aside_are_restored() -> None:
    """The empty placeholder is replaced, and the renamed variable is gone."""
    given_now = [b"LD_AUDIT=", b"PENSTOCK_GIVEN_LD_AUDIT=/x.so", b"A=1"]
    assert podenv.entering(given_now) == ((b"A", b"1"), (b"LD_AUDIT", b"/x.so"))


@pytest.mark.parametrize("shell", ["dash", "bash"])
@pytest.mark.parametrize("name", ["OPTIND", "HISTCMD", "UID", "PPID", "RANDOM", "LINENO", "IFS", "SECONDS"])
def test_no_variable_ends_the_shell(shell: str, name: str) -> None:
    """Some accept only numbers, and a shell exits on anything else."""
    if shutil.which(shell) is None:
        pytest.skip(f"there is no {shell}")
    lines = podenv.export_lines(podenv.entering([f"{name}=a b".encode(), b"OTHER=x"]))
    argv = (shell, "-c", lines.decode() + 'printf %s "$OTHER"')
    done = subprocess.run(argv, capture_output=True, text=True, timeout=10, check=False)
    assert (done.returncode, done.stdout) == (0, "x")
