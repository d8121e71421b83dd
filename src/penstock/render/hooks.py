"""The hooks as files, with the site's settings written into them: nothing is looked up at run time."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Mapping
from importlib import resources

from penstock import wellknown
from penstock.hooks import unsafeenv
from penstock.model import releases
from penstock.render import crashhooks

PACKAGE = "penstock_hooks"  # folder of the hooks' modules, next to the programs
MODULES = ("__init__.py", "wire.py", "launch.py", "relay.py", "ask.py", "unsafeenv.py", "waitcomment.py")
ADMIT_SECONDS = 20  # slurmctld keeps the nodes allocated during PrologSlurmctld: requeueing beats a long wait


@dataclasses.dataclass(frozen=True, kw_only=True)
class HookSettings:
    """What hooks know of the site."""

    libexec: str  # folder they are installed in
    socket: str  # penstockd's unix socket
    bridged_partitions: tuple[str, ...]
    default_partition: str
    admit_timeout: int = ADMIT_SECONDS  # how long PrologSlurmctld waits for an answer
    release_timeout: int  # seconds the Epilog waits for the pods' end; below Slurm's PrologEpilogTimeout
    slurm_conf: str
    state_dir: str  # StateSaveLocation, with the jobs' environments
    slurm_commands: str = "/usr/bin"  # searched for squeue first
    root_may_submit: bool = False
    shared_mounts: tuple[str, ...] = ()  # folders mounted in pods under the same path
    missing_workdir: str = "tmp"  # for a working directory outside of them: `refuse` or `tmp`
    crash_points: str = ""  # folder that arms crash points; empty except in labs for tests


@dataclasses.dataclass(frozen=True)
class RenderedFile:
    """A file to install; the name is relative to the target directory."""

    name: str
    content: bytes
    mode: int


def render_hooks(settings: HookSettings) -> tuple[RenderedFile, ...]:
    """The files for libexec, and job_submit.lua, which goes next to slurm.conf."""
    modules = (RenderedFile(f"{PACKAGE}/{name}", content, 0o644) for name, content in _modules(settings))
    return (
        *modules,
        RenderedFile(wellknown.LAUNCHER, _launcher(settings), 0o755),
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


def _launcher(settings: HookSettings) -> bytes:
    words = f"commands={settings.slurm_commands!r}, slurm_conf={settings.slurm_conf!r}"
    return _program("launch", f"main({settings.socket!r}, {words})")


def _prolog(settings: HookSettings) -> bytes:
    """Runs for every job, so it exits before any import if the partition is not bridged."""
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
    """Likewise. An argument means that the site's own Epilog failed, which is noted in every partition."""
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
        "BRIDGED": ",".join(settings.bridged_partitions),
        "SLURM_CONF": settings.slurm_conf,
        "SLURM_COMMANDS": settings.slurm_commands,
        "BATCH_STEP": ",".join(releases.BATCH_STEP_IDS),
    }
    return _filled(name, values)


def _filled(name: str, values: Mapping[str, str]) -> bytes:
    text = _source(name)
    for placeholder, value in values.items():
        text = text.replace(f"@{placeholder}@".encode(), value.encode())
    return text


def _job_submit(settings: HookSettings) -> bytes:
    values = {
        "LAUNCHER": f"{settings.libexec}/{wellknown.LAUNCHER}",
        "DEFAULT_PARTITION": settings.default_partition,
        "ROOT_MAY_SUBMIT": str(settings.root_may_submit).lower(),
        "MARK": wellknown.ADMIN_MARK,
        "PUT_ASIDE": wellknown.PUT_ASIDE,
        "LOADERS": ", ".join(f'"{name}"' for name in unsafeenv.LOADERS),
        "BRIDGED": ", ".join(f'["{name}"] = true' for name in settings.bridged_partitions),
        "SHARED": ", ".join(f'"{path}"' for path in settings.shared_mounts),
        "MISSING_WORKDIR": settings.missing_workdir,
    }
    text = _filled("job_submit.lua", values)
    return crashhooks.armed_lua(text, settings.crash_points) if settings.crash_points else text
