"""Labs for tests: made in a temporary directory and always taken down.

Tests use the real command line.
"""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import os
import pwd
import secrets
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from penstock import errors, wellknown
from penstock.audit import confirmed
from penstock_lab import cache, labcheck, passwd, paths, preparations, shellenv, spec, subprocesses
from penstock_lab.kubernetes import requirements, startlock

PARENT = Path("/tmp")  # noqa: S108 - a lab's path must be short; its name is random
UP_SECONDS = 300
COMMAND_SECONDS = 120
"""Reached only in failures; generous, since the machine may be busy."""
POLL_SECONDS = 0.05
LONGEST_POLL_SECONDS = 0.25
NOT_THE_END = ("REQUEUED", "PENDING")
"""States with an end time, of attempts that were requeued."""
Result = subprocess.CompletedProcess[str]


@dataclass(frozen=True)
class RunningLab:
    """A lab that is up, used as root or as its user."""

    place: paths.LabPaths
    user: str

    @property
    def env(self) -> dict[str, str]:
        """Environment of a root shell after `eval "$(penstock lab env)"`."""
        return self._environment(root=True) | {"HOME": "/root", "USER": "root"}

    @property
    def home(self) -> Path:
        """The user's folder on the NAS."""
        return self.place.nas_home(self.user)

    def run(
        self,
        argv: Sequence[str],
        *,
        timeout: float = COMMAND_SECONDS,
        check: bool = True,
        cwd: Path | None = None,
        stdin: str = "",
    ) -> Result:
        """Run a program as root with the lab's environment."""
        return run(argv, env=self.env, timeout=timeout, check=check, cwd=cwd or self.place.nas, stdin=stdin)

    def run_as_user(
        self,
        argv: Sequence[str],
        *,
        user: str = "",
        timeout: float = COMMAND_SECONDS,
        check: bool = True,
        cwd: Path | None = None,
        stdin: str = "",
    ) -> Result:
        """Run a program as the lab's user (or another one), in that user's folder on the NAS."""
        entry = pwd.getpwnam(user or self.user)
        home = self.place.nas_home(entry.pw_name)
        env = self._environment(root=False, user=entry.pw_name) | {"HOME": str(home), "USER": entry.pw_name}
        return run(
            argv, env=env, timeout=timeout, check=check, cwd=cwd or home, stdin=stdin, user=entry.pw_name
        )

    def sbatch(self, script: str, *options: str, user: str = "", cwd: Path | None = None) -> str:
        """Submit a script as the lab's user; returns the job id."""
        argv = ("sbatch", "--parsable", *options)
        return self.run_as_user(argv, user=user, cwd=cwd, stdin=script).stdout.strip().partition(";")[0]

    def job(self, job_id: str) -> dict[str, str]:
        """Fields of `scontrol show job`, such as JobState, ExitCode, Reason."""
        text = self.run(("scontrol", "show", "job", "--detail", "--oneliner", job_id)).stdout.split("\n")[0]
        return dict(word.split("=", 1) for word in text.split() if "=" in word)

    def wait_for(self, job_id: str, *states: str, timeout: float = 120) -> dict[str, str]:
        """Wait until the job is in one of the states; raises TimeoutError with its actual state."""
        for last in looks(timeout):
            job = self.job(job_id)
            if job["JobState"] in states:
                return job
            if last:
                raise TimeoutError(f"job {job_id} is {job['JobState']} ({job.get('Reason')}), not {states}")
        raise AssertionError("unreachable: looks() ends with True")

    def accounted(self, job_id: str, fields: str = "State,ExitCode", *, timeout: float = 120) -> list[str]:
        """The fields of the job's accounting record, once it has ended; requeued attempts do not count."""
        argv = (
            "sacct",
            "--noheader",
            "--parsable2",
            "--allocations",
            f"--jobs={job_id}",
            f"--format=End,State,{fields}",
        )
        for _ in looks(timeout):
            end, _, rest = self.run(argv).stdout.strip().partition("|")
            state, *values = rest.split("|")
            if end not in ("", "Unknown") and state not in NOT_THE_END:
                return values
        raise TimeoutError(f"job {job_id} has not ended in the accounting")

    def penstock(self, *arguments: str, check: bool = True, timeout: float = UP_SECONDS) -> Result:
        argv = (sys.executable, "-m", "penstock", *arguments)
        return run(argv, env=self.env, timeout=timeout, check=check, cwd=Path("/"))

    def check(self, *, patience: Mapping[str, float] = confirmed.PATIENCE) -> None:
        """Raises AssertionError if an invariant is violated or cannot be checked."""
        asyncio.run(labcheck.check(self.env, patience))

    def _environment(self, *, root: bool, user: str = "") -> dict[str, str]:
        path = f"{self.place.bin}:{subprocesses.search_path()}"
        return {"PATH": path, "LC_ALL": "C.UTF-8", **shellenv.variables(self.place, root=root, user=user)}


def run(
    argv: Sequence[str],
    *,
    env: Mapping[str, str],
    timeout: float,
    check: bool,
    cwd: Path,
    stdin: str = "",
    user: str | None = None,
) -> Result:
    """Run a program; with `check`, a failure raises AssertionError with its output."""
    result = subprocess.run(
        [str(word) for word in argv],
        input=stdin,
        capture_output=True,
        text=True,
        timeout=timeout,
        env=dict(env),
        cwd=cwd,
        check=False,
        **passwd.identity(user),
    )
    if check and result.returncode != 0:
        raise AssertionError(f"{argv} ended with {result.returncode}:\n{result.stdout}\n{result.stderr}")
    return result


def until(holds: Callable[[], object], *, seconds: float = 120) -> None:
    """Wait until `holds` returns true; raises AssertionError after `seconds`."""
    if not any(holds() for _ in looks(seconds)):
        raise AssertionError(f"condition not true after {seconds:g} s")


def looks(seconds: float) -> Iterator[bool]:
    """Yields when to check again; True the last time.

    Checks usually start a program, so they are frequent at first and rarer later, to leave the CPU to what is
    waited for.
    """
    deadline = time.monotonic() + seconds
    pause = POLL_SECONDS
    while time.monotonic() < deadline:
        yield False
        time.sleep(pause)
        pause = min(pause * 1.2, LONGEST_POLL_SECONDS)
    yield True


def missing() -> str:
    """Why no lab can be made here; empty if one can."""
    if os.geteuid() != 0:
        return "a lab needs root"
    try:
        preparations.require_programs()
        if kubernetes() in (spec.REAL, spec.KWOK):
            requirements.require(os.environ)
    except errors.LabError as error:
        return f"{error.message} ({error.hint})"
    return ""


def kubernetes() -> str:
    """The cluster that tests use: a value of `penstock lab up --kubernetes`."""
    return os.environ.get(wellknown.ENV_TEST_KUBERNETES) or spec.DEV


def new_place() -> paths.LabPaths:
    """Paths of a new lab with a unique name."""
    return paths.LabPaths(PARENT / f"penstock-t{secrets.token_hex(4)}")


def lab_command(
    place: paths.LabPaths, *arguments: str, check: bool = True, before: Sequence[str] = (), **variables: str
) -> Result:
    """Run `penstock lab …` as root on this lab, without variables of the caller's lab; `before` may be a
    wrapper program.
    """
    kept = {name: value for name, value in os.environ.items() if name not in ("SUDO_USER", wellknown.ENV_LAB)}
    argv = (*before, sys.executable, "-m", "penstock", "lab", *arguments, "--dir", str(place.directory))
    return run(argv, env=kept | variables, timeout=UP_SECONDS, check=check, cwd=Path("/"))


def up(place: paths.LabPaths, *options: str) -> RunningLab:
    """Bring a lab up through the command line."""
    name = place.directory.name.removeprefix("penstock-")
    lab_command(place, "up", "--name", name, "--kubernetes", kubernetes(), *versions(), *options)
    return RunningLab(place=place, user=spec.load(place).user)


def versions() -> Iterator[str]:
    """Options for other than the default versions of Slurm and Kubernetes."""
    options = {
        "--slurm": wellknown.ENV_TEST_SLURM,
        "--kubernetes-version": wellknown.ENV_TEST_KUBERNETES_VERSION,
    }
    for option, variable in options.items():
        if os.environ.get(variable):
            yield from (option, os.environ[variable])


@contextlib.contextmanager
def temporary_lab(*options: str) -> Iterator[RunningLab]:
    """A lab that exists within the block."""
    place = new_place()
    try:
        with _its_turn(options):
            running = up(place, *options)
        yield running
    finally:
        lab_command(place, "down", "--force")


def _its_turn(options: Sequence[str]) -> contextlib.AbstractContextManager[None]:
    """With real kubelets, wait for enough inotify instances: test processes run in parallel."""
    if kubernetes() != spec.REAL:
        return contextlib.nullcontext()
    named = dict(itertools.pairwise(options)).get("--nodes")
    nodes = int(named) if named else spec.DEFAULT_NODES
    return startlock.turn(cache.root(os.environ) / "tests.lock", nodes)
