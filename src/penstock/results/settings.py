"""The collector's settings: a JSON file, every key checked, unknown ones refused."""

from __future__ import annotations

import stat
import urllib.parse
from pathlib import Path

import msgspec

from penstock import errors


class Limits(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    log_bytes: int = 2 * 2**30
    output_files: int = 100_000
    output_bytes: int = 2**40
    link_bytes: int = 64 * 2**20
    """Files of the working directory from this size on are linked instead of copied."""


class Settings(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    state_dir: str
    results: str
    slurm_conf: str
    limits: Limits = Limits()
    workers: int = 4
    workers_per_user: int = 2
    job_seconds: float = 4 * 3600.0
    patience: float = 120.0
    """Seconds to wait for Slurm to report how an attempt ended; after that the summary lacks it."""
    give_up_seconds: float = 7 * 86400.0
    """How long after an attempt's end the collection is retried."""
    interval: float = 0.5
    hook: str = ""
    hook_user: str = "nobody"
    hook_seconds: float = 60.0
    hook_tries: int = 3
    webhook: str = ""
    webhook_headers: dict[str, str] = {}
    log_level: str = "info"
    log_format: str = "text"

    @property
    def notifies(self) -> bool:
        return bool(self.hook or self.webhook)

    @property
    def state(self) -> Path:
        return Path(self.state_dir)

    @property
    def folder(self) -> Path:
        return Path(self.results)


def load(path: Path) -> Settings:
    try:
        found = msgspec.json.decode(path.read_bytes(), type=Settings)
    except OSError as error:
        raise errors.UsageError(f"cannot read {path}: {error.strerror}") from error
    except (msgspec.MsgspecError, UnicodeDecodeError) as error:
        raise errors.UsageError(f"{path}: {error}") from error
    if found.webhook and urllib.parse.urlsplit(found.webhook).scheme not in ("http", "https"):
        raise errors.UsageError("webhook: must be an http or https address")
    if found.workers < 1 or found.workers_per_user < 1:
        raise errors.UsageError("workers and workers_per_user: must be at least 1")
    if found.hook:
        _check_hook(Path(found.hook))
    return found


def _check_hook(hook: Path) -> None:
    try:
        mode = hook.stat().st_mode
    except OSError as error:
        raise errors.UsageError(f"hook: {hook}: {error.strerror}") from error
    if not hook.is_absolute() or not mode & 0o111 or not stat.S_ISREG(mode):
        raise errors.UsageError(f"hook: {hook} is not the absolute path of an executable file")
    if mode & 0o022:
        raise errors.UsageError(
            f"hook: {hook} is writable by group or others", hint=f"chmod go-w {hook}, and check its owner."
        )
