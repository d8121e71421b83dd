"""The intake as its unit starts it: with the few capabilities it is given, and none to win back."""

from __future__ import annotations

from pathlib import Path

from tests.e2e import intakes

from penstock_lab import testing

UNIT = Path(__file__).parents[2] / "packaging" / "systemd" / "penstock-intake.service"


def capabilities() -> str:
    """The unit's set, as setpriv wants it: none, and these."""
    (line,) = (line for line in UNIT.read_text().splitlines() if line.startswith("CapabilityBoundingSet="))
    names = line.partition("=")[2].split()
    return ",".join(["-all", *(f"+{name.removeprefix('CAP_').lower()}" for name in names)])


def test_the_units_capabilities_suffice(lab: testing.RunningLab) -> None:
    """A file becomes a job, another is refused with a letter of its owner's."""
    prefix = ("setpriv", "--no-new-privs", "--bounding-set", capabilities())
    with intakes.own_intake(lab, prefix=prefix) as intake:
        intake.drop("good.sh")
        intake.drop("bad.sh", "#!/bin/sh\n#SBATCH --nonsense\n")
        testing.until(lambda: intake.filed("processed") and len(intake.filed("failed")) == 2, seconds=60)
        assert [name for _, name in intake.jobs()] == ["good.sh"]
        assert intake.filed("failed")["bad.sh.error.txt"].owner() == lab.user
        assert intake.stop() == 0
