"""The hooks as files, with what they must know of the site written into them: nothing is read or looked up at
run time.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator
from importlib import resources

from penstock import wellknown
from penstock.hooks import unsafeenv
from penstock.model import releases
from penstock.render import crashhooks

PACKAGE = "penstock_hooks"  # name under which the hooks' modules are installed beside the programs
MODULES = ("__init__.py", "wire.py", "launch.py", "ask.py", "unsafeenv.py", "waitcomment.py")
ADMIT_SECONDS = 20  # Slurm waits for PrologSlurmctld with the nodes taken: better requeue than wait for long


@dataclasses.dataclass(frozen=True, kw_only=True)
class HookSettings:
    """All that hooks know of the site."""

    libexec: str
    """Directory they are installed in."""
    socket: str
    """penstockd's unix socket."""
    bridged_partitions: tuple[str, ...]
    default_partition: str
    admit_timeout: int = ADMIT_SECONDS
    """Seconds PrologSlurmctld waits for an answer."""
    release_timeout: int
    """Seconds the Epilog waits for pods to be gone; below Slurm's PrologEpilogTimeout."""
    slurm_conf: str
    state_dir: str
    """StateSaveLocation: where PrologSlurmctld finds the environments of jobs."""
    slurm_commands: str = "/usr/bin"
    """Where to look for squeue first."""
    root_may_submit: bool = False
    shared_mounts: tuple[str, ...] = ()
    """Folders that pods see under the same path."""
    missing_workdir: str = "tmp"
    """What becomes of a job whose working directory is in none of them: `refuse` or `tmp`."""
    crash_points: str = ""
    """Folder that arms crash points; empty except in labs for tests."""


@dataclasses.dataclass(frozen=True)
class RenderedFile:
    """A file to install: its name below the target directory, its bytes, its mode."""

    name: str
    content: bytes
    mode: int


def render_hooks(settings: HookSettings) -> tuple[RenderedFile, ...]:
    """Everything that goes into libexec, and job_submit.lua, which goes beside slurm.conf."""
    modules = (RenderedFile(f"{PACKAGE}/{name}", content, 0o644) for name, content in _modules(settings))
    return (
        *modules,
        RenderedFile(wellknown.LAUNCHER, _program("launch", f"main({settings.socket!r})"), 0o755),
        RenderedFile(wellknown.PROLOG, _prolog(settings), 0o755),
        RenderedFile(wellknown.EPILOG, _epilog(settings), 0o755),
        RenderedFile(wellknown.TASK_PROLOG, _guard("task_prolog.sh", settings), 0o755),
        RenderedFile(wellknown.SESSION, _guard("session.sh", settings), 0o755),
        RenderedFile(wellknown.JOB_SUBMIT, _job_submit(settings), 0o644),
    )


def _modules(settings: HookSettings) -> Iterator[tuple[str, bytes]]:
    for name in MODULES:
        source = _source(name)
        yield name, crashhooks.armed(source, settings.crash_points) if settings.crash_points else source
    if settings.crash_points:
        yield crashhooks.POINTS, _source(crashhooks.POINTS)


def _source(name: str) -> bytes:
    return resources.files("penstock.hooks").joinpath(name).read_bytes()


HEAD = """\
#!/usr/bin/python3 -IS
import sys

sys.path.insert(0, __file__.rpartition("/")[0])
"""


def _program(module: str, call: str) -> bytes:
    return f"{HEAD}from {PACKAGE} import {module}\n\n{module}.{call}\n".encode()


def _prolog(settings: HookSettings) -> bytes:
    """A hook that Slurm runs for every job: leaves at once, before any import, when the partition is none of
    ours.
    """
    guard = f"import posix\n\nif not {_is_bridged(settings)}:\n    sys.exit(0)\n"
    how = {
        "seconds": settings.admit_timeout,
        "state": settings.state_dir,
        "scontrol": f"{settings.slurm_commands}/scontrol",
        "conf": settings.slurm_conf,
    }
    words = ", ".join(f"{name}={value!r}" for name, value in how.items())
    return f"{HEAD}{guard}from {PACKAGE} import ask\n\nask.admit({settings.socket!r}, {words})\n".encode()


def _epilog(settings: HookSettings) -> bytes:
    """Likewise; a word says that the site's own Epilog has failed, which is noted in every partition."""
    guard = (
        "import posix\n\n"
        f"bridged = {_is_bridged(settings)}\n"
        "failed = len(sys.argv) > 1\n"
        "if not bridged and not failed:\n    sys.exit(0)\n"
    )
    words = f"{settings.socket!r}, bridged=bridged, failed=failed, seconds={settings.release_timeout}"
    return f"{HEAD}{guard}from {PACKAGE} import ask\n\nask.release({words})\n".encode()


def _is_bridged(settings: HookSettings) -> str:
    names = tuple(name.encode() for name in settings.bridged_partitions)
    return f'(posix.environ.get(b"SLURM_JOB_PARTITION") in {names!r})'


def _guard(name: str, settings: HookSettings) -> bytes:
    """A shell script that keeps steps of bridged jobs off the node."""
    values = {
        b"@BRIDGED@": ",".join(settings.bridged_partitions),
        b"@SLURM_CONF@": settings.slurm_conf,
        b"@SLURM_COMMANDS@": settings.slurm_commands,
        b"@BATCH_STEP@": ",".join(releases.BATCH_STEP_IDS),
    }
    text = _source(name)
    for placeholder, value in values.items():
        text = text.replace(placeholder, value.encode())
    return text


def _job_submit(settings: HookSettings) -> bytes:
    values = {
        b"@LAUNCHER@": f"{settings.libexec}/{wellknown.LAUNCHER}",
        b"@DEFAULT_PARTITION@": settings.default_partition,
        b"@ROOT_MAY_SUBMIT@": str(settings.root_may_submit).lower(),
        b"@MARK@": wellknown.ADMIN_MARK,
        b"@PUT_ASIDE@": wellknown.PUT_ASIDE,
        b"@LOADERS@": ", ".join(f'"{name}"' for name in unsafeenv.LOADERS),
        b"@BRIDGED@": ", ".join(f'["{name}"] = true' for name in settings.bridged_partitions),
        b"@SHARED@": ", ".join(f'"{path}"' for path in settings.shared_mounts),
        b"@MISSING_WORKDIR@": settings.missing_workdir,
    }
    text = _source("job_submit.lua")
    for placeholder, value in values.items():
        text = text.replace(placeholder, value.encode())
    return crashhooks.armed_lua(text, settings.crash_points) if settings.crash_points else text
