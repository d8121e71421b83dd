"""The fast path of `penstock validate`, without click, behaves like the normal one."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

import click
import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.cli import quick, validate

WORDS = (
    "a.sh - -- -q --quiet --lint --no-summary --format json text --format=json --format=xml --silence=x"
    " --silence --slurm 24.11 --slurm=23.02 --site=s.json --help -h --unknown -x --lint=1 --quie --silence="
    " --with=-p --with --with=--mem=1G --with="
)
WORD = st.sampled_from([*WORDS.split(), ""])


def _by_click(words: list[str]) -> Mapping[str, object] | None:
    """click's result; None if it refuses the words or prints help."""
    try:
        with validate.validate.make_context("validate", list(words)) as context:
            return context.params
    except (click.ClickException, click.exceptions.Exit):
        return None


@given(words=st.lists(WORD, max_size=6))
def test_same_as_click(words: list[str]) -> None:
    request = quick.parse(words)
    if request is not None:
        assert _by_click(words) == {name: getattr(request, name) for name in quick.Request.__struct_fields__}


def test_other_calls_are_left_to_click() -> None:
    """Help, typos and incomplete options."""
    for words in (["--help"], ["--lnit", "a"], ["--format"], ["--format", "xml", "a"], [], ["-q"]):
        assert quick.parse(words) is None


def _penstock(*words: str, stdout: int = subprocess.PIPE) -> subprocess.CompletedProcess[str]:
    argv = [sys.executable, "-m", "penstock", "validate", *words]
    return subprocess.run(argv, stdout=stdout, stderr=subprocess.PIPE, text=True, timeout=60, check=False)


@pytest.mark.parametrize(
    ("words", "code", "said"),
    [
        (["{good}"], 0, "1 script accepted"),
        (["{bad}"], 1, "error[unknown-option]"),
        (["{bad}", "--help"], 0, "Usage:"),
        (["/nothing/there.sh"], 2, "penstock: cannot read /nothing/there.sh: no such file"),
        ([], 2, "Missing argument"),
        (["--lnit", "{good}"], 2, "No such option"),
        (["--site", "/nothing.json", "{good}"], 2, "cannot read the site file"),
    ],
)
def test_whole_program(tmp_path: Path, words: list[str], code: int, said: str) -> None:
    """Exit code and output."""
    good, bad = tmp_path / "good.sh", tmp_path / "bad.sh"
    good.write_text("#!/bin/sh\n#SBATCH -N1\n")
    bad.write_text("#!/bin/sh\n#SBATCH --foo\n")
    done = _penstock(*(word.format(good=good, bad=bad) for word in words))
    assert done.returncode == code
    assert said in done.stdout + done.stderr
    assert "Traceback" not in done.stderr


def test_closed_pipe(tmp_path: Path) -> None:
    """`penstock validate … | head` ends without a traceback."""
    script = tmp_path / "bad.sh"
    script.write_text("#!/bin/sh\n" + "#SBATCH --foo\n" * 5000)
    reader, writer = os.pipe()
    os.close(reader)
    try:
        done = _penstock(str(script), stdout=writer)
    finally:
        os.close(writer)
    assert (done.returncode, done.stderr) == (1, "")


@pytest.mark.parametrize("style", ["text", "json"])
@pytest.mark.parametrize(
    ("streams", "said"),
    [
        (">&-", "cannot print: standard output is closed"),
        ("> /dev/full", "cannot print: no space left on device"),
        ("<&-", "cannot read -: standard input is closed"),
        ("0> /dev/null", "cannot read -: bad file descriptor"),
    ],
)
def test_unusable_streams(tmp_path: Path, streams: str, said: str, style: str) -> None:
    """One line and exit code 2, without a traceback."""
    name = "-" if streams[0] in "<0" else str(tmp_path / "a.sh")
    (tmp_path / "a.sh").write_text("#!/bin/sh\n#SBATCH --foo\n")
    call = f'exec "$0" -m penstock validate --format {style} "$1" {streams}'
    done = subprocess.run(
        ["/bin/sh", "-c", call, sys.executable, name], capture_output=True, text=True, timeout=60, check=False
    )
    assert (done.returncode, done.stderr) == (2, f"penstock: {said}\n")
    assert done.stdout in ("", "[]\n")


def test_closed_stderr(tmp_path: Path) -> None:
    """The exit code remains."""
    for name, code in ((tmp_path / "none", 2), (tmp_path / "a.sh", 0)):
        (tmp_path / "a.sh").write_text("#!/bin/sh\n")
        call = 'exec "$0" -m penstock validate "$1" 2>&-'
        done = subprocess.run(["/bin/sh", "-c", call, sys.executable, str(name)], timeout=60, check=False)
        assert done.returncode == code


def test_click_is_not_imported(tmp_path: Path) -> None:
    """Nor rich and the rest of the program."""
    script = tmp_path / "good.sh"
    script.write_text("#!/bin/sh\n#SBATCH -N1 --gres=gpu:1 --mem=4G\n#K8S_IMAGE=a/b:c\n")
    code = (
        "import sys\nfrom penstock.cli import main, quick\n"
        f"assert quick.validate([{str(script)!r}]) == 0\n"
        "print(sorted({'click', 'rich', 'asyncio', 'ruamel', 'httpx', 'pathlib'} & set(sys.modules)))"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, timeout=60, check=True
    )
    assert done.stdout.splitlines()[-1] == "[]"
