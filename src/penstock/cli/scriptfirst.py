"""Commands that take a script and options of sbatch behind it, which are nothing to click."""

from __future__ import annotations

import itertools

import click

from penstock import errors

OWN = ("--format", "--site", "--slurm")
"""Options of ours; sbatch has none of these names."""


class ScriptFirst(click.Command):
    """Options of sbatch come after the script, and are nothing to click: of -Jhello it would take the -h."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        return super().parse_args(ctx, _in_order(args))


def _in_order(args: list[str]) -> list[str]:
    """Our own options first, wherever they were written; behind the `--` the script and sbatch's options."""
    own: list[str] = []
    rest: list[str] = []
    words = iter(args)
    for word in words:
        name, equals, _ = word.partition("=")
        if word in ("-h", "--help"):
            return ["--help"]
        if name in OWN:
            value = [] if equals else list(itertools.islice(words, 1))
            if not equals and not value:
                raise click.BadOptionUsage(name, f"Option {name!r} requires an argument.")
            own += [word, *value]
        elif word == "--" and not rest:
            rest.extend(words)
        elif not rest and word.startswith("-") and word != "-":
            hint = "Options of sbatch come after the script, as in: penstock explain job.sh -N4"
            raise errors.UsageError(f"{word} is no option of penstock explain", hint=hint)
        else:
            rest.append(word)
    return [*own, "--", *rest]
