"""Which of the job's environment enters the pod, and how a shell reads it back byte for byte.

The submit environment comes along, as with plain Slurm, minus what describes the host: inside the container
the image's own PATH and libraries are right, and the host's are wrong.
"""

from __future__ import annotations

import re
from collections.abc import Iterable

_HOST_ONLY = frozenset(
    (
        b"PATH", b"LD_LIBRARY_PATH", b"LD_PRELOAD", b"HOME", b"SHELL", b"PWD", b"OLDPWD", b"SHLVL", b"_",
        b"HOSTNAME", b"MAIL", b"MANPATH", b"TERM", b"TERMCAP", b"DISPLAY", b"XAUTHORITY", b"SSH_AUTH_SOCK",
        b"SSH_CLIENT", b"SSH_CONNECTION", b"SSH_TTY", b"DBUS_SESSION_BUS_ADDRESS", b"SLURM_CONF", b"TMPDIR",
        b"KUBECONFIG", b"LS_COLORS", b"LESSOPEN", b"LESSCLOSE", b"VIRTUAL_ENV",
    )
)  # fmt: skip
_HOST_PREFIXES = (b"SUDO_", b"XDG_", b"PENSTOCK_", b"BASH_FUNC_", b"SYSTEMD_")
_SHELL_NAME = re.compile(rb"[A-Za-z_][A-Za-z0-9_]*")


def entering(variables: Iterable[bytes]) -> tuple[tuple[bytes, bytes], ...]:
    """The NAME=value entries that go into the pod, in a stable order."""
    pairs = (entry.partition(b"=")[::2] for entry in variables)
    return tuple(sorted((name, value) for name, value in pairs if _enters(name)))


def _enters(name: bytes) -> bool:
    return (
        bool(_SHELL_NAME.fullmatch(name)) and name not in _HOST_ONLY and not name.startswith(_HOST_PREFIXES)
    )


def quoted(value: bytes) -> bytes:
    """A word that every POSIX shell reads back as exactly these bytes."""
    return b"'" + value.replace(b"'", b"'\\''") + b"'"


def export_lines(pairs: Iterable[tuple[bytes, bytes]]) -> bytes:
    return b"".join(b"export %s=%s\n" % (name, quoted(value)) for name, value in pairs)


def set_line(words: Iterable[bytes]) -> bytes:
    """`set -- …`: the words become the shell's positional parameters."""
    return b"set -- " + b" ".join(quoted(word) for word in words) + b"\n"


def assignments(values: dict[str, bytes]) -> bytes:
    return b"".join(b"%s=%s\n" % (name.encode(), quoted(value)) for name, value in values.items())
