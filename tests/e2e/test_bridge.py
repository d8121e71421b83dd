"""An unmodified sbatch script through real Slurm into a pod and back, and what must not happen on the way."""

from __future__ import annotations

import json
import time
from pathlib import Path

import pytest
from tests.e2e import labs, semantics

from penstock.kube import podview
from penstock.model import resources
from penstock_lab import testing

Lab = testing.RunningLab
SELECTOR = ("-l", "app=slurm-job")


def pods(lab: Lab, job_id: str = "") -> list[semantics.Json]:
    """Our pods, of one job or of all, as the API has them."""
    selector = "app=slurm-job" + (f",penstock.dev/job-id={job_id}" if job_id else "")
    return semantics.selected(lab, selector)


def wait_until_running(lab: Lab, job_id: str, text: str, file: Path) -> None:
    """The job runs and has said so in its output."""
    lab.wait_for(job_id, "RUNNING")
    deadline = time.monotonic() + 120
    while not (file.exists() and text in file.read_text()):
        assert time.monotonic() < deadline, f"{file} does not say {text!r}"
        time.sleep(0.05)


def until_told(lab: Lab, word: str) -> str:
    """A script that goes on until it is told to end."""
    (lab.home / f"{word}.end").unlink(missing_ok=True)
    return f"#!/bin/sh\necho up\nuntil [ -e {lab.home}/{word}.end ]; do sleep 0.1; done\n"


def tell(lab: Lab, word: str) -> None:
    (lab.home / f"{word}.end").touch()


def uid(pod: dict[str, object]) -> str:
    meta = pod["metadata"]
    assert isinstance(meta, dict)
    return str(meta["uid"])


def outcome(lab: Lab, job_id: str) -> tuple[str, str]:
    """State (one word) and exit code in the accounting."""
    state, code = lab.accounted(job_id)
    return state.partition(" ")[0], code


def test_script_arguments_environment_and_output(lab: Lab) -> None:
    """The pod gets what plain Slurm would have given the script, and the result is in Slurm's record."""
    script = lab.home / "args.sh"
    script.write_text('#!/bin/bash\necho "[$1] [$2] [$COLOUR] $(id -un) $(pwd)"\necho problem >&2\n')
    argv = ("sbatch", "--parsable", "--export=ALL,COLOUR=it's blue", str(script), "a b", "$c")
    job_id = lab.run_as_user(argv).stdout.strip()
    assert outcome(lab, job_id) == ("COMPLETED", "0:0")
    text = (lab.home / f"slurm-{job_id}.out").read_text()
    assert text == f"[a b] [$c] [it's blue] {lab.user} {lab.home}\nproblem\n"


def test_the_script_is_left_as_the_user_wrote_it(lab: Lab) -> None:
    """Only the first line differs, and only in Slurm's own copy."""
    body = "\n#SBATCH -n1\n\techo  'tabs and  spaces'\n# end without newline"
    job_id = lab.sbatch(f"#!/bin/bash{body}", "--hold")
    stored = lab.run(("scontrol", "write", "batch_script", job_id, "-")).stdout
    first, _, rest = stored.partition("\n")
    assert first == f"#!{lab.place.libexec}/penstock-launch /bin/bash"
    assert f"\n{rest.rstrip()}" == body
    lab.run(("scancel", job_id))


def test_the_exit_code_is_the_containers(lab: Lab) -> None:
    """FAILED 7:0, and nothing of the job is left in the cluster."""
    job_id = lab.sbatch("#!/bin/sh\nexit 7\n")
    assert outcome(lab, job_id) == ("FAILED", "7:0")
    lab.wait_for(job_id, "FAILED")
    assert pods(lab, job_id) == []
    secrets = lab.run(("kubectl", "get", "secrets", "-A", *SELECTOR, "-o", "name")).stdout
    assert f"slurm-job-{job_id}\n" not in secrets


def test_the_pod_has_the_jobs_share_and_its_owner(lab: Lab) -> None:
    """Requests are Slurm's share, the process is the user's, kube-scheduler is not asked."""
    job_id = lab.sbatch(
        "#!/bin/sh\necho up; sleep 600\n",
        "-n2",
        "--mem=300M",
        "--gres=gpu:1",
        f"--output={lab.home}/share.out",
    )
    wait_until_running(lab, job_id, "up", lab.home / "share.out")
    (pod,) = pods(lab, job_id)
    spec = pod["spec"]
    assert isinstance(spec, dict)
    requests = podview.amount(spec["containers"][0]["resources"]["requests"])
    assert requests == resources.Amount(millicpus=2000, memory=300 * 2**20, gpus=1)
    assert spec["schedulerName"] == "penstock"
    assert spec["nodeName"] == lab.job(job_id)["NodeList"]
    assert spec["automountServiceAccountToken"] is False
    lab.run_as_user(("scancel", job_id))
    assert outcome(lab, job_id)[0] == "CANCELLED"


def test_an_array_is_a_pod_per_task(lab: Lab) -> None:
    """Each task has its own id, output and record."""
    job_id = lab.sbatch("#!/bin/sh\necho $SLURM_ARRAY_TASK_ID; exit $SLURM_ARRAY_TASK_ID\n", "--array=0-2")
    assert outcome(lab, f"{job_id}_0") == ("COMPLETED", "0:0")
    for task in (1, 2):
        assert outcome(lab, f"{job_id}_{task}") == ("FAILED", f"{task}:0")
        assert (lab.home / f"slurm-{job_id}_{task}.out").read_text() == f"{task}\n"


def test_scancel_reaches_the_script_and_leaves_nothing(lab: Lab) -> None:
    """SIGTERM comes to all processes of the job, the trap runs, the pod goes, the record says CANCELLED."""
    output = lab.home / "trap.out"
    job_id = lab.sbatch(
        "#!/bin/bash\ntrap 'echo bye; exit 3' TERM\necho ready\nsleep 100\n", f"--output={output}"
    )
    wait_until_running(lab, job_id, "ready", output)
    began = time.monotonic()
    lab.run_as_user(("scancel", job_id))
    lab.wait_for(job_id, "CANCELLED")
    assert outcome(lab, job_id)[0] == "CANCELLED"
    assert time.monotonic() - began < 90  # the script itself would sleep for longer
    assert "bye" in output.read_text()
    assert "deleted from outside" not in output.read_text()
    assert pods(lab, job_id) == []


def test_a_gang_has_a_pod_on_every_node(lab: Lab) -> None:
    """Two nodes, whichever Slurm chose, two pods; both are gone when the script ends."""
    output = lab.home / "gang.out"
    job_id = lab.sbatch(until_told(lab, "gang"), "-N2", "-n3", f"--output={output}")
    wait_until_running(lab, job_id, "up", output)
    specs = [pod["spec"] for pod in pods(lab, job_id)]
    chosen = lab.run(("scontrol", "show", "hostnames", lab.job(job_id)["NodeList"])).stdout.split()
    tell(lab, "gang")
    assert len(chosen) == 2
    assert sorted(spec["nodeName"] for spec in specs if isinstance(spec, dict)) == chosen
    assert outcome(lab, job_id) == ("COMPLETED", "0:0")
    lab.wait_for(job_id, "COMPLETED")
    assert pods(lab, job_id) == []


def test_output_outside_the_nas_is_streamed_through_the_launcher(lab: Lab, outside: Path) -> None:
    """A path that pods cannot see gets every byte all the same."""
    script = "#!/bin/bash\nfor i in {1..5000}; do echo line $i; done; exit 4\n"
    job_id = lab.sbatch(script, f"--output={outside}/slurm-%j.out")
    assert outcome(lab, job_id) == ("FAILED", "4:0")
    lines = (outside / f"slurm-{job_id}.out").read_text().splitlines()
    assert [line for line in lines if line.startswith("line")] == [f"line {i}" for i in range(1, 5001)]


@pytest.mark.parametrize("shared", [True, False], ids=["written-by-pod", "streamed"])
def test_killing_penstockd_changes_nothing_for_a_job(lab: Lab, outside: Path, shared: bool) -> None:
    """SIGKILL while a job runs, and a new one: same pod, whole output, true end."""
    output = (lab.home if shared else outside) / "survivor.out"
    enough = lab.home / f"enough-{shared}"
    enough.unlink(missing_ok=True)
    script = (
        f"#!/bin/bash\nfor i in {{1..300}}; do echo tick $i; sleep 0.5; [ -e {enough} ] && exit 5; done\n"
    )
    job_id = lab.sbatch(script, f"--output={output}")
    wait_until_running(lab, job_id, "tick 2", output)
    before = pods(lab, job_id)
    labs.kill(lab.place, "penstockd")
    lab.penstock("lab", "up", "--dir", str(lab.place.directory))
    after = pods(lab, job_id)
    assert [uid(pod) for pod in after] == [uid(pod) for pod in before]
    enough.touch()
    assert outcome(lab, job_id) == ("FAILED", "5:0")
    ticks = [line for line in output.read_text().splitlines() if "tick" in line]
    assert ticks == [f"tick {i}" for i in range(1, len(ticks) + 1)]
    assert lab.job(job_id)["Restarts"] == "0"


def test_a_foreign_pod_makes_the_job_wait_with_the_reason(lab: Lab) -> None:
    """No room: requeued, not held, no drained node, the holder named; it runs when the room is free."""
    manifest = {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": "notebook-7", "namespace": "default"},
        "spec": {
            "nodeName": "n3",
            "terminationGracePeriodSeconds": 1,
            "containers": [
                {
                    "name": "c",
                    "image": "lab/host-userland:1",
                    "command": ["/bin/sleep", "600"],
                    "resources": {"requests": {"nvidia.com/gpu": "3"}, "limits": {"nvidia.com/gpu": "3"}},
                }
            ],
        },
    }
    lab.run(("kubectl", "apply", "-f", "-"), stdin=json.dumps(manifest))
    try:
        job_id = lab.sbatch("#!/bin/sh\necho ran\n", "--gres=gpu:2", "--nodelist=n3")
        deadline = time.monotonic() + 120
        while "notebook-7" not in lab.run(("scontrol", "show", "job", job_id)).stdout:
            assert time.monotonic() < deadline
            time.sleep(0.2)
        shown = lab.run(("scontrol", "show", "job", job_id)).stdout
        assert "waits for gpu on n3: 1 free of 2 needed, held by default/notebook-7" in shown
        lab.wait_for(job_id, "PENDING")
        testing.until(lambda: "held by default/notebook-7" in waits_for(lab, job_id))
        assert lab.job(job_id)["Reason"] != "JobHeldAdmin"
        assert "drain" not in lab.run(("sinfo", "-h", "-o", "%T")).stdout
    finally:
        lab.run(("kubectl", "delete", "pod", "notebook-7", "--wait=true"))
    assert outcome_within(lab, job_id, 180) == ("COMPLETED", "0:0")


def waits_for(lab: Lab, job_id: str) -> str:
    """What `penstock jobs` says to its owner."""
    listed = json.loads(lab.run_as_user(("penstock", "jobs", "--format", "json")).stdout)["jobs"]
    reason = next(job["reason"] for job in listed if job["job"] == job_id)
    return reason["text"] if reason and reason["source"] == "kubernetes" else ""


def outcome_within(lab: Lab, job_id: str, seconds: float) -> tuple[str, str]:
    lab.wait_for(job_id, "COMPLETED", "FAILED", timeout=seconds)
    return outcome(lab, job_id)


def test_an_unbridged_partition_is_plain_slurm(lab: Lab) -> None:
    """No wrapper, no pod, and steps work."""
    job_id = lab.sbatch("#!/bin/sh\nreadlink /proc/$$/exe; srun echo step\n", "--partition=host")
    assert outcome(lab, job_id) == ("COMPLETED", "0:0")
    assert lab.run(("scontrol", "write", "batch_script", job_id, "-")).stdout.startswith("#!/bin/sh\n")
    assert "step" in (lab.home / f"slurm-{job_id}.out").read_text()


def test_steps_of_bridged_jobs_do_not_run_on_the_node(lab: Lab) -> None:
    """`srun --jobid` from outside is stopped with an error, and the job is unharmed."""
    output = lab.home / "guarded.out"
    job_id = lab.sbatch(until_told(lab, "guarded"), f"--output={output}")
    wait_until_running(lab, job_id, "up", output)
    marker = lab.home / "escaped"
    result = lab.run_as_user(("srun", f"--jobid={job_id}", "--overlap", "touch", str(marker)), check=False)
    assert "error" in result.stderr
    assert not marker.exists()
    tell(lab, "guarded")
    assert outcome(lab, job_id) == ("COMPLETED", "0:0")


@pytest.mark.parametrize(
    ("argv", "words"),
    [
        (("sbatch", "-p", "nowhere", "--wrap", "true"), "invalid partition specified"),
        (("sbatch", "-p", "gpu,host", "--wrap", "true"), "choose one kind"),
        (("sbatch", "-J", "two\nlines", "--wrap", "true"), "control character"),
        (("salloc", "true"), "need a batch script"),
        (("srun", "true"), "need a batch script"),
        (("sbatch", "/nonexistent.sh"), "Unable to open"),
    ],
)
def test_unsupported_jobs_are_refused_at_submission(lab: Lab, argv: tuple[str, ...], words: str) -> None:
    """One clear line, and no job."""
    result = lab.run_as_user(argv, check=False)
    assert result.returncode != 0
    assert words in result.stderr


def test_malformed_directive_is_reported_with_its_line(lab: Lab) -> None:
    """The user sees which line to correct."""
    script = "#!/bin/sh\n#SBATCH -n1\n#K8S_IMAGE pytorch\ntrue\n"
    result = lab.run_as_user(("sbatch",), stdin=script, check=False)
    assert result.returncode != 0
    assert 'line 3 of the script: "#K8S_IMAGE pytorch"' in result.stderr


def test_queued_job_cannot_change_between_bridged_and_plain(lab: Lab) -> None:
    """An unwrapped script cannot be moved to where it would run on the node itself."""
    job_id = lab.sbatch("#!/bin/sh\ntrue\n", "--hold", "--partition=host")
    result = lab.run_as_user(("scontrol", "update", f"JobId={job_id}", "Partition=gpu"), check=False)
    assert result.returncode != 0
    assert lab.job(job_id)["Partition"] == "host"
    lab.run(("scancel", job_id))


def test_users_cannot_launch_for_others(lab: Lab) -> None:
    """A forged request is refused by the peer's uid from the kernel."""
    output = lab.home / "mine.out"
    job_id = lab.sbatch(until_told(lab, "mine"), f"--output={output}")
    wait_until_running(lab, job_id, "up", output)
    script = "/etc/hostname"
    argv = (f"{lab.place.libexec}/penstock-launch", "/bin/sh", script)
    result = testing.run(
        argv,
        env={"SLURM_JOB_ID": job_id},
        timeout=120,
        check=False,
        cwd=Path("/"),
        user="nobody",
    )
    assert result.returncode == 126
    assert "is not a running job of uid" in result.stderr
    tell(lab, "mine")
    assert outcome(lab, job_id) == ("COMPLETED", "0:0")
