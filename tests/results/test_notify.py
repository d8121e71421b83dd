"""The site's hook and webhook: told of every job, bounded in time and tries, and powerless."""

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


def tell(stage: Stage, **changes: object) -> None:
    """Tell one piece of news."""
    chosen = msgspec.structs.replace(stage.settings, **changes)
    notify.leave(chosen.state, "23-0.json", folder=stage.results / "20_3", summary=SUMMARY)
    notify.tell(chosen, "23-0.json")
    assert list((chosen.state / "telling").iterdir()) == []


@pytest.fixture(autouse=True)
def _at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """Do not wait between tries."""
    monkeypatch.setattr(notify, "_FIRST_DELAY", 0.0)


def test_hook_gets_the_summary_and_the_facts(stage: Stage) -> None:
    """On standard input and in its environment, and nothing else of ours."""
    out = stage.base / "home" / "out"
    stage.home.chmod(0o777)
    hook = program(
        stage, f'cat >{out}; echo "$PENSTOCK_JOB $PENSTOCK_USER $PENSTOCK_STATE" >>{out}; id -un >>{out}\n'
    )
    tell(stage, hook=hook)
    user = "nobody" if staging.IS_ROOT else pwd.getpwuid(os.geteuid()).pw_name
    assert out.read_text() == f"{SUMMARY}20_3 alice COMPLETED\n{user}\n"


def test_failing_hook_is_tried_a_few_times_and_heard(stage: Stage, caplog: pytest.LogCaptureFixture) -> None:
    """Its last words are in the log; then it is given up."""
    count = stage.base / "home" / "count"
    stage.home.chmod(0o777)
    caplog.set_level("INFO")
    tell(stage, hook=program(stage, f"echo x >>{count}; echo no luck; exit 3\n"), hook_tries=3)
    assert count.read_text() == "x\n" * 3
    assert "no luck" in caplog.text
    assert "the hook failed, 0 tries left: exit code 3" in caplog.text


def test_hook_that_hangs_is_ended_with_all_it_started(stage: Stage) -> None:
    """Also when it ignores signals."""
    mark = f"{10_000_000 + os.getpid()}"
    tell(stage, hook=program(stage, f"trap '' TERM; sleep {mark} & wait\n"), hook_seconds=0.5, hook_tries=1)
    deadline = time.monotonic() + 60
    while any(mark in process.argv for process in processes.snapshot()):
        assert time.monotonic() < deadline
        time.sleep(0.02)


def test_hook_that_cannot_be_started_harms_nobody(stage: Stage, caplog: pytest.LogCaptureFixture) -> None:
    """Gone since the collector was started, or not for this user."""
    tell(stage, hook="/nonexistent/hook", hook_tries=1)
    assert "No such file" in caplog.text
    tell(stage, hook=program(stage, "true\n"), hook_user="no-such-user", hook_tries=1)
    assert "there is no user 'no-such-user'" in caplog.text


class Server(http.server.ThreadingHTTPServer):
    """Keeps what was posted; answers with the next of `codes`, the last one for ever."""

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


def test_webhook_is_posted_to(stage: Stage, server: Server) -> None:
    """With the site's own headers; a server in trouble is asked again."""
    server.codes = [503, 200]
    tell(stage, webhook=f"http://127.0.0.1:{server.server_port}/x", webhook_headers={"X-Token": "t"})
    assert server.posted == [("t", SUMMARY.encode())] * 2


def test_webhook_that_never_works_is_given_up(
    stage: Stage, server: Server, caplog: pytest.LogCaptureFixture
) -> None:
    """After so many tries, also when nobody listens."""
    server.codes = [500]
    tell(stage, webhook=f"http://127.0.0.1:{server.server_port}/", hook_tries=2)
    assert len(server.posted) == 2
    tell(stage, webhook="http://127.0.0.1:1/", hook_tries=1)
    assert "the webhook failed, 0 tries left" in caplog.text


def config(stage: Stage, **more: object) -> Path:
    path = stage.base / "collector.json"
    base = {"state_dir": "/s", "results": "/r", "slurm_conf": "/c"}
    path.write_bytes(msgspec.json.encode(base | more))
    return path


def test_settings_are_read(stage: Stage) -> None:
    """With their defaults."""
    found = settings.load(config(stage, limits={"output_files": 5}))
    assert (found.hook_user, found.limits.output_files, found.tells) == ("nobody", 5, False)


@pytest.mark.parametrize(
    ("more", "words"),
    [
        ({"colour": 1}, "colour"),
        ({"webhook": "file:///etc/passwd"}, "only http and https"),
        ({"workers": 0}, "at least 1"),
        ({"hook": "/nonexistent"}, "No such file"),
        ({"hook": "/etc/passwd"}, "no absolute path of a program"),
        ({"limits": {"files": 1}}, "files"),
    ],
)
def test_wrong_settings_are_refused_in_words(stage: Stage, more: dict[str, object], words: str) -> None:
    """Before anything is done."""
    with pytest.raises(errors.UsageError, match=words):
        settings.load(config(stage, **more))


def test_hook_that_others_may_write_is_refused(stage: Stage) -> None:
    """It would be their way to what the hook's user may do."""
    hook = program(stage, "true\n")
    Path(hook).chmod(0o777)
    with pytest.raises(errors.UsageError, match="others than its owner may write"):
        settings.load(config(stage, hook=hook))


def test_missing_settings_are_said(stage: Stage) -> None:
    """In one line."""
    with pytest.raises(errors.UsageError, match="cannot read"):
        settings.load(stage.base / "none.json")
