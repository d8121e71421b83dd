"""The group of a job: the one that it was submitted with, by plain Slurm and as a pod."""

from __future__ import annotations

import grp

from tests.e2e import semantics
from tests.e2e.semantics import Lab

OTHER = "games"


def test_a_job_runs_in_the_group_that_it_was_submitted_with(lab: Lab) -> None:
    """As after newgrp, or by root's --gid: what it writes belongs to that group."""
    folder = semantics.folder(lab)
    number = grp.getgrnam(OTHER).gr_gid
    found = {}
    for partition in (semantics.PLAIN, semantics.PODS):
        options = (f"--uid={lab.user}", f"--gid={number}", f"--partition={partition}", f"--chdir={folder}")
        wrap = f"--wrap=id -g; id -G; touch made-{partition}"
        argv = ("sbatch", "--parsable", f"--output={folder}/{partition}.txt", *options, wrap)
        job_id = lab.run(argv).stdout.strip()
        assert lab.accounted(job_id)[0] == "COMPLETED"
        own, groups = (folder / f"{partition}.txt").read_text().splitlines()
        found[partition] = (own, set(groups.split()), (folder / f"made-{partition}").stat().st_gid)
    assert found[semantics.PODS] == found[semantics.PLAIN]
    assert found[semantics.PODS][0] == str(number)
