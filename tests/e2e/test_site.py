"""An existing Slurm and an existing Kubernetes become one, and come apart again, while jobs run."""

from __future__ import annotations

import json
import subprocess
import sys
import time
from collections.abc import Iterator

import pytest
from tests.e2e import plainsite

from penstock import wellknown
from penstock.site import loader
from penstock_lab import testing

WAITING = "#!/bin/sh\nwhile [ ! -e go ]; do sleep 0.2; done\n"
SEVEN = "#!/bin/sh\necho in a pod on $(cat /penstock/slurm_script | head -1)\nexit 7\n"


@pytest.fixture(scope="module")
def site() -> Iterator[plainsite.PlainSite]:
    """A site before Penstock."""
    with plainsite.plain_site() as made:
        yield made


def submitted(site: plainsite.PlainSite, partition: str, output: str, *options: str) -> str:
    """A job's number; the site's own Lua must have seen it."""
    argv = ("sbatch", "--parsable", f"--partition={partition}", f"--output={output}", *options)
    answer = site.lab.run_as_user(argv, stdin=SEVEN)
    assert "the site saw job" in answer.stderr
    return answer.stdout.strip()


def install(site: plainsite.PlainSite) -> None:
    """A dry run, a call that cannot succeed, one that is killed, and then one that works, twice."""
    before = site.files()
    assert site.penstock("apply", "--dry-run", check=False).returncode == 1
    assert site.files() == before, "a dry run changes nothing"
    good = site.file.read_text()
    see_what_is_missing(site)
    site.file.write_text(good.replace("restart:\n", "restart:\n    - /bin/ls\n", 1))
    failed = site.penstock("apply", "--yes", check=False)
    assert "the rollback failed as well" in failed.stderr, (
        "neither can slurmctld be restarted with the old files"
    )
    site.file.write_text(good)
    killed_apply(site)
    answer = site.penstock("apply", "--yes", "--format", "json")
    assert "rolled back" in answer.stderr
    plan = json.loads(answer.stdout)["plan"]
    assert {"action": "restart", "what": "daemon", "name": "slurmctld"} in plan
    assert "Nothing to do" in site.penstock("apply", "--yes").stdout
    see_what_differs(site)


def see_what_is_missing(site: plainsite.PlainSite) -> None:
    """A node that Kubernetes lacks, a NAS that is not there and a restart that cannot work, all at once."""
    good, before = site.file.read_text(), site.files()
    bad = good.replace("restart:\n", "restart:\n    - /bin/false\n", 1)
    bad = bad.replace("    nodes: n1\n", '    nodes: "n1,n99"\n').replace(
        f"path: {site.lab.place.nas}", "path: /no/nas"
    )
    site.file.write_text(bad)
    for words in (("--dry-run",), ("--yes",)):
        answer = site.penstock("apply", *words, check=False)
        assert answer.returncode == 1
        said = [line.rpartition(site.file.name)[2] for line in answer.stderr.split("\n")]
        for key in ("slurm.restart", "nas.path", "node_groups.nodes1.nodes: Kubernetes has no node n99"):
            place = next(line.partition(f": {key}")[0] for line in said if f": {key}" in line)
            assert place.count(":") == 2, f"{key} with its line and column"
        assert site.files() == before
    site.file.write_text(good)


def see_what_differs(site: plainsite.PlainSite) -> None:
    """`render --diff` finds nothing after `apply`, then what somebody changed on host and cluster."""
    parts = ("--only", "slurm", "--only", "hooks", "--only", "penstockd", "--only", "kubernetes")
    same = site.penstock("render", "--diff", *parts, check=False)
    assert (same.stdout, same.returncode) == ("", 0)
    epilog = site.lab.place.libexec / wellknown.EPILOG
    before = epilog.read_bytes()
    epilog.write_bytes(before + b"# mine\n")
    name = f"penstockd-{loader.load(site.file).cluster}"
    role = ("kubectl", "label", "clusterrole", name, "--overwrite")
    site.lab.run((*role, "app.kubernetes.io/managed-by=me"))
    odd = site.penstock("render", "--diff", *parts, check=False)
    epilog.write_bytes(before)
    site.lab.run((*role, "app.kubernetes.io/managed-by=penstock"))
    assert odd.returncode == 1
    assert "-# mine" in odd.stdout
    assert "-    app.kubernetes.io/managed-by: me\n+    app.kubernetes.io/managed-by: penstock" in odd.stdout


def killed_apply(site: plainsite.PlainSite) -> None:
    """`penstock apply`, ended with SIGKILL as soon as it has begun to change things."""
    journal = site.lab.place.installed / "installed" / "journal.json"
    site.penstock("uninstall", "--yes")  # puts right what the one before has left
    assert not journal.exists()
    argv = (sys.executable, "-m", "penstock", "apply", "--yes", "--site", str(site.file))
    with subprocess.Popen(argv, env=site.lab.env, stdout=subprocess.PIPE, stderr=subprocess.STDOUT) as child:
        while child.poll() is None and not journal.exists():
            time.sleep(0.005)
        child.kill()
        said = child.communicate(timeout=120)[0].decode()
    assert journal.exists(), f"it ended before it could be killed: {said}"


def run_bridged(site: plainsite.PlainSite) -> None:
    """A job in a pod on a node new to Slurm, its true exit code, and the site's own Lua asked first."""
    lab = site.lab
    job = submitted(site, "k8s", "bridged.out", f"--nodelist={plainsite.NEW_NODE}", "--gpus-per-node=1")
    assert lab.wait_for(job, "FAILED", timeout=180)["ExitCode"] == "7:0"
    testing.until(lambda: "in a pod" in (lab.home / "bridged.out").read_text())
    refused = lab.run_as_user(("sbatch", "--partition=k8s", "--job-name=forbidden"), stdin=SEVEN, check=False)
    assert "the site says no" in refused.stderr
    testing.until(lambda: not lab.run(("squeue", "--noheader", "--partition=k8s")).stdout)


def require_health(site: plainsite.PlainSite) -> None:
    """`penstock doctor` finds nothing."""
    report = json.loads(site.penstock("doctor", "--probe", "--format", "json", check=False).stdout)
    wrong = [each for each in report["checks"] if each["status"] not in ("ok", "skipped")]
    assert wrong == []


def test_a_plain_slurm_is_bridged_and_comes_apart_again(site: plainsite.PlainSite) -> None:
    """init, apply, submit, doctor, uninstall: the job that runs and the site's own Lua never notice."""
    lab = site.lab
    before, objects = site.files(), site.objects()
    users = {f"Namespace/user-{lab.user}"}
    running = lab.sbatch(WAITING, "--partition=host", "--output=/dev/null")
    lab.wait_for(running, "RUNNING")

    said = site.init().stdout
    assert "in Slurm and Kubernetes: n1\n" in said
    assert f"only in Kubernetes: {plainsite.NEW_NODE}\n" in said
    site.add_new_node()
    install(site)
    lab.penstock("lab", "restart", f"slurmd-{plainsite.NEW_NODE}")
    run_bridged(site)
    require_health(site)
    said = site.penstock("uninstall", "--yes").stdout
    assert f"namespaces of jobs: user-{lab.user}" in said
    assert f"folders: {lab.place.nas}/slurm-jobs, {lab.place.nas}/results" in said
    assert f"penstockd, which listens on {lab.place.penstockd_socket}" in said

    assert site.files() == before
    testing.until(lambda: site.objects() - objects <= users, seconds=60)
    assert not (lab.place.installed / "installed").exists()
    later = submitted(site, "host", "/dev/null")
    assert lab.wait_for(later, "FAILED")["ExitCode"] == "7:0"
    still = lab.job(running)
    assert (still["JobState"], still["Restarts"]) == ("RUNNING", "0")
    (lab.home / "go").touch()
    assert lab.wait_for(running, "COMPLETED")["ExitCode"] == "0:0"
