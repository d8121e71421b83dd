"""Traces of submissions, from which another process can tell their results.

For each token: `<token>/<name>`, the path that sbatch gets and that Slurm keeps as the job's command (and
in the accounting as its submit line), so the job can be found by its token. It is a link to an open
descriptor of whoever reads it: for sbatch a sealed copy of the script, for everybody else nothing. And
`<token>.out` and `.err`, sbatch's streams, locked while it lives, even if the process that started it is
dead.

`boot` contains the boot id of the host when all this was written: a power loss may destroy traces, so in
another boot missing traces prove nothing. It is rewritten only after that doubt is noted in the traces
themselves: a process that starts later in the same boot must not take missing traces for a proof.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
from collections.abc import Iterable
from pathlib import Path

from penstock.slurm import answers

BOOT_ID = Path("/proc/sys/kernel/random/boot_id")
BEGUN = b"\n"
_MOST = 1 << 16
_REWRITE = os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC


class Spool:
    """A folder of traces on a local disk, owned by root, that users can enter but not list."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        folder.mkdir(mode=0o711, parents=True, exist_ok=True)
        folder.chmod(0o711)
        self._note, self._boot = folder / "boot", BOOT_ID.read_text()
        self.same_boot = self._note.exists() and self._note.read_text() == self._boot

    def keep_doubt(self, tokens: Iterable[str]) -> None:
        """After a boot: mark these submissions as unknown, whatever an earlier sbatch printed.

        A printed job id stays. Nothing is synced: after another boot everything is in doubt again.
        """
        if self.same_boot:
            return
        for token in tokens:
            descriptor = os.open(self.folder / f"{token}.err", _REWRITE, 0o600)
            with os.fdopen(descriptor, "wb") as stream:
                stream.write(BEGUN)
        self._note.write_text(self._boot)
        self.same_boot = True

    def make(self, token: str, name: str, *, descriptor: int) -> Path:
        """The path for sbatch, a link to its open `descriptor`."""
        inner = self.folder / token
        self.clear(token)  # of an earlier try; one in doubt has no folder
        inner.mkdir()
        inner.chmod(0o711)
        path = inner / name
        path.symlink_to(f"/proc/self/fd/{descriptor}")
        return path

    def open_streams(self, token: str) -> tuple[int, int]:
        """Descriptors for sbatch's streams; the first one is locked."""
        out = self._open(f"{token}.out")
        try:
            fcntl.flock(out, fcntl.LOCK_EX)
            return out, self._open(f"{token}.err")
        except BaseException:
            os.close(out)
            raise

    def read(self, token: str, *, code: int | None) -> answers.Answer:
        """sbatch's answer so far."""
        return answers.understand(self._text(f"{token}.out"), self._text(f"{token}.err"), code=code)

    def started(self, token: str) -> bool:
        """Whether sbatch may have been started: its process writes BEGUN before it executes sbatch."""
        return bool(self._text(f"{token}.err")) or not self.same_boot

    def running(self, token: str) -> bool:
        """Whether an sbatch that another process started is still running."""
        try:
            descriptor = os.open(self.folder / f"{token}.out", os.O_RDWR | os.O_CLOEXEC)
        except FileNotFoundError:
            return False
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return True
        finally:
            os.close(descriptor)
        return False

    def clear(self, token: str) -> None:
        """Remove the traces, once the answer is recorded."""
        for name in (f"{token}.out", f"{token}.err"):
            (self.folder / name).unlink(missing_ok=True)
        with contextlib.suppress(FileNotFoundError):
            for path in (self.folder / token).iterdir():
                path.unlink()
            (self.folder / token).rmdir()

    def _open(self, name: str) -> int:
        return os.open(self.folder / name, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)

    def _text(self, name: str) -> str:
        try:
            with (self.folder / name).open("rb") as stream:
                return stream.read(_MOST).decode(errors="replace")
        except FileNotFoundError:
            return ""
