"""What of the submit environment enters the pod, read back by a real shell."""

from __future__ import annotations

import shutil
import subprocess

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from penstock.render import podenv

BYTES = st.binary(max_size=60).map(lambda value: value.replace(b"\0", b"0"))


def shell(text: bytes) -> bytes:
    """What /bin/sh prints when it runs the text."""
    result = subprocess.run(["/bin/sh"], input=text, capture_output=True, timeout=60, check=True)
    return result.stdout


@settings(max_examples=50, deadline=None)
@given(st.lists(BYTES, min_size=1, max_size=5))
def test_arguments_survive_the_shell(words: list[bytes]) -> None:
    """Quotes, newlines, dollars and bytes that are no text come back unchanged."""
    printed = shell(podenv.set_line(words) + b"printf '%s\\0' \"$@\"\n")
    assert printed.split(b"\0")[:-1] == words


@settings(max_examples=50, deadline=None)
@given(BYTES)
def test_values_survive_the_shell(value: bytes) -> None:
    """An exported value is the same in a child process."""
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
def test_what_belongs_to_the_host_stays_there(name: bytes) -> None:
    """The image's own PATH and HOME are right; names no shell can export are left out."""
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
    """ALL and its like are not names, and a quoted comma does not start one."""
    assert podenv.exported_by_name(export) == names


def test_a_host_variable_enters_when_it_is_named() -> None:
    """PATH by name comes along, HOME beside it does not."""
    given = [b"PATH=/mine", b"HOME=/home/a", b"SLURM_EXPORT_ENV=ALL,PATH=/mine"]
    names = [name for name, _ in podenv.entering(given)]
    assert names == [b"PATH", b"SLURM_EXPORT_ENV"]


@pytest.mark.parametrize("name", [b"CUDA_VISIBLE_DEVICES", b"SLURM_CONF", b"ROCR_VISIBLE_DEVICES"])
def test_some_never_enter(name: bytes) -> None:
    """A container counts its GPUs from 0: the node's numbers would hide them, even when named."""
    assert podenv.entering([name + b"=3", b"SLURM_EXPORT_ENV=" + name]) == ((b"SLURM_EXPORT_ENV", name),)


@given(st.binary(max_size=80))
def test_no_export_list_breaks_it(export: bytes) -> None:
    """Whatever is in SLURM_EXPORT_ENV, reading it ends with names that hold no comma outside quotes."""
    for name in podenv.exported_by_name(export):
        assert b"=" not in name


def test_the_rest_comes_along_in_order() -> None:
    """Users' and Slurm's variables enter; a value may hold an equals sign."""
    found = podenv.entering([b"SLURM_JOB_ID=17", b"OPTIONS=a=b", b"PATH=/bin"])
    assert found == ((b"OPTIONS", b"a=b"), (b"SLURM_JOB_ID", b"17"))


def test_what_job_submit_put_aside_has_its_name_again() -> None:
    """The empty stand-in is replaced, and nothing of the detour is left."""
    given_now = [b"LD_AUDIT=", b"PENSTOCK_GIVEN_LD_AUDIT=/x.so", b"A=1"]
    assert podenv.entering(given_now) == ((b"A", b"1"), (b"LD_AUDIT", b"/x.so"))


@pytest.mark.parametrize("shell", ["dash", "bash"])
@pytest.mark.parametrize("name", ["OPTIND", "HISTCMD", "UID", "PPID", "RANDOM", "LINENO", "IFS", "SECONDS"])
def test_no_variable_ends_the_shell_that_reads_it(shell: str, name: str) -> None:
    """Some take numbers only, and a shell ends when it is tried with anything else."""
    if shutil.which(shell) is None:
        pytest.skip(f"there is no {shell}")
    lines = podenv.export_lines(podenv.entering([f"{name}=a b".encode(), b"OTHER=x"]))
    argv = (shell, "-c", lines.decode() + 'printf %s "$OTHER"')
    done = subprocess.run(argv, capture_output=True, text=True, timeout=10, check=False)
    assert (done.returncode, done.stdout) == (0, "x")
