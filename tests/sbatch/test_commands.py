"""Remarks of `penstock explain` on programs that a script calls."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.sbatch import calledprograms, compiler


def called(body: str, *, head: str = "#!/bin/bash\n#SBATCH -N2\n") -> dict[tuple[str, ...], tuple[int, ...]]:
    """Names and line numbers of found calls."""
    data = (head + body).encode("utf-8", "surrogateescape")
    spec = compiler.compile_script(data).spec
    assert spec is not None
    return {call.names: call.lines for call in calledprograms.calls(data, spec)}


@pytest.mark.parametrize(
    "line",
    [
        "srun hostname",
        "  srun",
        "A=1 B=2 srun -n2 x",
        "time srun x",
        "true && srun x",
        "x=$(srun hostname)",
        "if srun true; then",
        "for i in 1 2; do srun x & done",
        "echo a | srun cat",
        "/usr/bin/srun x",
        "exec srun x;",
        "{ srun x; }",
    ],
)
def test_call_is_found(line: str) -> None:
    """In every command position."""
    assert called(f"{line}\n") == {("srun",): (3,)}


@pytest.mark.parametrize(
    "line",
    [
        "# srun x",
        "echo srun x",
        "srunner x",
        "cat <<EOF\nsrun x\nEOF",
        "export A=srun",
        "python srun.py",
        "my-srun x",
    ],
)
def test_other_words_are_not_calls(line: str) -> None:
    """Comments, arguments and here-documents."""
    assert called(f"{line}\n") == {}


def test_calls_with_the_same_effect_are_one_remark() -> None:
    assert called("sinfo a\nsqueue\nsinfo b\nmodule load x\n") == {
        ("sinfo", "squeue"): (3, 4, 5),
        ("module",): (6,),
    }


def test_launchers_on_one_node_are_accepted() -> None:
    """torchrun does not wait for others if there is one pod."""
    assert called("torchrun x\n") == {("torchrun",): (3,)}
    assert called("torchrun x\n", head="#!/bin/bash\n#SBATCH -N1\n") == {}


@pytest.mark.parametrize(
    "head",
    [
        "#!/usr/bin/env python3\n",
        "#!/bin/bash\n#K8S_COMMAND=sleep 1\n",
        "#!/bin/bash\n#K8S_COMMAND=@entrypoint\n",
    ],
)
def test_other_scripts_are_not_searched(head: str) -> None:
    """Python is not shell, and a script that is replaced by a command does not run."""
    assert called("srun x\n", head=head) == {}


@given(st.text(max_size=300))
def test_any_text_is_accepted(text: str) -> None:
    data = b"#!/bin/sh\n" + text.encode("utf-8", "surrogatepass")
    spec = compiler.compile_script(b"#!/bin/sh\n").spec
    assert spec is not None
    calledprograms.calls(data, spec)
