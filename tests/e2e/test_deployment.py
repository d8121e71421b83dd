"""penstockd runs as the rendered Deployment says, with the account of its pod."""

from __future__ import annotations

import json
from pathlib import Path

from tests.e2e import deployed

from penstock_lab import spec, testing

SEVEN = "#!/bin/sh\necho in a pod\nexit 7\n"


def test_penstockd_runs_as_the_deployment_says() -> None:
    """It becomes ready, bridges a job, is found well, takes new settings, and goes with `uninstall`."""
    with deployed.deployed() as (lab, path):
        job = lab.sbatch(SEVEN, "--output=deployed.out")
        assert lab.wait_for(job, "FAILED", timeout=90)["ExitCode"] == "7:0"
        testing.until(lambda: "in a pod" in (lab.home / "deployed.out").read_text())
        report = json.loads(
            lab.penstock("doctor", "--format", "json", "--site", str(path), check=False).stdout
        )
        wrong = [each for each in report["checks"] if each["status"] not in ("ok", "skipped")]
        assert wrong == []
        lab.check()
        if testing.kubernetes() != spec.DEV:
            take_new_settings(lab, path)
        testing.until(lambda: not lab.run(("squeue", "--noheader")).stdout)
        lab.penstock("uninstall", "--yes", "--site", str(path))
        listed = lab.run(("kubectl", "get", "deployments", "-A", "-o", "name")).stdout
        assert "penstockd" not in listed


def take_new_settings(lab: testing.RunningLab, path: Path) -> None:
    """A changed site file ends in a new pod that has read it."""
    before = deployed.deployment(lab)["metadata"]["generation"]
    path.write_text(path.read_text().replace("penstockd:\n", "penstockd:\n  log_level: debug\n", 1))
    lab.penstock("apply", "--yes", "--site", str(path))
    testing.until(lambda: deployed.deployment(lab)["metadata"]["generation"] > before)
    testing.until(
        lambda: (
            deployed.deployment(lab)["status"].get("observedGeneration")
            == deployed.deployment(lab)["metadata"]["generation"]
            and deployed.deployment(lab)["status"].get("readyReplicas") == 1
        ),
        seconds=150,
    )
    argv = ("kubectl", "logs", "deployment/penstockd", "--namespace=penstock-system")
    testing.until(lambda: "listening on" in lab.run(argv, check=False).stdout, seconds=60)
