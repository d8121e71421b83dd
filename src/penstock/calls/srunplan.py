"""What becomes of an srun typed in a pod of a job.

The real srun makes the step, from an allow-list of the user's options and variables. Whatever would run or
open something of the user's on a Slurm node is done in the pods instead, or refused with a sentence.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Final

from penstock import wellknown
from penstock.calls import (
    exports,
    getopt,
    multiprog,
    nodefiles,
    outcomes,
    outputpatterns,
    settings,
    srunoptions,
)
from penstock.calls.outcomes import Answer, Files, Job, Run, Step, Wanted
from penstock.model import numbers

_WRONG_WORDS: Final = 255
_ENDING: Final = ("help", "usage", "version", "autocomplete")
_NODES: Final = ("nodelist", "exclude")
_NAMES_ARRAY_TASKS: Final = (23, 2)  # first release in which --jobid takes 12_3
_STARTED_BY_OTHERS: Final = re.compile(rb"pmi\w*|cray_shasta")
_NOT_STARTED: Final = (b"none", b"openmpi")
_JOB_ID: Final = re.compile(rb"\s*\+?0*(\d+)")
_SAYS_WHEN_IGNORED: Final = {
    "begin": b"--begin is ignored because nodes are already allocated.",
    "core-spec": b"Ignoring --core-spec value for a job step within an existing job. "
    b"Set specialized cores at job allocation time.",
}


def plan(
    words: Sequence[bytes],
    environment: Mapping[bytes, bytes],
    job: Job,
    files: Files | None = None,
) -> Step | Answer | Run | Wanted:
    """Plan the call with these words, without srun's own name, in this environment."""
    table = srunoptions.table(job.release)
    parsed = getopt.parse(words, table)
    for given in parsed.settings:
        if given.option.name in _ENDING:
            return _plain(_word(given.option.name, given.value))
    if parsed.wrong:
        text = b'srun: %b\nTry "srun --help" for more information\n' % parsed.wrong
        return Answer(stderr=text, code=_WRONG_WORDS)
    asked = settings.Settings(parsed.settings, environment, table, job.cluster)
    try:
        return _Call(asked, parsed.command, environment, job, files or {}).planned()
    except outcomes.Ended as ended:
        return ended.outcome


class _Call:
    def __init__(
        self,
        asked: settings.Settings,
        command: tuple[bytes, ...],
        environment: Mapping[bytes, bytes],
        job: Job,
        files: Files,
    ) -> None:
        self._asked = asked
        self._command = command
        self._environment = environment
        self._job = job
        self._files = files
        self._error_code = settings.leading_number(environment.get(b"SLURM_EXIT_ERROR", b"")) % 256 or 1
        self._notes: list[bytes] = []

    def planned(self) -> Step | Run:
        self._refuse()
        if self._asked.value("mpi") == b"list":
            return _plain(b"--mpi=list")
        if not self._command or self._command[0] == b":":
            raise outcomes.Ended(Answer(stderr=b"srun: fatal: No command given to execute.\n", code=1))
        nodes = nodefiles.Nodes(self._asked, self._environment, self._error_code)
        configuration = self._configuration(nodes.wanted())
        node_words = nodes.words(self._files)
        stdin, stdout, stderr, stream_words = self._streams()
        self._check_job()
        self._check_mpi()
        self._check_ignored()
        name = self._command[0].rpartition(b"/")[2]
        return Step(
            argv=(
                *self._fixed_words(name),
                *self._native_words(),
                *node_words,
                *([b"--ntasks=%d" % configuration.tasks] if configuration else []),
                *stream_words,
            ),
            environment=self._asked.native_variables() | {b"SLURM_JOB_ID": b"%d" % self._job.id},
            program=self._command[1:] if configuration else self._command,
            multi_prog=configuration,
            task_environment=self._task_environment(name),
            chdir=self._asked.value("chdir") or b"",
            stdin=stdin,
            stdout=stdout,
            stderr=stderr,
            unbuffered=self._asked.value("unbuffered") is not None or self._asked.value("pty") is not None,
            notes=tuple(b"srun: %b\n" % note for note in self._notes),
        )

    def _refuse(self) -> None:
        refusals = self._asked.refusals()
        refused = [f"{name} does not work in pods: {note}".encode() for name, note in refusals]
        if b":" in self._command[1:]:
            refused.append(
                b"':' does not work in pods: a job has one component there; start one srun for each part"
            )
        if refused:
            raise outcomes.error(*refused, code=self._error_code)

    def _configuration(self, wanted: list[bytes]) -> multiprog.Configuration | None:
        """--multi-prog's file, which srun reads before those with names of nodes."""
        by_file = self._asked.value("multi-prog") is not None
        wanted = [self._command[0], *wanted] if by_file else wanted
        missing = tuple(name for name in dict.fromkeys(wanted) if name not in self._files)
        if missing:
            raise outcomes.Ended(Wanted(missing))
        if not by_file:
            return None
        name = self._command[0]
        content = self._files[name]
        if isinstance(content, outcomes.Unreadable):
            raise outcomes.error(b"Could not open multi_prog config file " + name, code=self._error_code)
        tasks = self._asked.value("ntasks")
        try:
            return multiprog.read(content, name, numbers.natural(tasks) if tasks else None, self._job.release)
        except multiprog.Invalid as invalid:
            raise outcomes.error(*invalid.args, code=self._error_code) from None

    def _streams(
        self,
    ) -> tuple[outputpatterns.Stream, outputpatterns.Stream, outputpatterns.Stream, list[bytes]]:
        """The tasks' streams, and what the real srun is told so that it neither reads nor opens for them.

        Whatever may become a file for stderr has a channel of its own: srun's messages share its stderr.
        """
        names = [self._asked.value(name) for name in ("input", "output", "error")]
        if self._asked.of_line("pty") is not None and any(name is not None for name in names):
            raise outcomes.error(
                b"--error/--input/--output are incompatible with --pty", code=self._error_code
            )
        mode = (self._asked.value("open-mode") or b"").lower()
        append = mode.startswith(b"a") or (self._job.appends and not mode)
        stdin = outputpatterns.stream(names[0])
        stdout = outputpatterns.stream(names[1], append=append)
        stderr = stdout if names[2] is None else outputpatterns.stream(names[2], append=append)
        words = [b"--input=none"] if stdin.kind in ("nothing", "each") else []
        if stderr.kind == "file" and stderr == stdout:
            words.append(b"--error=/dev/stdout")
        elif stderr.kind in ("file", "number"):
            words.append(b"--error=" + wellknown.SRUN_TASK_ERRORS.encode())
        return stdin, stdout, stderr, words

    def _check_job(self) -> None:
        asked = self._asked.value("jobid")
        if asked is None:
            text = (
                b"SLURM_JOB_ID is not set, and srun in a pod cannot ask for a new allocation; use --jobid=%d"
            )
            raise outcomes.error(text % self._job.id, code=self._error_code)
        match = _JOB_ID.fullmatch(asked)
        if match and numbers.natural(match[1]) == self._job.id:
            return
        if self._job.release >= _NAMES_ARRAY_TASKS:
            array, task = (
                self._environment.get(b"SLURM_ARRAY_" + name, b"") for name in (b"JOB_ID", b"TASK_ID")
            )
            if array and asked == b"%b_%b" % (array, task):
                return
        elif not match:
            raise outcomes.error(b'Invalid numeric value "%b" for --jobid.' % asked, code=1)
        shown = match[1] if match else b"%d" % (settings.leading_number(asked) % 2**32)
        raise outcomes.error(
            b"Unable to confirm allocation for job %b: Invalid job id specified" % shown,
            end=b"srun: Check SLURM_JOB_ID environment variable. Expired or invalid job %b\n" % shown,
            code=self._error_code,
        )

    def _check_mpi(self) -> None:
        kind = self._asked.value("mpi")
        if not kind or kind.lower() in _NOT_STARTED:
            return
        if not _STARTED_BY_OTHERS.fullmatch(kind):
            text = b"Invalid MPI type '%b', --mpi=list for acceptable types" % kind
            raise outcomes.error(text, code=self._error_code)
        if self._asked.value("external-launcher") is None:
            self._notes.append(
                b"penstock: tasks in pods have no PMI, so --mpi=%b is as none; start MPI programs with mpirun"
                % kind
            )

    def _check_ignored(self) -> None:
        for name, text in _SAYS_WHEN_IGNORED.items():
            if self._asked.of_line(name) is not None:
                self._notes.append(b"error: " + text)

    def _fixed_words(self, name: bytes) -> list[bytes]:
        words = [b"--jobid=%d" % self._job.id, b"--mpi=none", b"--chdir=/"]
        if self._asked.of_line("job-name") is None:
            words.append(b"--job-name=" + name)
        if self._asked.of_line("pty") is not None:
            words.append(b"--pty")  # without a value, which would be a descriptor of the real srun
        return words

    def _native_words(self) -> list[bytes]:
        return [
            _word(given.option.name, given.value)
            for given in self._asked.given
            if given.option.treatment == "native" and given.option.key not in _NODES
        ]

    def _task_environment(self, name: bytes) -> dict[bytes, bytes]:
        """The caller's, as exported. The real srun's own SLURM_JOB_NAME is that of the step."""
        export = self._asked.value("export")
        found, everything = exports.selected(self._environment, export)
        improper = exports.improper(export or b"")
        if improper:
            self._notes.append(b"error: Improperly formed environment variable (%b)" % improper)
        of_line = self._asked.of_line("job-name")
        if of_line is not None:
            found[b"SLURM_JOB_NAME"] = of_line
        else:
            found.setdefault(b"SLURM_JOB_NAME", name)
        if everything:
            found.setdefault(b"SRUN_DEBUG", b"%d" % self._verbosity())
        return found

    def _verbosity(self) -> int:
        """Slurm's number for what srun logs: 3 are its usual messages."""
        louder = [given.option.name for given in self._asked.given]
        more = settings.leading_number(self._environment.get(b"SLURM_DEBUG", b""))
        return 3 + more + louder.count("verbose") - louder.count("quiet")


def _word(name: str, value: bytes | None) -> bytes:
    return b"--" + name.encode() + (b"" if value is None else b"=" + value)


def _plain(word: bytes) -> Run:
    """The real srun answers with just this word and no environment of the user's; it starts no step."""
    return Run(program="srun", words=(word,))
