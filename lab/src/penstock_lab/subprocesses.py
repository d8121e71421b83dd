"""Runs external programs to completion; failures become LabError with the program's message."""

from __future__ import annotations

import contextlib
import errno
import os
import subprocess
from collections.abc import Iterator, Mapping, Sequence

from penstock import errors, wellknown
from penstock_lab import interrupts, passwd

SYSTEM_PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
NO_SPACE_TEXTS = ("No space left on device", "Disk is full", "Disk full", "Errcode: 28", "error 28")
FULL_DISK_HINT = "Free some space, or choose another place for the lab with --dir."


def search_path() -> str:
    """PATH for programs of the lab, independent of the caller's."""
    return os.environ.get(wellknown.ENV_LAB_PATH) or SYSTEM_PATH


def base_environment() -> dict[str, str]:
    return {"PATH": search_path(), "LC_ALL": "C", "HOME": "/"}


def run(
    argv: Sequence[str],
    *,
    user: str | None = None,
    environment: Mapping[str, str] | None = None,
    stdin: str = "",
    timeout: float = 60.0,
    check: bool = True,
) -> subprocess.CompletedProcess[str]:
    """Run a program with a clean environment; with `check`, raises LabError if it fails.

    During cleanup it has its own process group: a terminal sends Ctrl-C to all of ours, and a userdel that is
    killed by it would fail the cleanup.
    """
    try:
        result = subprocess.run(
            list(argv),
            input=stdin,
            capture_output=True,
            text=True,
            errors="replace",
            timeout=timeout,
            env=base_environment() | dict(environment or {}),
            cwd="/",
            check=False,
            process_group=0 if interrupts.are_put_off() else None,
            **passwd.identity(user),
        )
    except FileNotFoundError as error:
        raise errors.LabError(
            f"the program {argv[0]} is not installed", hint=package_hint(argv[0])
        ) from error
    except subprocess.TimeoutExpired as error:
        raise errors.LabError(f"{argv[0]} did not end within {timeout:.0f} s") from error
    if check and result.returncode != 0:
        raise failure(argv, result)
    return result


def failure(argv: Sequence[str], result: subprocess.CompletedProcess[str]) -> errors.LabError:
    """A LabError with the program's first line that is marked as an error, else its last line."""
    output = f"{result.stdout}\n{result.stderr}"
    if speaks_of_full_disk(output):
        return full_disk(argv[0])
    lines = [line.strip() for line in output.split("\n") if line.strip()]
    marked = [line for line in lines if "[ERROR]" in line or line.startswith("ERROR:")]
    said = next(iter(marked or lines[-1:]), f"exit code {result.returncode}")
    return errors.LabError(f"{argv[0]} failed: {said}")


def speaks_of_full_disk(text: str) -> bool:
    """Whether a program's output reports a full disk."""
    return any(phrase in text for phrase in NO_SPACE_TEXTS)


def full_disk(who: str) -> errors.LabError:
    return errors.LabError(f"no space left on the lab's disk ({who})", hint=FULL_DISK_HINT)


def from_os_error(error: OSError, *, doing: str) -> errors.LabError:
    if error.errno in (errno.ENOSPC, errno.EDQUOT):
        return full_disk(doing)
    return errors.LabError(f"{doing}: {error}")


@contextlib.contextmanager
def os_errors(*, doing: str) -> Iterator[None]:
    """Convert OSErrors within the block to LabErrors."""
    try:
        yield
    except OSError as error:
        raise from_os_error(error, doing=doing) from error


def package_hint(program: str) -> str:
    package = PACKAGES.get(program, "")
    return f"It is in the Debian package {package}: apt-get install {package}" if package else ""


PACKAGES = {
    "munged": "munge",
    "mariadbd": "mariadb-server-core",
    "mariadb-install-db": "mariadb-server-core",
    "slurmdbd": "slurmdbd",
    "slurmctld": "slurmctld",
    "slurmd": "slurmd",
    "scontrol": "slurm-client",
    "sacctmgr": "slurm-client",
    "openssl": "openssl",
    "useradd": "passwd",
    "userdel": "passwd",
}
