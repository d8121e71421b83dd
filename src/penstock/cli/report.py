"""Checking a script for the command line and printing what was found, in the manner of a good compiler.

`file:line:column: error[code]: message`, the source line, a caret under the place, and what to do about it.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence

import msgspec

from penstock import errors
from penstock.sbatch import compiler, options
from penstock.sbatch.diagnostics import Diagnostic
from penstock.slurm import installed
from penstock.views import installation

_COLOURS = {"error": 31, "warning": 33, "info": 36}
_GREEN = 32
_WIDEST = 160
UNKNOWN = "unknown-partition"


class Source(msgspec.Struct, frozen=True):
    """A script to check: how it is shown, what the job would be called, its bytes."""

    shown: str
    name: str
    data: bytes


Verdict = tuple[Source, bool, tuple[Diagnostic, ...]]


class Checker(msgspec.Struct, frozen=True):
    """Everything a check depends on but the script itself."""

    context: compiler.Context
    silenced: tuple[str, ...] = ()
    given: tuple[str, ...] = ()
    """Options of the command line that all scripts are checked with."""

    @classmethod
    def load(
        cls,
        *,
        site_file: str | None,
        release: str | None,
        lint: bool,
        silenced: tuple[str, ...],
        accepted: tuple[str, ...] = (),
    ) -> Checker:
        """What the command line's options ask for; the site is read here, once."""
        site = installation.chosen(site_file)
        wanted = release or (site.slurm if site else installed.version()) or options.DEFAULT_RELEASE
        if not wanted.replace(".", "").isdecimal():
            raise errors.UsageError(f"{wanted!r} is no release of Slurm", hint="as in 24.11 or 22.05.8")
        context = compiler.Context(
            release=options.release_of(wanted),
            gres_types=site.gres_types if site else compiler.DEFAULT_CONTEXT.gres_types,
            other_gres=site is None or not site.complete,
            site=site,
            workdir=_here(),
            lint=lint,
            as_root=os.getuid() == 0,
        )
        return cls(context, silenced, _given(accepted, context) if accepted else ())

    def compile(self, source: Source, arguments: Sequence[str] = ()) -> compiler.Compilation:
        done = self._compile(source, arguments, self.context)
        site = self.context.site
        if site is None or site.complete or not any(each.code == UNKNOWN for each in done.diagnostics):
            return done
        from penstock.views import partitions  # here, because Slurm is asked of unknown names only

        known = partitions.completed(site)
        if known is None:
            kept = tuple(each for each in done.diagnostics if each.code != UNKNOWN)
            return msgspec.structs.replace(done, diagnostics=kept)
        return self._compile(source, arguments, msgspec.structs.replace(self.context, site=known))

    def _compile(
        self, source: Source, arguments: Sequence[str], context: compiler.Context
    ) -> compiler.Compilation:
        return compiler.compile_script(
            source.data,
            name=source.name,
            arguments=arguments,
            variables=os.environ,
            context=context,
            silenced=self.silenced,
        )

    def __call__(self, source: Source) -> tuple[bool, tuple[Diagnostic, ...]]:
        done = self.compile(source, self.given)
        return done.ok, done.diagnostics


def _here() -> str:
    try:
        return os.getcwd()  # noqa: PTH109  # pathlib costs every call
    except OSError:  # it was removed
        return ""


def _given(accepted: tuple[str, ...], context: compiler.Context) -> tuple[str, ...]:
    from penstock.sbatch import submitted

    return submitted.understood(accepted, release=context.release, gres_types=context.known_gres)


def print_text(
    verdicts: Sequence[Verdict], *, quiet: bool = False, summary: bool = True, to_stderr: bool = False
) -> None:
    """All findings, then one line that sums up; on standard error where the output is for a program."""
    stream = sys.stderr if to_stderr else sys.stdout
    colour = stream is not None and stream.isatty() and "NO_COLOR" not in os.environ
    said = [
        _render(source, found, colour=colour)
        for source, _, diagnostics in verdicts
        for found in diagnostics
        if not quiet or found.severity == "error"
    ]
    if summary:
        said.append(_summary(verdicts, colour=colour))
    text = "".join(f"{part}\n" for part in said)
    if not to_stderr:
        emit(text)
    elif sys.stderr is not None:
        sys.stderr.write(text)


def emit(said: str | bytes) -> None:
    """To standard output, all of it now: text as the terminal takes it, bytes as they are.

    One that is closed, or cannot take it, is an error in words. A reader who has gone is not: see main.py.
    """
    if sys.stdout is None:
        raise errors.UsageError("cannot print: standard output is closed")
    try:
        if isinstance(said, bytes):
            sys.stdout.buffer.write(said)
        else:
            encoding = sys.stdout.encoding or "utf-8"
            sys.stdout.write(said.encode(encoding, "replace").decode(encoding))
        sys.stdout.flush()
    except BrokenPipeError:
        raise
    except OSError as error:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())  # else Python tries again at its end
        raise errors.UsageError(f"cannot print: {os.strerror(error.errno or 0).lower()}") from error


def complain(text: str) -> None:
    """One line to standard error, if anybody listens there."""
    if sys.stderr is not None:
        sys.stderr.write(f"penstock: {text}\n")


def _render(source: Source, found: Diagnostic, *, colour: bool) -> str:
    where = f"{source.shown}:{found.line}:{found.column}" if found.line else source.shown
    label = _paint(f"{found.severity}[{found.code}]", _COLOURS[found.severity], colour)
    lines = [f"{_paint(printable(where), None, colour)}: {label}: {printable(found.message)}"]
    if found.line:
        lines.extend(_excerpt(source.data, found))
    if found.hint:
        lines.append(f"  {_paint('hint:', _GREEN, colour)} {printable(found.hint)}")
    return "\n".join(lines)


def _excerpt(data: bytes, found: Diagnostic) -> list[str]:
    """The source line, cut to what fits around the place, and the caret under it."""
    line = _line(data, found.line)
    if not line.strip():
        return []
    start = max(0, found.column - 100) if len(line) > _WIDEST else 0
    shown = printable(line[start : start + _WIDEST])
    indent = "".join("\t" if char == "\t" else " " for char in line[start : found.column - 1])
    return [f"  {shown}", f"  {indent}^"]


def _line(data: bytes, number: int) -> str:
    position = 0
    for _ in range(number - 1):
        position = data.find(b"\n", position) + 1
        if not position:
            return ""
    end = data.find(b"\n", position)
    raw = data[position : end if end >= 0 else len(data)][: 64 * 1024]
    return raw.decode("utf-8", "surrogateescape").rstrip("\r")


def printable(text: str) -> str:
    """Control characters and stray bytes must not reach a terminal."""
    if text.isprintable():
        return text
    return "".join(char if char == "\t" or char.isprintable() else "\ufffd" for char in text)


def clean(diagnostics: Sequence[Diagnostic]) -> tuple[Diagnostic, ...]:
    """The same findings with texts that JSON can carry."""
    return tuple(
        found
        if found.message.isprintable() and found.hint.isprintable()
        else msgspec.structs.replace(found, message=printable(found.message), hint=printable(found.hint))
        for found in diagnostics
    )


def _summary(verdicts: Sequence[Verdict], *, colour: bool) -> str:
    rejected = sum(not ok for _, ok, _ in verdicts)
    found = [diagnostic.severity for _, _, diagnostics in verdicts for diagnostic in diagnostics]
    parts = [_count(len(verdicts) - rejected, "script") + " accepted"]
    if rejected:
        parts.append(_paint(f"{rejected} rejected", _COLOURS["error"], colour))
    parts += [_count(found.count(kind), kind) for kind in ("error", "warning") if kind in found]
    return ", ".join(parts)


def _count(number: int, noun: str) -> str:
    return f"{number} {noun}{'' if number == 1 else 's'}"


def _paint(text: str, colour: int | None, enabled: bool) -> str:
    if not enabled:
        return text
    return f"\x1b[1m{text}\x1b[0m" if colour is None else f"\x1b[{colour};1m{text}\x1b[0m"
