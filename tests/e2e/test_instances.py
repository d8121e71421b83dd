"""What `explain`, `mkyaml` and `mkinst` make is taken by the lab's Kubernetes API."""

from __future__ import annotations

import json
import secrets

from penstock_lab import testing as lab_testing

SCRIPT = (
    "#!/bin/bash\n#SBATCH -N2 -c2 --mem=1G --gres=gpu:1 -t 5\n#K8S_IMAGE=lab/host-userland:latest\nhostname\n"
)


def words(job_id: int) -> tuple[str, ...]:
    """An instance that fits into any lab."""
    image = ("--image", "lab/host-userland:latest", "--cpu", "1", "--memory", "64M")
    return ("gpu1", "std", "2019123456", "--job-id", str(job_id), *image)


def test_manifests_of_explain_pass_a_server_side_dry_run(lab: lab_testing.RunningLab) -> None:
    """kubectl finds nothing wrong with the pods that explain prints."""
    script = lab.place.nas / "explained.sh"
    script.write_text(SCRIPT, encoding="utf-8")
    text = lab.penstock("explain", "--format", "yaml", str(script)).stdout
    documents = text.split("---\n")
    lab.run(("kubectl", "apply", "-f", "-"), stdin=documents[0])
    said = lab.run(("kubectl", "apply", "--dry-run=server", "-f", "-"), stdin=text).stdout
    assert said.count("pod/slurm-job-0") == 2


def test_mkinst_creates_what_mkyaml_prints(lab: lab_testing.RunningLab) -> None:
    """The pod is there, with the labels, owner and size that were asked for; a second one is refused."""
    job_id = 900_000 + secrets.randbelow(90_000)
    printed = lab.penstock("mkyaml", *words(job_id), "sleep", "60").stdout
    created = lab.penstock("mkinst", *words(job_id), "sleep", "60").stdout
    assert created == f"pod inst-{job_id} in namespace user-2019123456\n"
    there = (f"inst-{job_id}", "-n", "user-2019123456")
    try:
        shown = lab.run(("kubectl", "get", "pod", *there, "-o", "json"))
        pod = json.loads(shown.stdout)
        assert pod["metadata"]["labels"]["penstock.dev/job-id"] == str(job_id)
        assert f'penstock.dev/job-id: "{job_id}"' in printed
        assert pod["spec"]["securityContext"]["runAsUser"] == 2019123456
        assert pod["spec"]["containers"][0]["command"] == ["sleep", "60"]
        again = lab.penstock("mkinst", *words(job_id), check=False)
        assert again.returncode == 2
        assert "already exists" in again.stderr
    finally:
        lab.run(("kubectl", "delete", "pod", *there, "--grace-period=1"))
