"""Which of the job's environment enters the pod, and how a shell reads it back byte for byte.

The submit environment is passed, as with plain Slurm, except what describes the host: the image has its own
PATH and libraries. A variable named in --export is passed all the same; sbatch leaves that list in
SLURM_EXPORT_ENV. Never passed: the node's GPU numbers (the container counts its own from 0), and what would
lead to the host's Slurm.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterable

from penstock import wellknown
from penstock.model import launches
from penstock.render import workdirs

_HOST_ONLY = frozenset(
    (
        b"PATH", b"LD_LIBRARY_PATH", b"LD_PRELOAD", b"HOME", b"SHELL", b"PWD", b"OLDPWD", b"SHLVL", b"_",
        b"HOSTNAME", b"MAIL", b"MANPATH", b"TERM", b"TERMCAP", b"DISPLAY", b"XAUTHORITY", b"SSH_AUTH_SOCK",
        b"SSH_CLIENT", b"SSH_CONNECTION", b"SSH_TTY", b"DBUS_SESSION_BUS_ADDRESS", b"TMPDIR",
        b"KUBECONFIG", b"LS_COLORS", b"LESSOPEN", b"LESSCLOSE", b"VIRTUAL_ENV",
    )
)  # fmt: skip
_HOST_PREFIXES = (b"SUDO_", b"XDG_", b"PENSTOCK_", b"penstock_", b"SYSTEMD_")
_NEVER = frozenset(
    (
        b"SLURM_CONF", b"CUDA_VISIBLE_DEVICES", b"NVIDIA_VISIBLE_DEVICES", b"ROCR_VISIBLE_DEVICES",
        b"HIP_VISIBLE_DEVICES", b"ZE_AFFINITY_MASK", b"GPU_DEVICE_ORDINAL",
        *(name.encode() for name in wellknown.SHELLS_OWN),
    )
)  # fmt: skip
_PUT_ASIDE = wellknown.PUT_ASIDE.encode()
_EXPORT_LIST = b"SLURM_EXPORT_ENV"
_SHELL_NAME = re.compile(rb"[A-Za-z_][A-Za-z0-9_]*")
_LISTED = re.compile(rb"(?:[^,\"']|\"[^\"]*\"|'[^']*'|[\"'])+")
"""An entry of an --export list: NAME or NAME=value, in which commas may be quoted."""


def variables(request: launches.LaunchRequest, home: workdirs.Home) -> tuple[tuple[bytes, bytes], ...]:
    """HOME and TMPDIR as slurmd sets them, the submit environment, and then #K8S_ENV."""
    first = {b"HOME": os.fsencode(home.path), b"TMPDIR": workdirs.TMP.encode()}
    own = ((name.encode(), value.encode()) for name, value in request.pod.environment.items())
    return (*(first | dict(entering(request.environment))).items(), *own)


def entering(variables: Iterable[bytes]) -> tuple[tuple[bytes, bytes], ...]:
    """The NAME=value entries that go into the pod, sorted."""
    given = as_submitted(dict(entry.partition(b"=")[::2] for entry in variables))
    named = exported_by_name(given.get(_EXPORT_LIST, b""))
    return tuple(sorted((name, value) for name, value in given.items() if _enters(name, named)))


def as_submitted(variables: dict[bytes, bytes]) -> dict[bytes, bytes]:
    """Undoes the renaming by which job_submit.lua disarmed variables for the launcher."""
    aside = {name: value for name, value in variables.items() if name.startswith(_PUT_ASIDE)}
    back = {name.removeprefix(_PUT_ASIDE): value for name, value in aside.items()}
    return {name: value for name, value in variables.items() if name not in aside} | back


def exported_by_name(export: bytes) -> frozenset[bytes]:
    """The variables that --export names; ALL, NONE and NIL are not names."""
    names = (entry.partition(b"=")[0].strip() for entry in _LISTED.findall(export))
    return frozenset(names) - {b"ALL", b"NONE", b"NIL"}


def _enters(name: bytes, named: frozenset[bytes]) -> bool:
    if name in _NEVER or not _SHELL_NAME.fullmatch(name):
        return False
    return name in named or not (name in _HOST_ONLY or name.startswith(_HOST_PREFIXES))


def quoted(value: bytes) -> bytes:
    """A word that every POSIX shell reads back byte for byte."""
    return b"'" + value.replace(b"'", b"'\\''") + b"'"


def export_lines(pairs: Iterable[tuple[bytes, bytes]]) -> bytes:
    return b"".join(b"export %s=%s\n" % (name, quoted(value)) for name, value in pairs)


def set_line(words: Iterable[bytes]) -> bytes:
    """`set -- …`: the words become the shell's positional parameters."""
    return b"set -- " + b" ".join(quoted(word) for word in words) + b"\n"


def assignments(values: dict[str, bytes]) -> bytes:
    return b"".join(b"%s=%s\n" % (name.encode(), quoted(value)) for name, value in values.items())
