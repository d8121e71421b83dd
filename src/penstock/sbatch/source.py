"""Finds the directives of a script, and what makes sbatch refuse the whole script.

Directives end at the first line that is neither blank nor a comment. Directives after that line, and lines
that are almost one (`# SBATCH`, `##SBATCH`, `#sbatch`, `#k8s_image=`), are silently ignored; they are
collected here to be reported.
"""

from __future__ import annotations

import itertools
import re
from typing import Final

import msgspec

from penstock.sbatch import lexer
from penstock.sbatch.diagnostics import Place, Report
from penstock.sbatch.patterns import Pattern

MAGIC: Final = "#SBATCH"
OLD_MAGIC: Final = "#SLURM"
K8S_MAGIC: Final = "#K8S_"
MAX_SCRIPT_BYTES: Final = 4 * 1024 * 1024
"""slurmctld's default max_script_size; larger scripts are not parsed."""

MOST_DIRECTIVES: Final = 10_000
"""More than people write."""

_COMMAND = Pattern(r"^[ \t\v\f\r]*[^ \t\n\v\f\r#]", re.MULTILINE)
_DIRECTIVE = Pattern(r"^#(?:SBATCH|SLURM|K8S_)[^\n]*", re.MULTILINE)
_LATE = Pattern(r"^#(?:SBATCH|SLURM|K8S_)(?=[ \t\-A-Z])[^\n]*", re.MULTILINE)
_FOREIGN = Pattern(r"^#(?:PBS|BSUB)[^\n]*", re.MULTILINE)
_ALMOST = Pattern(
    r"^[ \t]*#[ \t#]*(?:SBATCH|SBTACH|SBACTH|SBATHC|SBATC|SBACH|SABTCH|BATCH)[ \t]+-{1,2}[A-Z][^\n]*",
    re.MULTILINE | re.IGNORECASE,
)
_ALMOST_K8S = Pattern(
    r"^[ \t]*#[ \t#]*K8S[_ \t\-][ \t]*[A-Z][A-Z_\-]*[ \t]*=[^\n]*", re.MULTILINE | re.IGNORECASE
)


class Line(msgspec.Struct, frozen=True):
    """`number` counts from 1."""

    number: int
    text: str


class Script(msgspec.Struct, frozen=True):
    """The parts of a script; bytes of `text` that are not UTF-8 are kept as surrogates."""

    text: str
    interpreter: str = ""
    directives: tuple[Line, ...] = ()
    k8s: tuple[Line, ...] = ()
    almost: tuple[Line, ...] = ()
    late: tuple[Line, ...] = ()
    foreign: tuple[Line, ...] = ()
    first_command: Line = Line(0, "")


def read(data: bytes, report: Report) -> Script:
    """Parse the script; report what makes sbatch refuse it as a whole."""
    fatal = _unreadable(data, report)
    if fatal and (b"\0" in data or len(data) > MAX_SCRIPT_BYTES):
        return Script("")
    text = data.decode("utf-8", "surrogateescape")
    if not text.strip(lexer.BLANK):
        return Script(text)
    return _scan(text.replace("\r\n", "\n") if "\r\n" in text else text, report)


def _unreadable(data: bytes, report: Report) -> bool:
    """Report problems of the bytes as such; True if there are any."""
    before = len(report.diagnostics)
    top = Place(1, 1)
    if not data.strip(lexer.BLANK.encode()):
        report.error(top, "empty-script", f"the script {'contains only blanks' if data else 'is empty'}")
        return True
    if len(data) > MAX_SCRIPT_BYTES:
        message = "the script has more than 4 MiB, slurmctld's default limit"
        report.error(top, "script-too-large", message, "keep data in files")
    if b"\0" in data:
        place = _place(data, data.index(b"\0"))
        report.error(place, "nul-byte", "the script contains a NUL byte", "is this a binary file?")
    if not data.startswith(b"#!"):
        _no_interpreter(data, report)
    if b"\r\n" in data:
        place = _place(data, data.index(b"\r\n"))
        message = "DOS line breaks (CRLF): sbatch refuses the whole script"
        report.error(place, "dos-line-breaks", message, "save it with Unix line breaks (LF), or use dos2unix")
    return len(report.diagnostics) > before


def _no_interpreter(data: bytes, report: Report) -> None:
    code, message = "missing-shebang", "the first line does not start with #!"
    hint = "begin with an interpreter, for instance #!/bin/bash"
    if data.startswith(b"\xef\xbb\xbf#!"):
        code, message = "byte-order-mark", "there is a byte order mark (BOM) before #!"
        hint = "save as UTF-8 without BOM"
    elif data.lstrip(lexer.BLANK.encode()).startswith(b"#!"):
        hint = "remove what is before the #!"
    report.error(Place(1, 1), code, message, hint)


def _place(data: bytes, offset: int) -> Place:
    start = data.rfind(b"\n", 0, offset) + 1
    return Place(data.count(b"\n", 0, offset) + 1, offset - start + 1)


def _scan(text: str, report: Report) -> Script:
    first = _COMMAND.search(text)
    end = first.start() if first else len(text)
    header = text[:end]
    command = Line(0, "")
    if first:
        command = Line(text.count("\n", 0, end) + 1, text[end : text.find("\n", end) % (len(text) + 1)])
    marked = _all(_DIRECTIVE, header, 0, 1)
    if len(marked) > MOST_DIRECTIVES:
        message = f"{len(marked)} directives are more than {MOST_DIRECTIVES}"
        report.error(Place(marked[MOST_DIRECTIVES].number, 1), "too-many-directives", message)
        return Script(text, interpreter=_interpreter(text), first_command=command)
    return Script(
        text=text,
        interpreter=_interpreter(text),
        directives=tuple(line for line in marked if not line.text.startswith(K8S_MAGIC)),
        k8s=tuple(line for line in marked if line.text.startswith(K8S_MAGIC)),
        almost=_almost(header),
        late=_late(text, end, command.number) if first else (),
        foreign=_all(_FOREIGN, text, 0, 1, MOST_DIRECTIVES) if "\n#PBS" in text or "\n#BSUB" in text else (),
        first_command=command,
    )


def _almost(header: str) -> tuple[Line, ...]:
    found = _all(_ALMOST, header, 0, 1, MOST_DIRECTIVES)
    if "8S" in header or "8s" in header:
        found += _all(_ALMOST_K8S, header, 0, 1, MOST_DIRECTIVES)
    return tuple(line for line in found if not line.text.startswith((MAGIC, K8S_MAGIC)))


def _interpreter(text: str) -> str:
    first, _, _ = text.partition("\n")
    return first[2:].strip(lexer.BLANK) if first.startswith("#!") else ""


def _late(text: str, start: int, number: int) -> tuple[Line, ...]:
    if not any(text.find(mark, start) >= 0 for mark in ("\n#SBATCH", "\n#K8S_", "\n#SLURM")):
        return ()
    return _all(_LATE, text, start, number)


def _all(pattern: Pattern, text: str, start: int, number: int, most: int | None = None) -> tuple[Line, ...]:
    """Lines that match from `start`, the beginning of line `number`; at most `most`."""
    found = []
    counted = start
    for match in itertools.islice(pattern.finditer(text, start), most):
        number += text.count("\n", counted, match.start())
        counted = match.start()
        found.append(Line(number, match.group()))
    return tuple(found)
