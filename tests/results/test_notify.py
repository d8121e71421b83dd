"""The site's hook and webhook: called for every job, limited in time and tries, without privileges."""

from __future__ import annotations

import http.server
import os
import pwd
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import msgspec
import pytest

from penstock import errors
from penstock.results import notify, settings
from penstock_lab import processes
from tests.results import stage as staging
from tests.results.stage import Stage

SUMMARY = '{"job": "20_3", "user": "alice", "uid": 1001, "state": "COMPLETED"}'


def program(stage: Stage, text: str) -> str:
    path = stage.base / "hook"
    path.write_text(f"#!/bin/sh\n{text}")
    path.chmod(0o755)
    return str(path)


def send(stage: Stage, **changes: object) -> None:
    """Send one notice."""
    chosen = msgspec.structs.replace(stage.settings, **changes)
    notify.enqueue(chosen.state, "23-0.json", folder=stage.results / "20_3", summary=SUMMARY)
    notify.send(chosen, "23-0.json")
    assert list((chosen.state / "telling").iterdir()) == []


@pytest.fixture(autouse=True)
def _at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """No delay between tries."""
    monkeypatch.setattr(notify, "_FIRST_DELAY", 0.0)


def test_hook_gets_summary_and_environment(stage: Stage) -> None:
    """And nothing else of ours."""
    out = stage.base / "home" / "out"
    stage.home.chmod(0o777)
    hook = program(
        stage, f'cat >{out}; echo "$PENSTOCK_JOB $PENSTOCK_USER $PENSTOCK_STATE" >>{out}; id -un >>{out}\n'
    )
    send(stage, hook=hook)
    user = "nobody" if staging.IS_ROOT else pwd.getpwuid(os.geteuid()).pw_name
    assert out.read_text() == f"{SUMMARY}20_3 alice COMPLETED\n{user}\n"


def test_failing_hook_is_retried_and_logged(stage: Stage, caplog: pytest.LogCaptureFixture) -> None:
    """Its last output is in the log; then it is given up."""
    count = stage.base / "home" / "count"
    stage.home.chmod(0o777)
    caplog.set_level("INFO")
    send(stage, hook=program(stage, f"echo x >>{count}; echo no luck; exit 3\n"), hook_tries=3)
    assert count.read_text() == "x\n" * 3
    assert "no luck" in caplog.text
    assert "the hook failed, 0 tries left: exit code 3" in caplog.text


def test_hanging_hook_is_killed_with_its_children(stage: Stage) -> None:
    """Also if it ignores signals."""
    mark = f"{10_000_000 + os.getpid()}"
    send(stage, hook=program(stage, f"trap '' TERM; sleep {mark} & wait\n"), hook_seconds=0.5, hook_tries=1)
    deadline = time.monotonic() + 60
    while any(mark in process.argv for process in processes.snapshot()):
        assert time.monotonic() < deadline
        time.sleep(0.02)


def test_hook_that_cannot_be_started_is_logged(stage: Stage, caplog: pytest.LogCaptureFixture) -> None:
    """Removed since the collector was started, or not executable for this user."""
    send(stage, hook="/nonexistent/hook", hook_tries=1)
    assert "No such file" in caplog.text
    send(stage, hook=program(stage, "true\n"), hook_user="no-such-user", hook_tries=1)
    assert "there is no user 'no-such-user'" in caplog.text


class Server(http.server.ThreadingHTTPServer):
    """Stores what is posted; answers with the next of `codes`, the last one forever."""

    codes: list[int]
    posted: list[tuple[str, bytes]]


class Handler(http.server.BaseHTTPRequestHandler):
    """Takes anything."""

    def do_POST(self) -> None:
        assert isinstance(self.server, Server)
        body = self.rfile.read(int(self.headers["Content-Length"]))
        self.server.posted.append((self.headers.get("X-Token", ""), body))
        codes = self.server.codes
        self.send_response(codes.pop(0) if len(codes) > 1 else codes[0])
        self.end_headers()

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002  # as the original
        """Quietly."""


@pytest.fixture
def server(monkeypatch: pytest.MonkeyPatch) -> Iterator[Server]:
    """In a thread: so nothing is forked meanwhile, and posting is done as ourselves."""
    monkeypatch.setattr("penstock.nas.asuser.run_as", lambda user, function, **options: function())
    with Server(("127.0.0.1", 0), Handler) as made:
        made.codes, made.posted = [200], []
        thread = threading.Thread(target=made.serve_forever, kwargs={"poll_interval": 0.02})
        thread.start()
        yield made
        made.shutdown()
        thread.join()


def test_webhook_is_posted(stage: Stage, server: Server) -> None:
    """With the site's headers; a failing server is tried again."""
    server.codes = [503, 200]
    send(stage, webhook=f"http://127.0.0.1:{server.server_port}/x", webhook_headers={"X-Token": "t"})
    assert server.posted == [("t", SUMMARY.encode())] * 2


def test_failing_webhook_is_given_up(stage: Stage, server: Server, caplog: pytest.LogCaptureFixture) -> None:
    """After the configured tries, also if nothing listens."""
    server.codes = [500]
    send(stage, webhook=f"http://127.0.0.1:{server.server_port}/", hook_tries=2)
    assert len(server.posted) == 2
    send(stage, webhook="http://127.0.0.1:1/", hook_tries=1)
    assert "the webhook failed, 0 tries left" in caplog.text


def config(stage: Stage, **more: object) -> Path:
    path = stage.base / "collector.json"
    base = {"state_dir": "/s", "results": "/r", "slurm_conf": "/c"}
    path.write_bytes(msgspec.json.encode(base | more))
    return path


def test_settings_have_defaults(stage: Stage) -> None:
    """Of optional keys."""
    found = settings.load(config(stage, limits={"output_files": 5}))
    assert (found.hook_user, found.limits.output_files, found.notifies) == ("nobody", 5, False)


@pytest.mark.parametrize(
    ("more", "words"),
    [
        ({"colour": 1}, "colour"),
        ({"webhook": "file:///etc/passwd"}, "http or https"),
        ({"workers": 0}, "at least 1"),
        ({"hook": "/nonexistent"}, "No such file"),
        ({"hook": "/etc/passwd"}, "not the absolute path of an executable file"),
        ({"limits": {"files": 1}}, "files"),
    ],
)
def test_wrong_settings_are_refused(stage: Stage, more: dict[str, object], words: str) -> None:
    """Before anything is done."""
    with pytest.raises(errors.UsageError, match=words):
        settings.load(config(stage, **more))


def test_writable_hook_is_refused(stage: Stage) -> None:
    """Otherwise others could run commands as the hook's user."""
    hook = program(stage, "true\n")
    Path(hook).chmod(0o777)
    with pytest.raises(errors.UsageError, match="writable by group or others"):
        settings.load(config(stage, hook=hook))


def test_missing_settings_file_is_an_error(stage: Stage) -> None:
    """One line."""
    with pytest.raises(errors.UsageError, match="cannot read"):
        settings.load(stage.base / "none.json")
