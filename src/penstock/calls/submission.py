"""sbatch in pods: script, folder and environment are the pod's, the options are checked by our own reading.

Only partitions with pods: elsewhere a script runs on a host. The partition that we read is repeated as the
last option, so that a mistake of ours cannot lead to another one.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

import msgspec

from penstock import wellknown
from penstock.calls.outcomes import STDIN, Answer, Files, Job, Run, Unreadable, Wanted, refused
from penstock.calls.requests import Request
from penstock.hooks import unsafeenv
from penstock.model import releases
from penstock.sbatch import compiler, options
from penstock.sbatch.diagnostics import Place, Report
from penstock.sbatch.getopt import Parser, Setting, Token

NAME = "sbatch"
_ONLY_SHOWN = frozenset(("help", "usage", "version"))
_READ_HERE = frozenset(("export-file", "nodefile"))
"""Options whose file sbatch itself reads, on the Slurm node."""
_HOST_LISTS = frozenset(("nodelist", "exclude"))
"""Options whose value is a file if it has a slash in it."""
_NEVER = frozenset(
    (
        *(b"SLURM_CONF", b"SLURM_CONF_SERVER", b"SLURM_CLUSTERS", b"SBATCH_CLUSTERS"),
        *(b"SLURM_WORKING_CLUSTER", b"SLURM_JWT"),
    )
)
_ASIDE = frozenset(
    name.encode() for name in (*unsafeenv.LOADERS, "HOSTALIASES", "LOCALDOMAIN", "RES_OPTIONS", "TMPDIR")
)
"""Variables that change what sbatch itself does; the new job's pod gets them back."""


class _Words(msgspec.Struct, frozen=True):
    """sbatch's command line: options, then a script with its arguments."""

    given: tuple[str, ...]
    settings: tuple[Setting, ...]
    rest: tuple[str, ...]

    def has(self, names: Iterable[str]) -> bool:
        return any(setting.option.key in names for setting in self.settings)

    @property
    def script(self) -> bytes:
        """Path of the script; empty with --wrap."""
        if self.has(("wrap",)):
            return b""
        return _byte(self.rest[0]) if self.rest else STDIN


def plan(request: Request, job: Job, files: Files) -> Answer | Run | Wanted:
    """What becomes of an sbatch."""
    words = _read(request, job)
    if isinstance(words, Answer):
        return words
    if words.has(_ONLY_SHOWN):
        return Run(program=NAME, words=_bytes(words.given))
    if words.script and words.script not in files:
        return Wanted((words.script,))
    content = files[words.script] if words.script else b""
    if isinstance(content, Unreadable):
        return Answer(code=1, stderr=b"sbatch: error: Unable to open file %s\n" % words.script)
    return _submission(request, job, words, content)


def _read(request: Request, job: Job) -> _Words | Answer:
    report, texts = Report(), tuple(map(_text, request.words))
    tokens = [Token(text, Place(origin="command line")) for text in texts]
    parsed = Parser(options.table(releases.text(job.release)), report, "command line").parse(tokens)
    if report.failed:
        return refused(NAME, next(found.message for found in report.diagnostics if found.severity == "error"))
    given = texts[: len(texts) - len(parsed.rest)]
    rest = tuple(token.text for token in parsed.rest)
    return _Words(given[:-1] if given[-1:] == ("--",) else given, parsed.settings, rest)


def _submission(request: Request, job: Job, words: _Words, content: bytes) -> Answer | Run | Wanted:
    name = words.script.rpartition(b"/")[2] if words.script not in (b"", STDIN) else NAME.encode()
    variables = {_text(key): _text(value) for key, value in request.environment.items()}
    compiled = compiler.compile_script(
        content or b"#!/bin/sh\n",
        name=_text(name),
        arguments=words.given,
        variables=variables,
        context=compiler.Context(release=releases.text(job.release), other_gres=True),
    )
    partition = next(
        (one.value for one in reversed(compiled.given) if one.option.key == "partition" and one.value),
        job.default_partition,
    )
    problem = _problem(compiled.given, partition, job)
    if problem or len(compiled.components) > 1:
        return refused(NAME, problem or "there are no heterogeneous jobs in pods")
    is_placed = any(setting.option.key == "chdir" for setting in compiled.given)
    where = () if is_placed else (b"--chdir=" + request.folder,)
    return Run(
        program=NAME,
        words=(*_bytes(words.given), *where, b"--partition=" + _byte(partition)),
        environment=environment(request.environment),
        script=(name, content) if words.script else None,
        arguments=_bytes(words.rest[1:]),
        folder=request.folder,
        umask=request.umask,
    )


def _problem(given: Sequence[Setting], partition: str, job: Job) -> str:
    """Why the job is not submitted, or an empty text."""
    for setting in given:
        name, value = setting.option.name, setting.value or ""
        if setting.option.treatment == "refused":
            return f"--{name} does not work in pods: {setting.option.note}"
        if name in _READ_HERE or (name in _HOST_LISTS and "/" in value):
            return f"--{name} would be read on the Slurm node"
    strange = [name for name in partition.split(",") if name not in job.bridged_partitions]
    if strange:
        known = ", ".join(job.bridged_partitions)
        return f"a pod submits only to partitions with pods ({known}); name one with --partition"
    return ""


def environment(given: Mapping[bytes, bytes]) -> dict[bytes, bytes]:
    """The variables of sbatch itself, which become the job's: those that it would obey are renamed."""
    aside = wellknown.PUT_ASIDE.encode()
    return {
        aside + name if name in _ASIDE else name: value for name, value in given.items() if name not in _NEVER
    }


def _text(data: bytes) -> str:
    return data.decode("utf-8", "surrogateescape")


def _byte(text: str) -> bytes:
    return text.encode("utf-8", "surrogateescape")


def _bytes(texts: Iterable[str]) -> tuple[bytes, ...]:
    return tuple(map(_byte, texts))
