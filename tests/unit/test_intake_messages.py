"""Error texts, the inbox, settings and systemd units of the intake."""

from __future__ import annotations

import asyncio
import configparser
import datetime
import json
import os
import pwd
import socket
import subprocess
import time
from pathlib import Path

import msgspec
import pytest
from click import testing as clicks

from penstock import errors, systemd, wellknown
from penstock.cli import inbox, main
from penstock.intake import messages, publisher, settings, status, verdicts
from penstock.intake import service as intake_running
from penstock.sbatch import compiler
from penstock.site import daemonsettings, loader
from penstock_lab import health, paths, sitefile, spec
from tests import goldens
from tests.unit import intakes

ROOT = Path(__file__).parents[2]
UNITS = tuple(ROOT / "packaging" / "systemd" / f"{name}.service" for name in ("penstockd", "penstock-intake"))
NOW = datetime.datetime(2026, 1, 31, 12, tzinfo=datetime.UTC)
TYPOS = b"#!/bin/bash\n#SBATCH --tme=3\n#SBATCH --nodes=zwei\necho hi\n"
as_root = pytest.mark.skipif(os.geteuid() != 0, reason="only root can give files away")


def test_unknown_user_name_is_not_cached(monkeypatch: pytest.MonkeyPatch) -> None:
    """The name service may have been unavailable for a moment."""
    monkeypatch.setattr(status, "_known", {})
    with monkeypatch.context() as away:
        away.setattr(pwd, "getpwuid", {}.__getitem__)
        assert status.user_of(0) == "0"
    assert status.user_of(0) == "root"
    monkeypatch.setattr(pwd, "getpwuid", {}.__getitem__)
    assert status.user_of(0) == "root"


def test_error_text_lists_all_findings() -> None:
    """The reviewed text, with the compiler's findings."""
    done = compiler.compile_script(TYPOS, name="typos.sh", variables={})
    found = messages.findings(TYPOS, done.diagnostics)
    text = messages.refusal("typos.sh", "0" * 32, "the script has 2 errors", verdicts.AGAIN, found)
    assert text == goldens.reviewed("intake_letter.txt", text)


def test_example_in_readme_is_valid() -> None:
    """A user who copies it gets a job."""
    lines = [line[4:] for line in messages.README.splitlines() if line.startswith("    ")]
    assert compiler.compile_script("\n".join(lines).encode(), name="first.sh", variables={}).ok


class TestInbox:
    def put(self, nas: Path) -> None:
        mine = status.Item("mine.sh", "me", 4711, "processed", job="7", path="processed/x")
        other = status.Item(
            "other.sh", "you", 4712, "failed", "it is empty", path="failed/x", at=status.moment(1.0)
        )
        found = status.Inbox(NOW, "host", "the NAS is read-only", (), (mine, other))
        (nas / wellknown.DROP_FOLDER).mkdir()
        (nas / wellknown.DROP_FOLDER / wellknown.DROP_INDEX).write_bytes(msgspec.json.encode(found))

    def test_inbox_shows_own_files(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        """All files with --all; the problem comes first."""
        self.put(tmp_path)
        monkeypatch.setattr(os, "geteuid", lambda: 4711)
        run = clicks.CliRunner().invoke
        shown = json.loads(run(inbox.inbox, ["--nas", str(tmp_path), "--format", "json"]).output)
        assert [item["name"] for item in shown["done"]] == ["mine.sh"]
        everything = run(inbox.inbox, ["--nas", str(tmp_path), "--all"]).output
        assert "other.sh" in everything
        assert "read-only" in everything

    def test_missing_inbox_is_an_error(self, tmp_path: Path) -> None:
        """One line."""
        result = clicks.CliRunner().invoke(inbox.inbox, ["--nas", str(tmp_path)])
        assert isinstance(result.exception, errors.PenstockError)
        assert "cannot read the inbox" in result.exception.message

    @as_root
    async def test_inbox_is_written_after_a_change(self, tmp_path: Path) -> None:
        """On this host and on the NAS, but not on a NAS that has a problem."""
        nas = tmp_path / "nas"
        nas.mkdir()
        here = intakes.Harness(nas, tmp_path / "state", intakes.FakeSlurm(intakes.Faults()), intakes.Clock())
        reporter = publisher.Reporter(tmp_path / "local.json", nas / "inbox.json")
        intakes.drop(nas, "a.sh")
        await here.look()
        reporter.report(here.clerk, "read-only", here.clock.now())
        assert not (nas / "inbox.json").exists()
        said = msgspec.json.decode((tmp_path / "local.json").read_bytes(), type=status.Inbox)
        assert (said.problem, [item.state for item in said.waiting]) == ("read-only", ["arriving"])
        await here.settle()
        reporter.report(here.clerk, "", here.clock.now() + 10)
        said = msgspec.json.decode((nas / "inbox.json").read_bytes(), type=status.Inbox)
        assert [(item.name, item.job, item.state) for item in said.done] == [("a.sh", "1", "processed")]

    @as_root
    async def test_inbox_shows_ignored_folder(self, tmp_path: Path) -> None:
        """Its owner would wait forever otherwise. Not where the site has user folders."""
        nas = tmp_path / "nas"
        nas.mkdir()
        here = intakes.Harness(nas, tmp_path / "state", intakes.FakeSlurm(intakes.Faults()), intakes.Clock())
        await here.look()
        (nas / "submit" / "jobs").mkdir()
        await here.look()
        (item,) = publisher.snapshot(here.clerk, "").waiting
        assert (item.name, item.state, item.uid) == ("jobs", "left", os.geteuid())
        assert "only files become jobs" in item.words


class TestSettings:
    def test_settings_of_lab_are_valid(self, tmp_path: Path) -> None:
        """Every key is known, and the user's folder is on the NAS."""
        place = paths.LabPaths(Path("/tmp/x"))  # noqa: S108  # never made
        lab = spec.LabSpec(name="x", port_base=21000, user="alice", user_created=False)
        described = loader.loads(sitefile.render(place, lab, address=None).encode())
        assert described.nas is not None
        said = daemonsettings.intake(described, described.nas, release=(22, 5))
        (tmp_path / "c").write_text(json.dumps(said))
        site = settings.load(tmp_path / "c")
        assert site.slurm_release == "22.05"
        assert site.workdir == "/tmp/x/nas/home/{user}"  # noqa: S108  # same

    @pytest.mark.parametrize(
        ("changes", "said"),
        [
            ({"settle": 1}, "settle"),
            ({"settle_seconds": 0}, "settle_seconds"),
            ({"in_flight": 0}, "in_flight"),
            ({"workdir": "{nobody}"}, "workdir"),
            ({"uncertain_seconds": 60}, "uncertain_seconds is 60, and sbatch_seconds 120"),
            ({"sbatch_seconds": 150}, "uncertain_seconds is 150, and sbatch_seconds 150"),
        ],
    )
    def test_wrong_settings_are_refused(self, tmp_path: Path, changes: dict[str, object], said: str) -> None:
        """The message names the key."""
        plain = {"folder": "/nas", "state": "/var/lib/x", "slurm_conf": "/etc/slurm/slurm.conf"}
        (tmp_path / "c").write_text(json.dumps(plain | changes))
        with pytest.raises(errors.UsageError, match=said):
            settings.load(tmp_path / "c")

    def test_intake_requires_root(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        """Checked before anything is created."""
        monkeypatch.setattr(os, "geteuid", lambda: 4711)
        site = settings.Settings(folder="/nas", state=str(tmp_path / "s"), slurm_conf="")
        with pytest.raises(errors.UsageError, match="only root"):
            intake_running.start(site)
        assert list(tmp_path.iterdir()) == []


class TestService:
    def test_systemd_is_notified(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        """Through $NOTIFY_SOCKET; without it nothing happens."""
        monkeypatch.delenv("NOTIFY_SOCKET", raising=False)
        systemd.notify("READY=1")
        monkeypatch.setenv("NOTIFY_SOCKET", str(tmp_path / "n"))
        systemd.notify("READY=1")
        with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as receiver:
            receiver.bind(str(tmp_path / "n"))
            receiver.settimeout(5)
            systemd.notify("READY=1", "STATUS=well")
            assert receiver.recv(100) == b"READY=1\nSTATUS=well"

    def test_watchdog_interval_is_half_of_watchdog_usec(self, monkeypatch: pytest.MonkeyPatch) -> None:
        """Zero without a watchdog."""
        monkeypatch.setenv("WATCHDOG_USEC", "30000000")
        assert systemd.watchdog_seconds() == 15.0
        monkeypatch.setenv("WATCHDOG_USEC", "nonsense")
        assert systemd.watchdog_seconds() == 0.0


class TestUnits:
    @pytest.mark.parametrize("path", UNITS, ids=lambda path: path.stem)
    def test_units_are_hardened_and_have_a_watchdog(self, path: Path) -> None:
        """As docs/operations.md promises."""
        unit = configparser.RawConfigParser(strict=False, comment_prefixes="#")
        unit.optionxform = str  # type: ignore[method-assign,assignment]  # systemd's keys have capitals
        unit.read(path)
        service_part = unit["Service"]
        assert service_part["Type"] == "notify"
        assert service_part["Restart"] == "always"
        assert service_part["ProtectSystem"] == "strict"
        assert service_part["NoNewPrivileges"] == "yes"
        assert int(service_part["WatchdogSec"]) >= 60
        program, command = service_part["ExecStart"].split()[:2]
        assert program == "/usr/bin/penstock"
        assert command in main.COMMANDS

    def test_units_bound_capabilities(self) -> None:
        """The e2e test runs the intake with exactly these."""
        lines = [line for path in UNITS for line in path.read_text().splitlines()]
        sets = [line.partition("=")[2] for line in lines if line.startswith("CapabilityBoundingSet=")]
        assert "" in sets
        assert not any("SYS_" in one for one in sets)

    @pytest.mark.needs("systemd-analyze", package="systemd")
    @pytest.mark.parametrize("path", UNITS, ids=lambda path: path.stem)
    def test_units_pass_systemd_analyze(self, path: Path, tmp_path: Path) -> None:
        """No unknown key, no wrong value."""
        unit = tmp_path / path.name
        unit.write_text(path.read_text().replace("/usr/bin/penstock", "/bin/true"))
        argv = ("systemd-analyze", "verify", "--man=no", str(unit))
        result = subprocess.run(argv, capture_output=True, text=True, timeout=60, check=False)
        ours = [line for line in result.stderr.splitlines() if path.name in line]
        assert ours == []


@as_root
class TestIntake:
    async def test_unmounted_nas_is_logged_once(
        self, tmp_path: Path, caplog: pytest.LogCaptureFixture
    ) -> None:
        """Files wait; nothing is created at the mount point."""
        caplog.set_level("INFO")
        nas = tmp_path / "nas"
        nas.mkdir()
        here = intakes.Harness(nas, tmp_path / "state", intakes.FakeSlurm(intakes.Faults()), intakes.Clock())
        site = msgspec.structs.replace(here.site, status=str(tmp_path / "inbox.json"))
        intake = intake_running.Intake(site, here.clerk)
        intake.tick()
        assert intake.problem == ""
        intakes.drop(nas, "a.sh")
        nas.rename(tmp_path / "away")
        nas.mkdir()
        intake.wake.set()
        for _ in range(3):
            intake.tick()
        assert "marker is missing" in intake.problem
        assert not intake.wake.is_set(), "it would spin until the NAS is back"
        assert list(nas.iterdir()) == []
        nas.rmdir()
        (tmp_path / "away").rename(nas)
        began = time.monotonic()
        while here.clerk.claims or any((nas / "submit").iterdir()):
            here.clock.time += 1
            intake.tick()
            await asyncio.sleep(0)
            assert time.monotonic() - began < 120
        assert len(here.slurm.jobs) == 1
        assert sum("marker is missing" in record.message for record in caplog.records) == 1
        intake._close_folder()


class TestHealth:
    def test_intake_is_healthy_if_its_inbox_is_recent(self, tmp_path: Path) -> None:
        """An inbox of an earlier process, or an old one, does not count."""
        path = tmp_path / "inbox.json"
        assert "not written its status" in health.inbox(path)
        said = status.Inbox(NOW, "host", "read-only", (), (), pid=os.getpid())
        path.write_bytes(msgspec.json.encode(said))
        assert (health.inbox(path), health.inbox_problem(path)) == ("", "read-only")
        os.utime(path, (1.0, 1.0))
        assert "silent" in health.inbox(path)
        path.write_bytes(msgspec.json.encode(msgspec.structs.replace(said, pid=2**22 + 1)))
        assert "not written its status" in health.inbox(path)
