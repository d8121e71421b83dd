"""Unknown outcomes are looked up in Slurm, temporary problems of the host are waited out."""

from __future__ import annotations

import os
import pwd
from pathlib import Path

import msgspec
import pytest

from penstock.intake import cycle
from penstock.journal import entries
from penstock.slurm import answers, spools, submissions
from tests.unit import intakes
from tests.unit.intakes import harness, nas

__all__ = ["nas"]  # pytest finds the fixture by its name

pytestmark = pytest.mark.skipif(os.geteuid() != 0, reason="only root can give files away")
FILES = ("a.sh", "b.sh", "c.sh")


class TestReboots:
    """A power cut just after a submission: the traces are lost, and maybe the last journal entries."""

    @pytest.fixture
    def boot(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
        path = tmp_path / "boot_id"
        path.write_text("1")
        monkeypatch.setattr(spools, "BOOT_ID", path)
        return path

    async def submitted(self, nas: Path) -> intakes.Harness:
        """A submitted file whose job only slurmctld knows."""
        slurm = intakes.FakeSlurm(intakes.Faults(), real_spool=spools.Spool(nas.parent / "spool"))
        here = harness(nas, slurm)
        await here.look()
        intakes.drop(nas, "a.sh")
        while not slurm.jobs:
            await here.look(step=0.6)
        await here.die()
        return here

    def reboot(self, boot: Path) -> None:
        boot.write_text("2")

    def restart(self, here: intakes.Harness) -> None:
        here.slurm.real_spool = spools.Spool(here.folder.parent / "spool")
        here.start()

    async def test_doubt_survives_second_start(self, nas: Path, boot: Path) -> None:
        """Slurm could not be asked in between; the file still becomes one job."""
        here = await self.submitted(nas)
        self.reboot(boot)
        here.slurm.silent = 1000
        for _ in range(3):
            self.restart(here)
            for _ in range(3):
                await here.look()
            await here.die()
        here.slurm.silent = 0
        self.restart(here)
        await here.settle()
        intakes.assert_once(nas, here.slurm, ("a.sh",))

    async def test_doubt_survives_start_without_nas(self, nas: Path, boot: Path) -> None:
        """Nothing was read in between."""
        here = await self.submitted(nas)
        self.reboot(boot)
        self.restart(here)
        self.restart(here)
        await here.settle()
        intakes.assert_once(nas, here.slurm, ("a.sh",))

    async def test_waiting_entry_is_looked_up_after_reboot(self, nas: Path, boot: Path) -> None:
        """The power cut undid the entry of the try that succeeded."""
        here = await self.submitted(nas)
        (entry,) = here.clerk.journal.open()
        here.clerk.journal.put(msgspec.structs.replace(entry, state=entries.WAITING))
        self.reboot(boot)
        self.restart(here)
        await here.settle()
        intakes.assert_once(nas, here.slurm, ("a.sh",))


class TestDoubt:
    @staticmethod
    async def killed_after_submitting(nas: Path, slurm: intakes.FakeSlurm) -> intakes.Harness:
        """An intake that was killed after Slurm had the job of a.sh, and was restarted."""
        here = harness(nas, slurm)
        intakes.drop(nas, "a.sh")
        while not slurm.jobs:
            await here.look()
        await here.die()
        here.start()
        return here

    @pytest.mark.parametrize("silent", [1, 9])
    async def test_outage_of_slurm_restarts_the_uncertain_period(self, nas: Path, silent: int) -> None:
        """slurmdbd is back, but slurmctld has not sent it the jobs that it has itself forgotten."""
        slurm = intakes.FakeSlurm(intakes.Faults(), traceless=True, silent=silent, blind=2)
        here = await self.killed_after_submitting(nas, slurm)
        await here.settle(looks=1000)
        intakes.assert_once(nas, slurm, ("a.sh",))

    async def test_answers_before_outage_do_not_count(self, nas: Path) -> None:
        """Only an unbroken series of answers proves that Slurm has no such job."""
        slurm = intakes.FakeSlurm(intakes.Faults(), traceless=True, blind=1)
        here = await self.killed_after_submitting(nas, slurm)
        while not slurm.asked:
            await here.look()
        slurm.silent, slurm.blind = 9, 1
        await here.settle(looks=1000)
        intakes.assert_once(nas, slurm, ("a.sh",))

    async def test_gres_unknown_to_intake_is_left_to_sbatch(self, nas: Path) -> None:
        """The intake does not know GresTypes, sbatch does."""
        slurm = intakes.FakeSlurm(intakes.Faults())
        here = harness(nas, slurm)
        intakes.drop(nas, "a.sh", text="#!/bin/sh\n#SBATCH --gres=lscratch:100\ntrue\n")
        await here.settle()
        intakes.assert_once(nas, slurm, ("a.sh",))

    async def test_unknown_outcome_is_looked_up_before_retry(self, nas: Path) -> None:
        """Slurm has no such job if it is not found for long enough."""
        slurm = intakes.FakeSlurm(intakes.Faults(), saying=[answers.Answer("unknown")])
        here = harness(nas, slurm)
        intakes.drop(nas, "a.sh")
        await here.settle()
        intakes.assert_once(nas, slurm, ("a.sh",))
        assert slurm.asked >= 2

    async def test_jobs_of_other_users_with_same_token_are_ignored(self, nas: Path) -> None:
        """No user can make another user's file vanish."""
        slurm = intakes.FakeSlurm(intakes.Faults(), saying=[answers.Answer("unknown")])
        here = harness(nas, slurm)
        intakes.drop(nas, "a.sh", uid=intakes.USERS[0])
        for _ in range(3):
            await here.look()
        (claim,) = here.clerk.claims.values()
        forged = submissions.Submission(claim.token, "x", b"", intakes.USERS[1], 0, (), "/", {})
        slurm.jobs.append(forged)
        await here.settle()
        assert [job.uid for job in slurm.jobs] == [intakes.USERS[1], intakes.USERS[0]]

    async def test_limit_of_one_user_does_not_delay_others(self, nas: Path) -> None:
        """The file is submitted once the limit is gone."""
        full = answers.Answer("later", words="AssocMaxSubmitJobLimit")
        slurm = intakes.FakeSlurm(intakes.Faults(), saying=[full, full, full])
        here = harness(nas, slurm, in_flight=1, in_flight_per_user=1)
        intakes.drop(nas, "a.sh", uid=intakes.USERS[0])
        for _ in range(3):
            await here.look(step=0.7)
        intakes.drop(nas, "b.sh", uid=intakes.USERS[1])
        slurm.saying.clear()
        await here.settle()
        assert sorted(job.name for job in slurm.jobs) == ["a.sh", "b.sh"]

    async def test_files_beyond_limit_stay_in_submit(self, nas: Path) -> None:
        """Only a few files of a user at the limit are claimed."""
        full = answers.Answer("later", words="QOSMaxSubmitJobPerUserLimit")
        slurm = intakes.FakeSlurm(intakes.Faults(), saying=[full] * 1000)
        here = harness(nas, slurm)
        for number in range(50):
            intakes.drop(nas, f"{number}.sh")
        for _ in range(60):
            await here.look()
        most = cycle.AHEAD * here.site.in_flight_per_user
        assert len(here.clerk.claims) <= most
        assert len(list((nas / "submit").iterdir())) >= 50 - most
        intakes.drop(nas, "other.sh", uid=intakes.USERS[1])
        slurm.saying.clear()
        for _ in range(3):
            await here.look(step=0.6)
        assert [job.name for job in slurm.jobs][:1] == ["other.sh"]
        await here.settle(looks=2000)
        assert len(slurm.jobs) == 51

    async def test_user_text_in_answer_is_not_interpreted(self, nas: Path) -> None:
        """A partition name that looks like a connection failure does not delay others."""
        words = "invalid partition specified: connect failure"
        slurm = intakes.FakeSlurm(intakes.Faults(), saying=[answers.Answer("later", words=words)] * 9)
        here = harness(nas, slurm)
        for number in range(9):
            intakes.drop(nas, f"evil{number}.sh", uid=intakes.USERS[1])
        for _ in range(4):
            await here.look(step=0.6)
        slurm.saying.clear()
        intakes.drop(nas, "good.sh")
        for _ in range(4):
            await here.look(step=0.6)
        assert [job.name for job in slurm.jobs][:1] == ["good.sh"]

    async def test_unreachable_slurmctld_delays_all_submissions(self, nas: Path) -> None:
        """One sbatch that cannot connect is enough."""
        away = answers.Answer("later", words="Unable to contact slurm controller", away=True)
        slurm = intakes.FakeSlurm(intakes.Faults(), saying=[away])
        here = harness(nas, slurm)
        intakes.drop(nas, "a.sh")
        for _ in range(3):
            await here.look(step=0.6)
        assert slurm.saying == []
        intakes.drop(nas, "b.sh", uid=intakes.USERS[1])
        for _ in range(2):
            await here.look(step=0.6)
        assert slurm.jobs == []
        await here.settle()
        intakes.assert_once(nas, slurm, ("a.sh", "b.sh"))

    async def test_script_with_test_only_is_refused(self, nas: Path) -> None:
        """sbatch --test-only submits nothing: the file would be looked up and submitted forever."""
        slurm = intakes.FakeSlurm(intakes.Faults())
        here = harness(nas, slurm)
        intakes.drop(nas, "a.sh", text="#!/bin/sh\n#SBATCH --time=1\n#SBATCH --test-only\ntrue\n")
        await here.settle()
        assert slurm.jobs == []
        letter, _ = intakes.letter(nas)
        assert "line 3: with --test-only (a.sh:3) sbatch only reports when a job could start" in letter
        assert "      #SBATCH --test-only\n" in letter

    async def test_error_text_quotes_slurm(self, nas: Path) -> None:
        """It is beside the file and belongs to its owner."""
        no = answers.Answer("rejected", words="Batch job submission failed: Invalid account")
        here = harness(nas, intakes.FakeSlurm(intakes.Faults(), saying=[no]))
        intakes.drop(nas, "a.sh")
        await here.settle()
        assert list(intakes.filed(nas, "failed")) == ["a.sh", "a.sh.error.txt"]
        letter, owner = intakes.letter(nas)
        assert "Invalid account" in letter
        assert owner == intakes.USERS[0]


class TestGracePeriod:
    """Problems of the host that look like a user's mistake."""

    @pytest.fixture
    def unknown(self, monkeypatch: pytest.MonkeyPatch) -> set[int]:
        """Uids that the name service does not know now."""
        real, gone = pwd.getpwuid, {intakes.USERS[0]}

        def getpwuid(uid: int) -> pwd.struct_passwd:
            if uid in gone:
                raise KeyError(uid)
            return real(uid)

        monkeypatch.setattr(pwd, "getpwuid", getpwuid)
        return gone

    def put(self, nas: Path, *names: str, uid: int = intakes.USERS[0]) -> None:
        for name in names:
            (nas / "submit" / name).write_text(intakes.SCRIPT)
            os.chown(nas / "submit" / name, uid, -1)

    async def test_unknown_owner_is_waited_for(self, nas: Path, unknown: set[int]) -> None:
        """As after a boot, while sssd starts; other users are served, and the inbox shows the reason."""
        slurm = intakes.FakeSlurm(intakes.Faults())
        here = harness(nas, slurm)
        self.put(nas, *FILES)
        self.put(nas, "other.sh", uid=intakes.USERS[1])
        for _ in range(500):
            await here.look()
        assert [job.name for job in slurm.jobs] == ["other.sh"]
        assert all("is not a user of this host" in claim.words for claim in here.clerk.claims.values())
        unknown.clear()
        await here.settle()
        intakes.assert_once(nas, slurm, (*FILES, "other.sh"))

    async def test_owner_unknown_for_ten_minutes_is_refused(self, nas: Path, unknown: set[int]) -> None:
        """All files together, not one every ten minutes."""
        slurm = intakes.FakeSlurm(intakes.Faults())
        here = harness(nas, slurm)
        self.put(nas, *(f"{number}.sh" for number in range(30)))
        await here.settle(looks=900)
        assert slurm.jobs == []
        assert len(list(intakes.filed(nas, "failed"))) == 2 * 30
        words = {entry.words for entry in here.clerk.journal.latest(99)}
        assert words == {f"its owner, uid {intakes.USERS[0]}, is not a user of this host"}

    async def test_grace_period_restarts_after_recovery(self, nas: Path, unknown: set[int]) -> None:
        """Two short outages are not one long outage, with or without a file between them."""
        slurm = intakes.FakeSlurm(intakes.Faults())
        here = harness(nas, slurm)
        for number in range(3):
            unknown.add(intakes.USERS[0])
            self.put(nas, f"{number}.sh")
            for _ in range(400):
                await here.look()
            unknown.clear()
            await here.settle()
        assert len(slurm.jobs) == 3

    async def test_missing_home_is_waited_for(self, nas: Path) -> None:
        """Also across a restart of the intake."""
        away = answers.Answer("rejected", words=f"{answers.NO_WORKDIR} /h: Stale file handle", passing=True)
        slurm = intakes.FakeSlurm(intakes.Faults(), saying=[away] * 5)
        here = harness(nas, slurm)
        intakes.drop(nas, "a.sh")
        while len(slurm.saying) > 2:
            await here.look()
        await here.look()
        (claim,) = here.clerk.claims.values()
        assert claim.words.startswith("waiting: penstock: cannot enter")
        await here.die()
        here.start()
        await here.settle()
        intakes.assert_once(nas, slurm, ("a.sh",))

    async def test_home_missing_for_ten_minutes_is_refused(self, nas: Path) -> None:
        """With the message of any folder that cannot be entered."""
        words = f"{answers.NO_WORKDIR} /h: No such file or directory"
        away = answers.Answer("rejected", words=words, passing=True)
        slurm = intakes.FakeSlurm(intakes.Faults(), saying=[away] * 100)
        here = harness(nas, slurm)
        intakes.drop(nas, "a.sh")
        began = here.clock.time
        await here.settle(looks=900)
        assert 600 <= here.clock.time - began <= 720
        assert slurm.jobs == []
        assert f"Slurm refused it.\n\n  {words}" in intakes.letter(nas)[0]
