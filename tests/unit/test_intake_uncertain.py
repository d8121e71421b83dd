"""What cannot be known is asked, what may pass is waited for: lost answers, reboots, hosts in trouble."""

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
from tests.unit.intakes import desk, nas

__all__ = ["nas"]  # pytest finds the fixture by its name

pytestmark = pytest.mark.skipif(os.geteuid() != 0, reason="only root can give files away")
FILES = ("a.sh", "b.sh", "c.sh")


class TestReboots:
    """The power fails just after a submission: no trace is left, and the journal may lack its end."""

    @pytest.fixture
    def boot(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
        path = tmp_path / "boot_id"
        path.write_text("1")
        monkeypatch.setattr(spools, "BOOT_ID", path)
        return path

    async def submitted(self, nas: Path) -> intakes.Desk:
        """One file is a job, and only slurmctld knows it."""
        slurm = intakes.FakeSlurm(intakes.Faults(), spool=spools.Spool(nas.parent / "spool"))
        here = desk(nas, slurm)
        await here.look()
        intakes.drop(nas, "a.sh")
        while not slurm.jobs:
            await here.look(step=0.6)
        await here.die()
        return here

    def reboot(self, boot: Path) -> None:
        boot.write_text("2")

    def restart(self, here: intakes.Desk) -> None:
        here.slurm.spool = spools.Spool(here.folder.parent / "spool")
        here.start()

    async def test_the_second_start_doubts_what_the_first_one_doubted(self, nas: Path, boot: Path) -> None:
        """Slurm could not be asked in between: the file still becomes one job."""
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

    async def test_a_start_without_the_nas_forgets_no_doubt(self, nas: Path, boot: Path) -> None:
        """Nothing was looked at, so nothing is known."""
        here = await self.submitted(nas)
        self.reboot(boot)
        self.restart(here)
        self.restart(here)
        await here.settle()
        intakes.assert_once(nas, here.slurm, ("a.sh",))

    async def test_what_the_journal_says_waits_may_have_been_tried_again(self, nas: Path, boot: Path) -> None:
        """The power has taken back the entry of the try that succeeded."""
        here = await self.submitted(nas)
        (entry,) = here.clerk.journal.open()
        here.clerk.journal.put(msgspec.structs.replace(entry, state=entries.WAITING))
        self.reboot(boot)
        self.restart(here)
        await here.settle()
        intakes.assert_once(nas, here.slurm, ("a.sh",))


class TestDoubt:
    @staticmethod
    async def killed_after_submitting(nas: Path, slurm: intakes.FakeSlurm) -> intakes.Desk:
        """An intake that was killed when Slurm had the job of a.sh, and has been started again."""
        here = desk(nas, slurm)
        intakes.drop(nas, "a.sh")
        while not slurm.jobs:
            await here.look()
        await here.die()
        here.start()
        return here

    @pytest.mark.parametrize("silent", [1, 9])
    async def test_time_in_which_slurm_cannot_be_asked_does_not_count(self, nas: Path, silent: int) -> None:
        """slurmdbd is back, and slurmctld has not yet sent it what it has itself forgotten."""
        slurm = intakes.FakeSlurm(intakes.Faults(), traceless=True, silent=silent, blind=2)
        here = await self.killed_after_submitting(nas, slurm)
        await here.settle(looks=1000)
        intakes.assert_once(nas, slurm, ("a.sh",))

    async def test_an_answer_from_before_such_a_time_does_not_count(self, nas: Path) -> None:
        """Only answers in a row, over the whole time, say that Slurm has no such job."""
        slurm = intakes.FakeSlurm(intakes.Faults(), traceless=True, blind=1)
        here = await self.killed_after_submitting(nas, slurm)
        while not slurm.asked:
            await here.look()
        slurm.silent, slurm.blind = 9, 1
        await here.settle(looks=1000)
        intakes.assert_once(nas, slurm, ("a.sh",))

    async def test_a_gres_that_only_slurm_conf_names_is_slurms_to_judge(self, nas: Path) -> None:
        """The intake does not know its GresTypes, and sbatch does."""
        slurm = intakes.FakeSlurm(intakes.Faults())
        here = desk(nas, slurm)
        intakes.drop(nas, "a.sh", text="#!/bin/sh\n#SBATCH --gres=lscratch:100\ntrue\n")
        await here.settle()
        intakes.assert_once(nas, slurm, ("a.sh",))

    async def test_an_unknown_outcome_is_looked_up_before_it_is_tried_again(self, nas: Path) -> None:
        """Not found for long enough means: there is no such job."""
        slurm = intakes.FakeSlurm(intakes.Faults(), saying=[answers.Answer("unknown")])
        intakes_desk = desk(nas, slurm)
        intakes.drop(nas, "a.sh")
        await intakes_desk.settle()
        intakes.assert_once(nas, slurm, ("a.sh",))
        assert slurm.asked >= 2

    async def test_jobs_of_others_with_the_same_token_count_for_nothing(self, nas: Path) -> None:
        """Nobody can make another's file vanish."""
        slurm = intakes.FakeSlurm(intakes.Faults(), saying=[answers.Answer("unknown")])
        here = desk(nas, slurm)
        intakes.drop(nas, "a.sh", uid=intakes.USERS[0])
        for _ in range(3):
            await here.look()
        (claim,) = here.clerk.claims.values()
        forged = submissions.Submission(claim.token, "x", b"", intakes.USERS[1], 0, (), "/", {})
        slurm.jobs.append(forged)
        await here.settle()
        assert [job.uid for job in slurm.jobs] == [intakes.USERS[1], intakes.USERS[0]]

    async def test_not_now_is_tried_again_and_holds_up_nobody_else(self, nas: Path) -> None:
        """A limit of one user's is that user's alone."""
        full = answers.Answer("later", words="AssocMaxSubmitJobLimit")
        slurm = intakes.FakeSlurm(intakes.Faults(), saying=[full, full, full])
        here = desk(nas, slurm, in_flight=1, in_flight_per_user=1)
        intakes.drop(nas, "a.sh", uid=intakes.USERS[0])
        for _ in range(3):
            await here.look(step=0.7)
        intakes.drop(nas, "b.sh", uid=intakes.USERS[1])
        slurm.saying.clear()
        await here.settle()
        assert sorted(job.name for job in slurm.jobs) == ["a.sh", "b.sh"]

    async def test_a_limit_that_stays_does_not_claim_the_whole_folder(self, nas: Path) -> None:
        """Files wait where their owner put them."""
        full = answers.Answer("later", words="QOSMaxSubmitJobPerUserLimit")
        slurm = intakes.FakeSlurm(intakes.Faults(), saying=[full] * 1000)
        here = desk(nas, slurm)
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

    async def test_words_that_a_user_has_put_into_an_answer_hold_up_nobody_else(self, nas: Path) -> None:
        """What an answer means is not read from its words again."""
        words = "invalid partition specified: connect failure"
        slurm = intakes.FakeSlurm(intakes.Faults(), saying=[answers.Answer("later", words=words)] * 9)
        here = desk(nas, slurm)
        for number in range(9):
            intakes.drop(nas, f"evil{number}.sh", uid=intakes.USERS[1])
        for _ in range(4):
            await here.look(step=0.6)
        slurm.saying.clear()
        intakes.drop(nas, "good.sh")
        for _ in range(4):
            await here.look(step=0.6)
        assert [job.name for job in slurm.jobs][:1] == ["good.sh"]

    async def test_a_slurmctld_out_of_reach_is_asked_by_nobody_for_a_while(self, nas: Path) -> None:
        """One sbatch that found nobody is enough."""
        away = answers.Answer("later", words="Unable to contact slurm controller", away=True)
        slurm = intakes.FakeSlurm(intakes.Faults(), saying=[away])
        here = desk(nas, slurm)
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

    async def test_a_script_that_asks_for_no_job_is_refused_with_its_line(self, nas: Path) -> None:
        """sbatch --test-only answers and submits nothing: it would be looked for and asked again for ever."""
        slurm = intakes.FakeSlurm(intakes.Faults())
        here = desk(nas, slurm)
        intakes.drop(nas, "a.sh", text="#!/bin/sh\n#SBATCH --time=1\n#SBATCH --test-only\ntrue\n")
        await here.settle()
        assert slurm.jobs == []
        letter, _ = intakes.letter(nas)
        assert "line 3: with --test-only (a.sh:3) sbatch only says when a job could start" in letter
        assert "      #SBATCH --test-only\n" in letter

    async def test_what_slurm_refuses_is_explained(self, nas: Path) -> None:
        """In Slurm's own words, beside the file."""
        no = answers.Answer("rejected", words="Batch job submission failed: Invalid account")
        here = desk(nas, intakes.FakeSlurm(intakes.Faults(), saying=[no]))
        intakes.drop(nas, "a.sh")
        await here.settle()
        assert list(intakes.filed(nas, "failed")) == ["a.sh", "a.sh.error.txt"]
        letter, owner = intakes.letter(nas)
        assert "Invalid account" in letter
        assert owner == intakes.USERS[0]


class TestPatience:
    """Troubles of the host that look like a mistake of the user's."""

    @pytest.fixture
    def unknown(self, monkeypatch: pytest.MonkeyPatch) -> set[int]:
        """Owners that the name service does not know at the moment."""
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

    async def test_an_owner_that_nobody_knows_yet_is_waited_for(self, nas: Path, unknown: set[int]) -> None:
        """As after a boot, while sssd starts; others are served, and the inbox says why it waits."""
        slurm = intakes.FakeSlurm(intakes.Faults())
        here = desk(nas, slurm)
        self.put(nas, *FILES)
        self.put(nas, "other.sh", uid=intakes.USERS[1])
        for _ in range(500):
            await here.look()
        assert [job.name for job in slurm.jobs] == ["other.sh"]
        assert all("is no user of this host" in claim.words for claim in here.clerk.claims.values())
        unknown.clear()
        await here.settle()
        intakes.assert_once(nas, slurm, (*FILES, "other.sh"))

    async def test_an_owner_that_nobody_knows_for_ten_minutes_is_refused(
        self, nas: Path, unknown: set[int]
    ) -> None:
        """All of the files, not each ten minutes after the one before it."""
        slurm = intakes.FakeSlurm(intakes.Faults())
        here = desk(nas, slurm)
        self.put(nas, *(f"{number}.sh" for number in range(30)))
        await here.settle(looks=900)
        assert slurm.jobs == []
        assert len(list(intakes.filed(nas, "failed"))) == 2 * 30
        words = {entry.words for entry in here.clerk.journal.latest(99)}
        assert words == {f"its owner, number {intakes.USERS[0]}, is no user of this host"}

    async def test_each_trouble_of_the_name_service_has_its_own_time(
        self, nas: Path, unknown: set[int]
    ) -> None:
        """Two short ones are not one long one, whether a file came between them or not."""
        slurm = intakes.FakeSlurm(intakes.Faults())
        here = desk(nas, slurm)
        for number in range(3):
            unknown.add(intakes.USERS[0])
            self.put(nas, f"{number}.sh")
            for _ in range(400):
                await here.look()
            unknown.clear()
            await here.settle()
        assert len(slurm.jobs) == 3

    async def test_a_home_that_comes_back_is_no_refusal(self, nas: Path) -> None:
        """Also when the intake is started anew meanwhile."""
        away = answers.Answer("rejected", words=f"{answers.NO_WORKDIR} /h: Stale file handle", passing=True)
        slurm = intakes.FakeSlurm(intakes.Faults(), saying=[away] * 5)
        here = desk(nas, slurm)
        intakes.drop(nas, "a.sh")
        while len(slurm.saying) > 2:
            await here.look()
        await here.look()
        (claim,) = here.clerk.claims.values()
        assert claim.words.startswith("waits: penstock: cannot enter")
        await here.die()
        here.start()
        await here.settle()
        intakes.assert_once(nas, slurm, ("a.sh",))

    async def test_a_home_that_stays_away_is_a_refusal(self, nas: Path) -> None:
        """After ten minutes, in the words of any other folder that cannot be entered."""
        words = f"{answers.NO_WORKDIR} /h: No such file or directory"
        away = answers.Answer("rejected", words=words, passing=True)
        slurm = intakes.FakeSlurm(intakes.Faults(), saying=[away] * 100)
        here = desk(nas, slurm)
        intakes.drop(nas, "a.sh")
        began = here.clock.time
        await here.settle(looks=900)
        assert 600 <= here.clock.time - began <= 720
        assert slurm.jobs == []
        assert f"Slurm refused it.\n\n  {words}" in intakes.letter(nas)[0]
