"""`--help` of every command shows valid examples."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator

import click
import pytest

from penstock.cli import group

CALL = re.compile(r"(?:^|\$\(|sudo )(penstock [^#|)]*)")


def commands(found: click.Command, *path: str) -> Iterator[tuple[tuple[str, ...], click.Command]]:
    """Every leaf command with its path."""
    if not isinstance(found, click.Group):
        yield path, found
        return
    context = click.Context(found)
    for name in found.list_commands(context):
        inner = found.get_command(context, name)
        assert inner is not None
        yield from commands(inner, *path, name)


ALL = dict(commands(group.cli))


def examples(path: tuple[str, ...]) -> list[str]:
    """The lines below `Examples:` or `Example:`, without the comments to their right."""
    text = re.split("Examples?:\n", ALL[path].help or "")
    lines = text[1].partition("\n\n")[0].splitlines() if len(text) > 1 else []
    return [re.split(r"\s{2,}", line.strip())[0] for line in lines]


@pytest.mark.parametrize("path", ALL, ids=" ".join)
def test_every_command_has_examples(path: tuple[str, ...]) -> None:
    """Of the command itself."""
    assert any(f"penstock {' '.join(path)}" in line for line in examples(path))


@pytest.mark.parametrize("path", ALL, ids=" ".join)
def test_examples_are_valid_calls(path: tuple[str, ...]) -> None:
    """With existing arguments and options."""
    calls = [shlex.split(call.replace('"', ""))[1:] for line in examples(path) for call in CALL.findall(line)]
    own = [words[len(path) :] for words in calls if tuple(words[: len(path)]) == path]
    assert own
    for words in own:
        arguments = [word for word in words if word not in ("<", ">")]
        with ALL[path].make_context(path[-1], arguments, resilient_parsing=False) as context:
            assert context.params.keys() <= {option.name for option in ALL[path].params}
