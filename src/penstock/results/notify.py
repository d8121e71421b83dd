"""The site's own program and web address, told of every collected job; they can change nothing about it.

They run after the results are in place, as a user of the site's choice without a right to them (`nobody` by
default), with the summary on standard input; what the summary says was written by the collector, not read
from the folder, which is its owner's. Each has a time limit and a number of tries, in a process of its own:
one that hangs or fails keeps neither results nor other news waiting. After a crash news may come twice.
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
_SHOWN = 2000  # bytes of a program's last words in the log
_FIRST_DELAY = 1.0


class News(msgspec.Struct, frozen=True):
    """What is to be told of one attempt."""

    folder: str
    summary: str


class _Facts(msgspec.Struct, frozen=True):
    """What a program may want without reading JSON."""

    job: str
    user: str
    uid: int
    state: str | None


def leave(state: Path, name: str, *, folder: Path, summary: str) -> None:
    """Note that this has to be told; on the disk when it returns."""
    news = News(folder=str(folder), summary=summary)
    atomic.write(state / FOLDER / name, msgspec.json.encode(news), mode=0o600)


def tell(chosen: settings.Settings, name: str) -> bool:
    """Tell all who want to hear, and forget it."""
    path = chosen.state / FOLDER / name
    news = msgspec.json.decode(path.read_bytes(), type=News)
    if chosen.hook:
        _persist(name, "hook", lambda: run_hook(chosen, news), chosen.hook_tries)
    if chosen.webhook:
        _persist(name, "webhook", lambda: post(chosen, news), chosen.hook_tries)
    path.unlink(missing_ok=True)
    return True


def _persist(name: str, what: str, call: Callable[[], str], tries: int) -> None:
    delay = _FIRST_DELAY
    for left in reversed(range(max(tries, 1))):
        problem = call()
        if not problem:
            return
        log.warning("job %s: the %s failed, %d tries left: %s", name, what, left, problem)
        if left:
            time.sleep(random.uniform(delay / 2, delay))  # noqa: S311  # jitter, not a secret
            delay = min(delay * 4, 60.0)


def run_hook(chosen: settings.Settings, news: News) -> str:
    """Run the site's program; what went wrong, or nothing."""
    try:
        entry = pwd.getpwnam(chosen.hook_user)
    except KeyError:
        return f"there is no user {chosen.hook_user!r} on this host"
    with tempfile.TemporaryFile() as words, tempfile.TemporaryFile() as given:
        given.write(news.summary.encode())
        given.seek(0)
        try:
            process = subprocess.Popen(
                [chosen.hook],
                stdin=given,
                stdout=words,
                stderr=subprocess.STDOUT,
                env=_environment(news),
                cwd="/",
                start_new_session=True,
                **_identity(entry),
            )
        except (OSError, subprocess.SubprocessError) as error:
            return str(error)
        problem = _wait(process, chosen.hook_seconds)
        words.seek(max(words.seek(0, os.SEEK_END) - _SHOWN, 0))
        said = words.read().decode(errors="replace").strip()
    if said:
        log.info("hook: %s", said)
    return problem


def _identity(entry: pwd.struct_passwd) -> dict[str, Any]:
    if os.geteuid() != 0:
        return {}
    groups = os.getgrouplist(entry.pw_name, entry.pw_gid)
    return {"user": entry.pw_uid, "group": entry.pw_gid, "extra_groups": groups}


def _wait(process: subprocess.Popen[bytes], seconds: float) -> str:
    """Its end, or ours to it and all it started."""
    try:
        code = process.wait(seconds)
        return f"exit code {code}" if code else ""
    except subprocess.TimeoutExpired:
        return f"not done within {seconds:g} s"
    finally:
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()


def _environment(news: News) -> dict[str, str]:
    facts = msgspec.json.decode(news.summary, type=_Facts)
    return {
        "PATH": "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin",
        "LC_ALL": "C.UTF-8",
        "PENSTOCK_JOB": facts.job,
        "PENSTOCK_USER": facts.user,
        "PENSTOCK_UID": str(facts.uid),
        "PENSTOCK_STATE": facts.state or "",
        "PENSTOCK_JOB_RESULTS": news.folder,
    }


def post(chosen: settings.Settings, news: News) -> str:
    """Post the summary; what went wrong, or nothing."""
    call = functools.partial(_post, chosen, news.summary.encode())
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
