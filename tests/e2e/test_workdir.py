"""A job that is submitted where pods see nothing: what sbatch says, what comes of it, and its HOME."""

from __future__ import annotations

import json
import pwd
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.e2e import intakes, semantics

from penstock.render import workdirs, yamltext
from penstock.site import yamlreader
from penstock_lab import testing

Lab = testing.RunningLab
WRITES = "#!/bin/sh\necho weights >model.pt; pwd; ls\n"
AT_HOME = """#!/bin/sh
mkdir -p ~/.cache/hub && echo x >~/.cache/hub/model && cat "$HOME/.cache/hub/model"
echo "$HOME"
"""


@pytest.fixture(scope="module")
def guest(lab: Lab) -> Iterator[pwd.struct_passwd]:
    """Another user of the lab, whose home is no folder that pods see."""
    name = f"penstock-w{lab.place.directory.name[-6:]}"
    argv = ["useradd", "--system", "--user-group", "--no-create-home", "--shell", "/bin/sh", name]
    subprocess.run(argv, check=True, timeout=30)
    try:
        testing.lab_command(lab.place, "adduser", name)
        yield pwd.getpwnam(name)
    finally:
        subprocess.run(["userdel", name], check=True, timeout=30)


def refusal(lab: Lab, path: Path | str) -> str:
    nas = lab.place.nas
    lost = f"pods do not see the working directory {path}: what the job writes there would be lost"
    return f"penstock: {lost}. Submit from a folder under {nas}, or name one: --chdir={nas}/..."


@pytest.mark.parametrize("way", ["where-one-is", "chdir"])
def test_sbatch_refuses_where_files_would_vanish(lab: Lab, outside: Path, way: str) -> None:
    """With the way out in words; no job is made."""
    option, cwd = ((f"--chdir={outside}",), lab.home) if way == "chdir" else ((), outside)
    said = lab.run_as_user(("sbatch", "--parsable", *option), cwd=cwd, stdin=WRITES, check=False)
    assert (said.returncode, said.stdout) == (1, "")
    assert refusal(lab, outside) in said.stderr


def test_the_ways_out_work(lab: Lab, outside: Path) -> None:
    """--chdir to a shared folder, a folder of the script's own choice, or a partition without pods."""
    folder, output = semantics.folder(lab), f"--output={semantics.folder(lab)}/o"
    chosen = WRITES.replace("\n", "\n#K8S_WORKDIR=/var/tmp\n", 1)
    jobs = (
        lab.sbatch(WRITES, f"--chdir={folder}", "--output=o", cwd=outside),
        lab.sbatch(chosen, output, cwd=outside),
        lab.sbatch(WRITES, "--partition=host", cwd=outside),
    )
    assert {record.state for record in semantics.records(lab, jobs).values()} == {"COMPLETED"}
    assert (folder / "model.pt").read_text() == (outside / "model.pt").read_text() == "weights\n"
    assert (folder / "o").read_text().startswith(f"{folder}\n")


def test_a_dropped_file_is_refused_with_the_way_out(lab: Lab, outside: Path) -> None:
    """Beside the file, where its owner looks; cli_filter.lua finds it before slurmctld does."""
    with intakes.own_intake(lab) as intake:
        intake.drop("lost.sh", WRITES.replace("\n", f"\n#SBATCH --chdir={outside}\n", 1), user=lab.user)
        testing.until(lambda: "lost.sh.error.txt" in intake.filed("failed"))
        letter = intake.filed("failed")["lost.sh.error.txt"].read_text()
    assert f"error[missing-workdir]: pods do not see {outside}: sbatch refuses the job" in letter
    assert f"submit from a folder under {lab.place.nas}, or use --chdir" in letter


def test_validate_says_the_same(lab: Lab, outside: Path) -> None:
    """An error where the script says it, a warning where only the present folder does."""
    script, site = lab.home / "v.sh", ("--site", str(lab.place.site_yaml))
    script.write_text(f"#!/bin/sh\n#SBATCH --chdir={outside}\ntrue\n")
    said = lab.penstock("validate", *site, str(script), check=False)
    assert said.returncode == 1
    assert (
        f"v.sh:2:9: error[missing-workdir]: pods do not see {outside}: sbatch refuses the job" in said.stdout
    )
    script.write_text("#!/bin/sh\ntrue\n")
    said = lab.run(("penstock", "validate", *site, str(script)), cwd=outside)
    assert f"warning[missing-workdir]: pods do not see {outside}: sbatch refuses the job" in said.stdout


def test_a_home_that_pods_see_is_the_users_own(lab: Lab) -> None:
    """And what is written there stays."""
    cwd = semantics.folder(lab)
    job_id = lab.sbatch(AT_HOME, "--output=o", cwd=cwd)
    assert semantics.record(lab, job_id).state == "COMPLETED"
    assert (cwd / "o").read_text() == f"x\n{lab.home}\n"
    assert (lab.home / ".cache/hub/model").read_text() == "x\n"


def test_a_home_that_pods_do_not_see_is_there_all_the_same(lab: Lab, guest: pwd.struct_passwd) -> None:
    """Empty, writable, under its own name, and for this job alone."""
    for _ in range(2):
        job_id = lab.sbatch(f"{AT_HOME}ls -A ~\n", "--output=o", user=guest.pw_name)
        assert semantics.record(lab, job_id).state == "COMPLETED"
        text = (lab.place.nas_home(guest.pw_name) / "o").read_text()
        assert text == f"x\n{guest.pw_dir}\n.cache\n"
    assert not Path(guest.pw_dir).exists()


@pytest.fixture(scope="module")
def lenient() -> Iterator[Lab]:
    """A lab whose site lets such jobs run."""
    with testing.temporary_lab() as lab:
        document: dict[str, Any] = dict(yamlreader.read(lab.place.site_yaml.read_bytes()).data)
        document["nas"] = {**document["nas"], "missing_workdir": "tmp"}
        path = lab.place.etc / "lenient.yaml"
        path.write_text(yamltext.document(document) + "\n")
        (
            lab.place.etc / "job_submit.lua"
        ).unlink()  # no apply has written it: it would count as the site's own
        lab.penstock("apply", "--yes", "--site", str(path))
        yield lab


def test_a_site_may_let_such_jobs_run_in_tmp(lenient: Lab, outside: Path) -> None:
    """sbatch, the output, `show` and the results all say where it ran, and nothing else is claimed."""
    said = lenient.run_as_user(("sbatch", "--parsable"), cwd=outside, stdin=WRITES)
    job_id, lost = said.stdout.strip(), f"pods do not see the working directory {outside}"
    assert f"{lost}: the job runs in /tmp of its pod, and files it leaves there vanish with it" in said.stderr
    assert semantics.record(lenient, job_id).state == "COMPLETED"
    text = (outside / f"slurm-{job_id}.out").read_text()
    assert text.startswith(f"penstock: {lost}: the job runs in /tmp of its pod")
    assert "\n/tmp\nmodel.pt\n" in text
    assert not (outside / "model.pt").exists()
    shown = " ".join(lenient.run_as_user(("penstock", "show", job_id)).stdout.split())
    assert f"runs in /tmp of its pod: pods do not see {outside}" in shown
    results = lenient.place.nas_results / job_id
    testing.until((results / "checksums.txt").exists, seconds=60)
    summary = json.loads((results / "job_summary.json").read_text())
    assert (summary["workdir"], summary["lost_workdir"]) == (workdirs.TMP, str(outside))
    words = f"{workdirs.TMP} in the pod, removed with it: {outside} is not mounted in pods"
    assert words in (results / "job_summary.txt").read_text()
