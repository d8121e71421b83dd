"""Only slurm/ runs Slurm's programs; hooks run inside Slurm and are exempt.

A name counts where a program is named: as the first word of a list, or as what is looked up or run. In
messages, as a key, or as a later word (`systemctl restart slurmctld`) it does not.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path, PurePath

import pytest

import penstock

ROOT = Path(penstock.__file__ or "").parent
PROGRAMS = {
    "sacct", "sacctmgr", "salloc", "sattach", "sbatch", "sbcast", "scancel", "scontrol", "scrontab", "sdiag",
    "sinfo", "sprio", "squeue", "sreport", "srun", "sshare", "sstat", "strigger",
    "slurmctld", "slurmd", "slurmdbd", "slurmrestd", "slurmstepd",
}  # fmt: skip
NAMES = "podcommands.py"  # only lists what pods may ask for
RUNNERS = {
    "which", "run", "output", "Popen", "call", "check_call", "check_output", "create_subprocess_exec",
    "execv", "execve", "execvp", "execvpe",
}  # fmt: skip


def named_to_be_run(tree: ast.AST) -> Iterator[ast.Constant]:
    """Constants that name one of Slurm's programs as a program to run."""
    types = [node.slice for node in ast.walk(tree) if isinstance(node, ast.Subscript)]
    for node in ast.walk(tree):
        first: list[ast.expr] = []
        if isinstance(node, ast.List | ast.Tuple) and node not in types:
            first = node.elts[:1]
        elif isinstance(node, ast.Call) and ast.unparse(node.func).rpartition(".")[2] in RUNNERS:
            first = node.args[:1]
        for word in first:
            if isinstance(word, ast.Constant) and PurePath(str(word.value)).name in PROGRAMS:
                yield word


def test_only_one_package_runs_slurms_programs() -> None:
    """Their output is read in one place, with the same locale, timeout and care for users' text."""
    found = {
        f"{path.relative_to(ROOT)}:{word.lineno} {word.value!r}"
        for path in ROOT.rglob("*.py")
        if path.relative_to(ROOT).parts[0] not in ("slurm", "hooks") and path.name != NAMES
        for word in named_to_be_run(ast.parse(path.read_text()))
    }
    assert found == set(), "ask slurm/ instead"


@pytest.mark.parametrize(
    "text",
    [
        "run(('squeue', '--noheader'))",
        "argv = ['/usr/bin/scontrol', 'ping']",
        "argv = ['sacctmgr', *words]",
        "shutil.which('slurmctld')",
        "await asyncio.create_subprocess_exec('scancel', '1')",
    ],
)
def test_program_call_is_detected(text: str) -> None:
    """However it would be run."""
    assert list(named_to_be_run(ast.parse(text, mode="exec")))


@pytest.mark.parametrize(
    "text",
    [
        "restart = ('systemctl', 'restart', 'slurmctld')",
        "{'scontrol': path}",
        "Literal['srun', 'file']",
        "raise Problem('squeue does not answer')",
        "check.add('slurmctld', 'slurmctld answers')",
    ],
)
def test_other_uses_of_a_name_are_ignored(text: str) -> None:
    """Messages, keys and other programs' words are not commands."""
    assert not list(named_to_be_run(ast.parse(text)))
