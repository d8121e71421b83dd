"""An administrator's afternoon: Penstock comes to a Slurm with habits of its own, much fails, it goes."""

from __future__ import annotations

import shutil
from collections.abc import Iterator

import pytest
from tests.e2e import clusters, foreign, plainsite

from penstock_lab import testing

WAITING = "#!/bin/sh\nwhile [ ! -e go ]; do sleep 0.2; done\n"
SCRIPT = "#!/bin/sh\necho said by $0, ${SITE_WAS_HERE:-no} \nexit 7\n"
NOWHERE = "/proc/no/such/folder"
"""Programs of Slurm's read a slurm.conf with this StateSaveLocation; slurmctld does not start with it."""


@pytest.fixture(scope="module")
def site() -> Iterator[plainsite.PlainSite]:
    """A Slurm with Lua, Epilog and TaskProlog of its own, before Penstock."""
    with foreign.foreign_site() as made:
        yield made


def run_job(site: plainsite.PlainSite, partition: str) -> str:
    """A job through the site's own policy: exit code, output and the site's own Epilog; its number."""
    output = f"{partition}.out"
    argv = ("sbatch", "--parsable", f"--partition={partition}", f"--output={output}")
    answer = site.lab.run_as_user(argv, stdin=SCRIPT)
    assert "the site saw job" in answer.stderr
    job = answer.stdout.strip()
    assert site.lab.wait_for(job, "FAILED", timeout=180)["ExitCode"] == "7:0"
    testing.until(lambda: "said by" in (site.lab.home / output).read_text())
    testing.until(lambda: job in foreign.epilog_log(site).read_text().split("\n"))
    refused = site.lab.run_as_user((*argv, "--job-name=forbidden"), stdin=SCRIPT, check=False)
    assert "the site says no" in refused.stderr
    return job


def install(site: plainsite.PlainSite) -> None:
    """init, a look at the plan, apply, a bridged job, and one that stays on its node."""
    site.init()
    site.add_new_node()
    assert foreign.dry(site, "uninstall").returncode == 0
    assert foreign.dry(site, "apply").returncode == 1
    site.penstock("apply", "--yes")
    site.lab.penstock("lab", "restart", f"slurmd-{plainsite.NEW_NODE}")
    assert foreign.dry(site, "apply").returncode == 0
    run_job(site, "k8s")
    run_job(site, "host")
    assert "yes" in (site.lab.home / "host.out").read_text(), "the site's own TaskProlog ran"


def change_a_partition(site: plainsite.PlainSite) -> None:
    """A second bridged partition."""
    text = site.file.read_text()
    more = "partitions:\n  more:\n    mode: check\n    nodes:\n      - nodes1\n"
    site.file.write_text(text.replace("partitions:\n", more))
    assert foreign.dry(site, "apply").returncode == 1
    site.penstock("apply", "--yes")
    run_job(site, "more")


def break_and_repair_slurm_conf(site: plainsite.PlainSite) -> None:
    """A mistake of the administrator's own keeps slurmctld from starting; he repairs it, and it stays so."""
    conf = site.lab.place.slurm_conf
    good = conf.read_text()
    line = f"statesavelocation = {site.lab.place.controller_state}\n"
    assert line in good
    conf.write_text(good.replace(line, "") + f"StateSaveLocation={NOWHERE}\n")
    wanted = site.file.read_text()
    site.file.write_text(wanted.replace("  more:\n", "  more2:\n"))
    failed = site.penstock("apply", "--yes", check=False)
    assert "the rollback failed as well" in failed.stderr
    assert "was interrupted" in foreign.dry(site, "apply").stderr
    site.file.write_text(wanted)
    conf.write_text(good)
    assert "was interrupted" in foreign.dry(site, "apply").stderr
    assert conf.read_text() == good
    done = site.penstock("apply", "--yes")
    assert f"kept because changed by others: {conf}" in done.stderr
    assert conf.read_text() == good
    assert foreign.dry(site, "apply").returncode == 0
    run_job(site, "more")


def lose_the_records(site: plainsite.PlainSite) -> None:
    """Somebody empties the state folder; the site's own policy holds on, and apply knows its files again."""
    shutil.rmtree(site.lab.place.installed)
    assert "no records" in foreign.dry(site, "uninstall").stderr
    assert foreign.dry(site, "apply").returncode == 1
    before = site.files()
    site.penstock("apply", "--yes")
    assert site.files() == before
    assert foreign.dry(site, "apply").returncode == 0
    run_job(site, "k8s")


def keep_while_jobs_run(site: plainsite.PlainSite) -> None:
    """A job in a partition that the file no longer names is still a pod: uninstall waits for it."""
    wanted = site.file.read_text()
    job = site.lab.sbatch(WAITING, "--partition=more", "--output=/dev/null")
    site.lab.wait_for(job, "RUNNING")
    site.file.write_text(wanted.replace("  more:\n", "  other:\n"))
    refused = site.penstock("uninstall", "--yes", check=False)
    assert f"1 jobs are in k8s,more,other: {job}" in refused.stderr
    site.file.write_text(wanted)
    site.lab.run(("scancel", job))
    testing.until(lambda: not site.lab.run(("squeue", "--noheader", "--partition=k8s,more")).stdout)


def test_administrators_afternoon(site: plainsite.PlainSite) -> None:
    """Only agreed changes are made, and at the end every file is restored byte for byte."""
    lab = site.lab
    before, objects = site.files(), site.objects()
    running = lab.sbatch(WAITING, "--partition=host", "--output=/dev/null")
    lab.wait_for(running, "RUNNING")

    install(site)
    change_a_partition(site)
    break_and_repair_slurm_conf(site)
    lose_the_records(site)
    keep_while_jobs_run(site)
    assert foreign.dry(site, "uninstall").returncode == 1
    site.penstock("uninstall", "--yes")

    assert site.files() == before
    unknown = {f"Namespace/user-{lab.user}"}
    if not clusters.is_real():
        unknown.add("Namespace/penstock-system")  # the dev cluster does not tell who made it
    testing.until(lambda: site.objects() - objects <= unknown, seconds=60)
    assert foreign.dry(site, "uninstall").returncode == 0
    run_job(site, "host")
    assert (lab.job(running)["JobState"], lab.job(running)["Restarts"]) == ("RUNNING", "0")
    (lab.home / "go").touch()
    assert lab.wait_for(running, "COMPLETED")["ExitCode"] == "0:0"
