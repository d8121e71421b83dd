"""Notifies the site's hook and webhook of every collected job.

They run after the results are in place, as a user of the site's choice without access to them (by default
`nobody`). The summary on standard input is the collector's own, not read from the folder, which its owner can
change. Each has a time limit and a number of tries in its own process, so that one that hangs or fails delays
neither results nor other notices. After a crash a notice may be sent twice.
"""

from __future__ import annotations

import contextlib
import functools
import logging
import os
import pwd
import random
import signal
import subprocess
import tempfile
import time
import urllib.error
import urllib.request
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec

from penstock import errors
from penstock.nas import asuser, atomic
from penstock.results import settings

log = logging.getLogger(__name__)

FOLDER = "telling"
_SHOWN = 2000  # bytes of the hook's output in the log
_FIRST_DELAY = 1.0


class Notice(msgspec.Struct, frozen=True):
    folder: str
    summary: str


class _Facts(msgspec.Struct, frozen=True):
    job: str
    user: str
    uid: int
    state: str | None


def enqueue(state: Path, name: str, *, folder: Path, summary: str) -> None:
    """Store a notice durably."""
    notice = Notice(folder=str(folder), summary=summary)
    atomic.write(state / FOLDER / name, msgspec.json.encode(notice), mode=0o600)


def send(chosen: settings.Settings, name: str) -> bool:
    path = chosen.state / FOLDER / name
    notice = msgspec.json.decode(path.read_bytes(), type=Notice)
    if chosen.hook:
        _retry(name, "hook", lambda: run_hook(chosen, notice), chosen.hook_tries)
    if chosen.webhook:
        _retry(name, "webhook", lambda: post(chosen, notice), chosen.hook_tries)
    path.unlink(missing_ok=True)
    return True


def _retry(name: str, what: str, call: Callable[[], str], tries: int) -> None:
    delay = _FIRST_DELAY
    for left in reversed(range(max(tries, 1))):
        problem = call()
        if not problem:
            return
        log.warning("job %s: the %s failed, %d tries left: %s", name, what, left, problem)
        if left:
            time.sleep(random.uniform(delay / 2, delay))  # noqa: S311  # jitter, not a secret
            delay = min(delay * 4, 60.0)


def run_hook(chosen: settings.Settings, notice: Notice) -> str:
    """Run the site's program; returns the error, or an empty text."""
    try:
        entry = pwd.getpwnam(chosen.hook_user)
    except KeyError:
        return f"there is no user {chosen.hook_user!r} on this host"
    with tempfile.TemporaryFile() as output, tempfile.TemporaryFile() as stdin:
        stdin.write(notice.summary.encode())
        stdin.seek(0)
        try:
            process = subprocess.Popen(
                [chosen.hook],
                stdin=stdin,
                stdout=output,
                stderr=subprocess.STDOUT,
                env=_environment(notice),
                cwd="/",
                start_new_session=True,
                **_identity(entry),
            )
        except (OSError, subprocess.SubprocessError) as error:
            return str(error)
        problem = _wait(process, chosen.hook_seconds)
        output.seek(max(output.seek(0, os.SEEK_END) - _SHOWN, 0))
        text = output.read().decode(errors="replace").strip()
    if text:
        log.info("hook: %s", text)
    return problem


def _identity(entry: pwd.struct_passwd) -> dict[str, Any]:
    if os.geteuid() != 0:
        return {}
    groups = os.getgrouplist(entry.pw_name, entry.pw_gid)
    return {"user": entry.pw_uid, "group": entry.pw_gid, "extra_groups": groups}


def _wait(process: subprocess.Popen[bytes], seconds: float) -> str:
    """Wait for its end; after the time limit kill it with all its processes."""
    try:
        code = process.wait(seconds)
        return f"exit code {code}" if code else ""
    except subprocess.TimeoutExpired:
        return f"not done within {seconds:g} s"
    finally:
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()


def _environment(notice: Notice) -> dict[str, str]:
    facts = msgspec.json.decode(notice.summary, type=_Facts)
    return {
        "PATH": "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin",
        "LC_ALL": "C.UTF-8",
        "PENSTOCK_JOB": facts.job,
        "PENSTOCK_USER": facts.user,
        "PENSTOCK_UID": str(facts.uid),
        "PENSTOCK_STATE": facts.state or "",
        "PENSTOCK_JOB_RESULTS": notice.folder,
    }


def post(chosen: settings.Settings, notice: Notice) -> str:
    """Post the summary; returns the error, or an empty text."""
    call = functools.partial(_post, chosen, notice.summary.encode())
    if os.geteuid() != 0:
        return call()
    try:
        user = asuser.User.of(pwd.getpwnam(chosen.hook_user).pw_uid)
        return asuser.run_as(user, call, type=str, timeout=chosen.hook_seconds + 5)
    except (KeyError, errors.PenstockError, OSError) as error:
        return str(error)


def _post(chosen: settings.Settings, body: bytes) -> str:
    headers = {"Content-Type": "application/json", **chosen.webhook_headers}
    request = urllib.request.Request(chosen.webhook, data=body, headers=headers, method="POST")  # noqa: S310  # http(s) only, see settings
    try:
        with urllib.request.urlopen(request, timeout=chosen.hook_seconds):  # noqa: S310  # as above
            return ""
    except (urllib.error.URLError, OSError, ValueError) as error:
        return str(error)
