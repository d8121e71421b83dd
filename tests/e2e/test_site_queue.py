"""A site is changed while jobs wait: they run all the same, or `penstock apply` says which would not."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from tests.e2e import plainsite

SEVEN = "#!/bin/sh\nexit 7\n"


@pytest.fixture(scope="module")
def site() -> Iterator[plainsite.PlainSite]:
    """A site with a bridged partition."""
    with plainsite.plain_site() as made:
        made.init()
        made.penstock("apply", "--yes")
        yield made


def waiting(site: plainsite.PlainSite, partition: str) -> str:
    """A job that has not started."""
    return site.lab.sbatch(SEVEN, f"--partition={partition}", "--begin=now+1hour", "--output=/dev/null")


def refused(site: plainsite.PlainSite, old: str, new: str) -> str:
    """What `apply` says to this change; the site file is as before afterwards."""
    text = site.file.read_text()
    assert old in text
    site.file.write_text(text.replace(old, new))
    before = site.files()
    answer = site.penstock("apply", "--yes", check=False)
    site.file.write_text(text)
    assert answer.returncode == 1, answer.stdout
    assert "--force" in answer.stderr
    assert site.files() == before
    return answer.stderr


def test_jobs_that_would_be_lost_keep_apply_from_changing_anything(site: plainsite.PlainSite) -> None:
    """A partition that goes would end its jobs; one that is bridged would keep its jobs for ever."""
    pod, plain = waiting(site, "k8s"), waiting(site, "host")
    said = refused(site, "  k8s:\n", "  renamed:\n")
    assert f"1 job would end as NODE_FAIL, because partition k8s is removed: {pod}" in said
    said = refused(site, "\npartitions:\n", "\npartitions:\n  host:\n    nodes: [nodes1]\n")
    assert "1 job in host could not start or run more steps" in said
    assert f"submitted before it was bridged: {plain}" in said
    assert [site.lab.job(each)["JobState"] for each in (pod, plain)] == ["PENDING", "PENDING"]
    site.lab.run(("scancel", pod, plain))


def test_jobs_that_wait_start_after_the_launcher_has_moved(site: plainsite.PlainSite) -> None:
    """Its path is in the first line of their stored scripts; once they have ended the old one goes."""
    old, new = site.lab.place.libexec, site.lab.place.libexec.with_name("moved")
    job = waiting(site, "k8s")
    site.file.write_text(site.file.read_text().replace(f"libexec: {old}\n", f"libexec: {new}\n"))
    assert f"{old}/penstock-launch: started by 1 job in the queue" in site.penstock("apply", "--yes").stdout
    site.lab.run(("scontrol", "update", f"JobId={job}", "StartTime=now"))
    assert site.lab.wait_for(job, "FAILED")["ExitCode"] == "7:0"
    site.penstock("apply", "--yes")
    assert not (old / "penstock-launch").exists()
    assert (new / "penstock-launch").exists()


def test_a_change_of_a_partition_restarts_nothing(site: plainsite.PlainSite) -> None:
    """slurmctld reads partitions anew while it runs."""
    before = booted(site)
    text = site.file.read_text()
    site.file.write_text(text.replace("  k8s:\n", '  k8s:\n    max_time: "2:00:00"\n'))
    said = site.penstock("apply", "--yes").stdout
    assert "! reload  daemon  slurmctld" in said
    assert "MaxTime=02:00:00" in site.lab.run(("scontrol", "show", "partition", "k8s")).stdout
    assert booted(site) == before


def booted(site: plainsite.PlainSite) -> str:
    """When slurmctld was started."""
    config = site.lab.run(("scontrol", "show", "config")).stdout
    return next(line for line in config.split("\n") if line.startswith("BOOT_TIME"))
