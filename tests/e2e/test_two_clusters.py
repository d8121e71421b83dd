"""Two Slurm clusters on one Kubernetes: each penstockd knows its own pods, and the other's are foreign."""

from __future__ import annotations

import time
from collections.abc import Iterator

import pytest
from tests.e2e import clusters, semantics

from penstock.bridge import sweeps
from penstock_lab import spec, testing

Lab = semantics.Lab
IMAGE = "#K8S_IMAGE=lab/host-userland:1\n"


@pytest.fixture
def second(lab: Lab) -> Iterator[Lab]:
    """Another Slurm, with another name and user, on the first one's cluster."""
    if not clusters.is_real():
        pytest.skip("a lab on another's cluster needs roles and accounts, which the dev cluster has not")
    place = testing.new_place()
    name = place.directory.name.removeprefix("penstock-")
    try:
        testing.lab_command(place, "up", "--name", name, "--kubernetes", str(lab.place.admin_kubeconfig))
        yield Lab(place=place, user=spec.load(place).user)
    finally:
        testing.lab_command(place, "down", "--force")


def names(lab: Lab) -> list[str]:
    """All pods of jobs, whoever's they are."""
    argv = ("kubectl", "get", "pods", "-A", "-l", "app=slurm-job", "-o", "name")
    return sorted(lab.run(argv).stdout.split())


def test_neither_touches_the_others_pods(lab: Lab, second: Lab) -> None:
    """Through several sweeps of both; what one holds makes the other wait, by name."""
    first_job = lab.sbatch("#!/bin/sh\nsleep 600\n", "--gres=gpu:3", "--nodelist=n1")
    second_job = second.sbatch(f"#!/bin/sh\n{IMAGE}sleep 600\n", "--gres=gpu:1", "--nodelist=n2")
    waiting = second.sbatch(f"#!/bin/sh\n{IMAGE}true\n", "--gres=gpu:2", "--nodelist=n1")
    semantics.wait_until(lambda: len(names(lab)) == 2, "both jobs have their pods")
    before = names(lab)
    words = f"1 free of 2 needed, held by user-{lab.user}/slurm-job-{first_job}"
    semantics.wait_until(lambda: words in semantics.field(second, waiting, "Comment"), "the third waits")
    time.sleep(2 * sweeps.INTERVAL + 2)
    assert names(lab) == before
    lab.run_as_user(("scancel", first_job))
    lab.wait_for(first_job, "CANCELLED")
    second.wait_for(second_job, "RUNNING")
    assert semantics.pods(second, second_job)
    second.run_as_user(("scancel", second_job, waiting))
    second.wait_for(second_job, "CANCELLED")
    semantics.wait_until(lambda: names(lab) == [], "nothing is left")
