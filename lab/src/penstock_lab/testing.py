"""A lab for tests: made in a temporary place, used through a small helper, always taken down.

Tests drive the real command line, so that what they prove is what a person gets.
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

PARENT = Path("/tmp")  # noqa: S108 - a lab's path must be short, and its name is random
UP_SECONDS = 300
COMMAND_SECONDS = 120
"""Only a failure takes that long: tests wait for what they need, on a machine that may be busy."""
POLL_SECONDS = 0.05
LONGEST_POLL_SECONDS = 0.25
NOT_THE_END = ("REQUEUED", "PENDING")
"""What the accounting says, with an end, of an attempt that was sent back."""
Result = subprocess.CompletedProcess[str]


@dataclass(frozen=True)
class RunningLab:
    """A lab that is up, and how to use it as root or as its user."""

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
        """Submit a script as the lab's user; its job id."""
        argv = ("sbatch", "--parsable", *options)
        return self.run_as_user(argv, user=user, cwd=cwd, stdin=script).stdout.strip().partition(";")[0]

    def job(self, job_id: str) -> dict[str, str]:
        """What slurmctld knows of the job, by field name (JobState, ExitCode, Reason, …)."""
        text = self.run(("scontrol", "show", "job", "--detail", "--oneliner", job_id)).stdout.split("\n")[0]
        return dict(word.split("=", 1) for word in text.split() if "=" in word)

    def wait_for(self, job_id: str, *states: str, timeout: float = 120) -> dict[str, str]:
        """Wait until the job is in one of the states; TimeoutError that says in which it is instead."""
        for last in looks(timeout):
            job = self.job(job_id)
            if job["JobState"] in states:
                return job
            if last:
                raise TimeoutError(f"job {job_id} is {job['JobState']} ({job.get('Reason')}), not {states}")
        raise AssertionError("there is always a last look")

    def accounted(self, job_id: str, fields: str = "State,ExitCode", *, timeout: float = 120) -> list[str]:
        """The fields of the job's record in the accounting, once it has ended there: not of an attempt that
        was sent back, which has an end, too.
        """
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
        """Run `penstock` as root against this lab."""
        argv = (sys.executable, "-m", "penstock", *arguments)
        return run(argv, env=self.env, timeout=timeout, check=check, cwd=Path("/"))

    def check(self, *, patience: Mapping[str, float] = confirmed.PATIENCE) -> None:
        """AssertionError with the evidence when Slurm and Kubernetes disagree, or nobody can know."""
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
    """Run a program; with `check`, a failure is an AssertionError that shows what the program said."""
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
    """Wait for something to become true; AssertionError when it does not."""
    if not any(holds() for _ in looks(seconds)):
        raise AssertionError(f"still not so after {seconds:g} s")


def looks(seconds: float) -> Iterator[bool]:
    """When to look again, and whether that is the last time.

    Most looks start a program: often at first, since most things come soon, and seldom once they do not, so
    that waiting leaves the machine to what is waited for.
    """
    deadline = time.monotonic() + seconds
    pause = POLL_SECONDS
    while time.monotonic() < deadline:
        yield False
        time.sleep(pause)
        pause = min(pause * 1.2, LONGEST_POLL_SECONDS)
    yield True


def missing() -> str:
    """Why no lab can be made here; nothing when one can."""
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
    """Which cluster the tests are to run on: what `penstock lab up --kubernetes` understands."""
    return os.environ.get(wellknown.ENV_TEST_KUBERNETES) or spec.DEV


def new_place() -> paths.LabPaths:
    """Paths for a lab that does not exist yet, with a name nobody has."""
    return paths.LabPaths(PARENT / f"penstock-t{secrets.token_hex(4)}")


def lab_command(
    place: paths.LabPaths, *arguments: str, check: bool = True, before: Sequence[str] = (), **variables: str
) -> Result:
    """Run `penstock lab …` as root on this lab, with none of our own settings leaking in; `before` may be a
    program that runs another one.
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
    """Options for the versions that the tests are to run on, where they are not to be the usual ones."""
    options = {
        "--slurm": wellknown.ENV_TEST_SLURM,
        "--kubernetes-version": wellknown.ENV_TEST_KUBERNETES_VERSION,
    }
    for option, variable in options.items():
        if os.environ.get(variable):
            yield from (option, os.environ[variable])


@contextlib.contextmanager
def temporary_lab(*options: str) -> Iterator[RunningLab]:
    """A lab that is there within and gone afterwards, whatever happens."""
    place = new_place()
    try:
        with _its_turn(options):
            running = up(place, *options)
        yield running
    finally:
        lab_command(place, "down", "--force")


def _its_turn(options: Sequence[str]) -> contextlib.AbstractContextManager[None]:
    """Several processes run tests: with real kubelets there is not room for all their labs at any time."""
    if kubernetes() != spec.REAL:
        return contextlib.nullcontext()
    named = dict(itertools.pairwise(options)).get("--nodes")
    nodes = int(named) if named else spec.DEFAULT_NODES
    return startlock.turn(cache.root(os.environ) / "tests.lock", nodes)
