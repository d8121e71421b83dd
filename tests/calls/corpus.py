"""The srun calls of real scripts, where they are beside the project."""

from __future__ import annotations

import shlex
from collections.abc import Iterator
from pathlib import Path

import pytest

FOLDER = Path(__file__).parents[2].parent / "shared" / "corpus"
_ENDS = set("();<>|&\n")


def calls() -> list[tuple[str, list[str]]]:
    """Each call's script and words. What a shell would fill in stays as it is, but for the job's own id."""
    if not FOLDER.is_dir():
        pytest.skip("the corpus of real scripts is not beside the project")
    scripts = sorted(path for path in FOLDER.rglob("*") if path.is_file() and path.suffix != ".csv")
    return [(path.name, words) for path in scripts for words in _calls(path.read_text(errors="replace"))]


def _calls(script: str) -> Iterator[list[str]]:
    text = script.replace("\\\n", " ")
    lines = text.splitlines(keepends=True)
    for number, line in enumerate(lines):
        before, srun, after = line.partition("srun ")
        if not srun or "#" in before or (before.strip() and before.rstrip()[-1] not in "(;&|"):
            continue
        yield _words(after + "".join(lines[number + 1 :]))


def _words(text: str) -> list[str]:
    lexer = shlex.shlex(text, posix=True, punctuation_chars="();<>|&\n")
    lexer.whitespace, lexer.commenters, lexer.whitespace_split = " \t", "", True
    words: list[str] = []
    for word in lexer:
        if word and set(word) <= _ENDS:
            break
        words.append(word.replace("$SLURM_JOBID", "17").replace("$SLURM_JOB_ID", "17"))
    return words
