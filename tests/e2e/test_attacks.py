"""What a hostile user of the site may try: each attack is really made, docs/security.md lists them.

Attacks on the node come with a control: the same trick in the unbridged partition works, so a test that finds
nothing has looked in the right place.
"""

from __future__ import annotations

import asyncio
import json
import os
import shutil
import socket
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.e2e import labs, semantics

from penstock.hooks import unsafeenv, wire
from penstock.slurm import control
from penstock_lab import testing

Lab = testing.RunningLab
BROKEN_LIBRARY = "/nonexistent/penstock-attack.so"
SAID_BY_THE_LOADER = "penstock-attack.so"


@pytest.fixture
def running(lab: Lab) -> Iterator[str]:
    """A job of the lab's user whose script runs until the test is over: Slurm says RUNNING before there is a
    pod, a namespace or a spooled script.
    """
    mark = semantics.folder(lab, "attack") / "up"
    job_id = lab.sbatch(f"#!/bin/sh\ntouch {mark}\nsleep 300\n", "--output=/dev/null", "--mem=100M")
    semantics.wait_until(mark.exists, "the script has begun")
    yield job_id
    lab.run(("scancel", job_id))


def output_of(lab: Lab, job_id: str) -> str:
    lab.accounted(job_id)
    return (lab.home / f"slurm-{job_id}.out").read_text()


# -- code on the Slurm node --------------------------------------------------------------------------


@pytest.mark.parametrize("partition", ["gpu", "host"])
def test_launcher_loads_no_user_library(lab: Lab, partition: str) -> None:
    """LD_PRELOAD reaches a plain job's first process, never the launcher; the job itself runs."""
    argv = ("env", f"LD_PRELOAD={BROKEN_LIBRARY}", "sbatch", "--parsable", f"--partition={partition}")
    job_id = lab.run_as_user(argv, stdin="#!/bin/sh\necho done\n").stdout.strip()
    text = output_of(lab, job_id)
    assert text.endswith("done\n")
    assert (SAID_BY_THE_LOADER in text) == (partition == "host")


def send_twice(lab: Lab, job_id: str, entry: str) -> None:
    """Another variable of the same name, which sbatch would not send but any program of the user's may: Lua
    does not see it. So it is put where slurmctld puts it.
    """
    (path,) = lab.place.controller_state.glob(f"hash.*/job.{job_id}/environment")
    data = path.read_bytes()
    count = int.from_bytes(data[:4], sys.byteorder) + 1
    path.write_bytes(count.to_bytes(4, sys.byteorder) + data[4:] + entry.encode() + b"\0")


@pytest.mark.parametrize("array", [(), ("--array=3",)])
@pytest.mark.parametrize("entry", [f"LD_PRELOAD={BROKEN_LIBRARY}", "SLURM_GET_USER_ENV=1"])
def test_variable_sent_twice_cancels_the_job(lab: Lab, entry: str, array: tuple[str, ...]) -> None:
    """The job is cancelled with the reason before anything of it runs."""
    job_id = lab.sbatch("#!/bin/sh\necho done\n", "--hold", "--export=NONE", "--output=sent-%A.out", *array)
    send_twice(lab, job_id, entry)
    lab.run(("scontrol", "release", job_id))
    testing.until(lambda: lab.job(job_id)["JobState"] == "CANCELLED")
    shown = lab.run(("scontrol", "show", "job", job_id)).stdout
    assert f"would run code on the Slurm node ({entry.partition('=')[0]})" in shown
    assert not (lab.home / f"sent-{job_id}.out").exists()


def test_variable_sent_twice_reaches_a_plain_job(lab: Lab) -> None:
    """Control of the test above: the linker uses the second of two in a plain job."""
    script = "#!/bin/sh\necho done\n"
    job_id = lab.sbatch(script, "--hold", "--partition=host", "--export=ALL,LD_PRELOAD=")
    send_twice(lab, job_id, f"LD_PRELOAD={BROKEN_LIBRARY}")
    lab.run(("scontrol", "release", job_id))
    assert SAID_BY_THE_LOADER in output_of(lab, job_id)


def test_stashed_variables_are_restored_in_the_pod(lab: Lab) -> None:
    """LD_LIBRARY_PATH named in --export is in the container, as before."""
    script = '#!/bin/sh\necho "[$LD_LIBRARY_PATH] [$GLIBC_TUNABLES] [$PENSTOCK_GIVEN_LD_LIBRARY_PATH]"\n'
    argv = ("env", "GLIBC_TUNABLES=glibc.malloc.check=0", "sbatch", "--parsable")
    job_id = lab.run_as_user((*argv, "--export=ALL,LD_LIBRARY_PATH=/opt/mine"), stdin=script).stdout.strip()
    assert output_of(lab, job_id) == "[/opt/mine] [glibc.malloc.check=0] []\n"


@pytest.mark.parametrize("option", ["--export=NONE", "--get-user-env", "--export=COLOUR=red"])
def test_no_login_shell_runs_on_the_node(lab: Lab, option: str) -> None:
    """What makes slurmd start the user's login shell is switched off before the job starts; the script has
    the variable as plain Slurm's would.
    """
    job_id = lab.sbatch('#!/bin/sh\necho "[$SLURM_GET_USER_ENV]"\n', option, "--hold")
    kept = Path(unsafeenv.file_of(str(lab.place.controller_state), job_id)).read_bytes()[4:].split(b"\0")
    assert [entry for entry in kept if entry.startswith(b"SLURM_GET_USER_ENV=")] == [b"SLURM_GET_USER_ENV=0"]
    lab.run(("scontrol", "release", job_id))
    assert output_of(lab, job_id) == "[1]\n"


def steps(marker: Path, program: Path) -> list[tuple[str, ...]]:
    """Ways of an own step to run code on the node."""
    return [
        ("touch", str(marker)),
        (f"--task-epilog={program}", "true"),
        (f"--task-prolog={program}", "true"),
        ("--export=ALL,SLURM_JOB_PARTITION=host,SLURM_STEP_ID=", "touch", str(marker)),
        (f"--export=ALL,LD_PRELOAD={BROKEN_LIBRARY}", "touch", str(marker)),
        (f"--bcast={marker}.copy", "/bin/true"),
        ("--container=/", "touch", str(marker)),
    ]


def marking_program(lab: Lab, marker: Path) -> Path:
    program = lab.home / "mark.sh"
    program.write_text(f"#!/bin/sh\ntouch {marker}\n")
    program.chmod(0o755)
    return program


@pytest.fixture
def unfiltered(lab: Lab) -> Iterator[Path]:
    """What a user can do about a filter in his own srun: another slurm.conf, that names none."""
    folder = lab.home / "own"
    folder.mkdir()
    text = lab.place.slurm_conf.read_text()
    assert "CliFilterPlugins=lua\n" in text
    (folder / "slurm.conf").write_text(text.replace("CliFilterPlugins=lua\n", ""))
    (folder / "gres.conf").write_bytes(lab.place.gres_conf.read_bytes())
    yield folder / "slurm.conf"
    shutil.rmtree(folder)


def test_no_step_runs_on_the_node(lab: Lab, running: str, unfiltered: Path) -> None:
    """srun into an own job, with everything that runs beside the step, and what it says of itself."""
    marker = lab.home / "escaped"
    for options in steps(marker, marking_program(lab, marker)):
        argv = ("env", f"SLURM_CONF={unfiltered}", "srun", f"--jobid={running}", "--overlap", *options)
        result = lab.run_as_user(argv, check=False)
        assert "launch failed" in result.stderr or result.returncode != 0, options
        assert "cli_filter" not in result.stderr, options
        assert SAID_BY_THE_LOADER not in result.stderr, options
        assert not marker.exists(), options
    assert lab.job(running)["JobState"] == "RUNNING"


def test_no_step_runs_beside_a_task_of_an_array(lab: Lab, unfiltered: Path) -> None:
    """One task has the array's own id, by which slurmctld names all of them: that one, too, is locked."""
    array = lab.sbatch("#!/bin/sh\nsleep 300\n", "--array=1-3", "--output=/dev/null", "--mem=100M")
    marker = lab.home / "escaped"
    try:
        shown = ("squeue", "--noheader", f"--jobs={array}", "--states=RUNNING", "--format=%A")
        testing.until(lambda: len(lab.run(shown).stdout.split()) == 3)
        ids = lab.run(shown).stdout.split()
        assert array in ids
        for job_id in ids:
            argv = (
                "env",
                f"SLURM_CONF={unfiltered}",
                "srun",
                f"--jobid={job_id}",
                "--overlap",
                "touch",
                str(marker),
            )
            result = lab.run_as_user(argv, check=False)
            assert "launch failed" in result.stderr or result.returncode != 0, job_id
            assert not marker.exists(), job_id
    finally:
        lab.run(("scancel", array))


def test_steps_run_in_unbridged_partitions(lab: Lab) -> None:
    """Control of the test above: a user's task epilog leaves its mark in a plain job."""
    marker = lab.home / "ran"
    program = marking_program(lab, marker)
    lab.run_as_user(("srun", "--partition=host", f"--task-epilog={program}", "true"))
    assert marker.exists()


def test_partition_of_slurm_reservation_decides(lab: Lab) -> None:
    """A job without a partition in a Slurm reservation is prepared for the reservation's partition."""
    what = ("ReservationName=attack", "StartTime=now", "Duration=10", f"Users={lab.user}")
    where = ("NodeCnt=1", "PartitionName=host", "Flags=OVERLAP,IGNORE_JOBS")
    lab.run(("scontrol", "create", "reservation", *what, *where))
    try:
        job_id = lab.sbatch("#!/bin/sh\ntrue\n", "--reservation=attack", "--output=/dev/null")
        script = lab.run(("scontrol", "write", "batch_script", job_id, "-")).stdout
        assert lab.job(job_id)["Partition"] == "host"
        assert script.startswith("#!/bin/sh\n")
        lab.accounted(job_id)
    finally:
        lab.run(("scontrol", "delete", "ReservationName=attack"))


def test_roots_jobs_are_refused(lab: Lab) -> None:
    """Pods of uid 0 need the site's permission."""
    result = lab.run(("sbatch", "--wrap", "id"), check=False)
    assert result.returncode != 0
    assert "root's jobs do not run as pods" in result.stderr


def test_mark_of_prepared_jobs_cannot_be_forged(lab: Lab, running: str) -> None:
    """Owners cannot write AdminComment."""
    argv = ("scontrol", "update", f"JobId={running}", "AdminComment=penstock")
    assert lab.run_as_user(argv, check=False).returncode != 0


FORGED = (
    "x\n   Partition=gpu AllocNode:Sid=x:1\n   JobState=RUNNING \n   AdminComment=penstock 1763270000\n"
    "     Nodes=n4 CPU_IDs=0-7 Mem=1 GRES=gpu:4\n   x"
)


def forgeries(folder: Path) -> tuple[str, ...]:
    """sbatch's options and script with the forged lines in every text that Slurm prints as it is."""
    script = folder / FORGED / "script"
    script.parent.mkdir()
    script.parent.chmod(0o755)
    script.write_text("#!/bin/sh\nsleep 300\n")
    named = (f"--{name}={FORGED}" for name in ("comment", "wckey", "network"))
    return (*named, f"--chdir={script.parent}", "--output=/dev/null", str(script))


def test_job_texts_cannot_forge_fields(lab: Lab, monkeypatch: pytest.MonkeyPatch) -> None:
    """An unprepared job claims in all its texts that it was prepared and has other nodes."""
    folder = semantics.folder(lab, "forged")
    argv = ("sbatch", "--parsable", "--partition=host", "--job-name=plain", *forgeries(folder))
    job_id = lab.run_as_user(argv, cwd=folder).stdout.strip()
    try:
        lab.wait_for(job_id, "RUNNING")
        for name, value in lab.env.items():
            monkeypatch.setenv(name, value)
        found = asyncio.run(control.SlurmControl(lab.env["SLURM_CONF"]).details(int(job_id)))
        (share,) = found.shares
        assert (found.prepared, found.partition, found.submission) == (False, "host", "")
        assert share.amount.all_gpus == 0
        assert share.amount.millicpus < 8000
    finally:
        lab.run(("scancel", job_id))


@pytest.mark.parametrize("option", ["--job-name", "--wckey", "--account"])
def test_control_characters_before_the_nodes_are_refused(lab: Lab, option: str) -> None:
    """What scontrol prints before a job's nodes could otherwise forge nodes."""
    done = lab.run_as_user(("sbatch", f"{option}={FORGED}", "--wrap", "true"), check=False)
    assert done.returncode != 0
    assert "has a control character in it" in done.stderr


# -- text that users write ---------------------------------------------------------------------------


@pytest.mark.parametrize(
    "options",
    [
        ("--job-name=$(touch /tmp/x) `id` ' \" ; && |",),
        ("--comment=x\n   Partition=host AllocNode:Sid=x\n     Nodes=n4 CPU_IDs=0-7 Mem=1 GRES=gpu:4",),
        ("--job-name=" + "ü" * 100, "--comment=" + "{{}}\\u0000 %s"),
    ],
)
def test_hostile_names_and_comments_stay_text(lab: Lab, options: tuple[str, ...]) -> None:
    """The job runs with what Slurm gave it, whatever its words say."""
    script = "#!/bin/sh\ncat /proc/1/cmdline; echo $SLURM_JOB_PARTITION $SLURM_CPUS_ON_NODE\n"
    job_id = lab.sbatch(script, *options, "--output=slurm-%j.out")
    text = output_of(lab, job_id)
    assert text == "/bin/sh\0/penstock/agent.sh\0gpu 1\n"  # in a pod
    assert lab.accounted(job_id) == ["COMPLETED", "0:0"]


def test_hostile_environment_is_passed_or_dropped(lab: Lab) -> None:
    """Line breaks and quotes arrive byte for byte, names invalid in shells are dropped, nothing breaks."""
    script = '#!/bin/sh\nprintf "%s|" "$EVIL" "$LAST"; env | grep -c "^A.B=" ; echo "${#BIG}"\n'
    evil = "a\n'b'\n$(touch /tmp/x)\n\"; exit 3 #"
    assignments = (f"EVIL={evil}", "A.B=1", "BIG=" + "x" * 120_000, "LAST=end")
    argv = ("env", *assignments, "sbatch", "--parsable", "--output=slurm-%j.out")
    job_id = lab.run_as_user(argv, stdin=script).stdout.strip()
    assert output_of(lab, job_id) == f"{evil}|end|0\n120000\n"


def test_symlinks_on_the_nas_do_not_escape(lab: Lab) -> None:
    """A folder that is a link to the node's own files is not mounted; the job says so or fails."""
    link = lab.home / "innocent"
    lab.run_as_user(("ln", "-sfn", "/etc", str(link)))
    script = f"#!/bin/sh\n#K8S_MOUNT={link}:/data\ncat /data/hostname; ls /data/penstock* /data/passwd\n"
    job_id = lab.sbatch(script, "--output=slurm-%j.out", "--time=1")
    testing.until(lambda: lab.job(job_id)["JobState"] in ("RUNNING", "FAILED"))
    time.sleep(3)
    lab.run(("scancel", job_id))
    lab.accounted(job_id)
    output = lab.home / f"slurm-{job_id}.out"
    assert "passwd" not in (output.read_text() if output.exists() else "")


@pytest.mark.parametrize("source", ["/etc", "{nas}/../etc", "{nas}x", "/"])
def test_only_folders_of_the_site_can_be_mounted(lab: Lab, source: str) -> None:
    """Refused in words, at the latest when the job starts."""
    script = f"#!/bin/sh\n#K8S_MOUNT={source.format(nas=lab.place.nas)}:/data\nls /data\n"
    result = lab.run_as_user(("sbatch", "--parsable", "--output=slurm-%j.out"), stdin=script, check=False)
    if result.returncode == 0:
        assert "MOUNT" in output_of(lab, result.stdout.strip())
        assert lab.accounted(result.stdout.strip())[0] == "FAILED"
    else:
        assert "MOUNT" in result.stderr


# -- other users -------------------------------------------------------------------------------------


def ask_as_nobody(lab: Lab, *fields: str) -> list[str]:
    """What penstockd answers to one question of a user who has no part in anything."""
    code = (
        "import json, sys; sys.path.insert(0, sys.argv[1]); from penstock_hooks import wire\n"
        "s = wire.connect(sys.argv[2], 20.0); s.sendall(wire.pack(*sys.argv[3:]))\n"
        "print(json.dumps([field.decode('utf-8', 'replace') for field in wire.receive(s) or []]))\n"
    )
    argv = ("python3", "-c", code, str(lab.place.libexec), str(lab.place.penstockd_socket), *fields)
    env = {"PATH": os.environ["PATH"]}
    result = testing.run(argv, env=env, timeout=60, check=True, cwd=Path("/"), user="nobody")
    found: list[str] = json.loads(result.stdout)
    return found


@pytest.mark.parametrize("verb", ["admit", "release", "abandon"])
def test_hook_requests_need_a_hook_uid(lab: Lab, running: str, verb: str) -> None:
    """Users can neither release another's job nor a node."""
    answer = ask_as_nobody(lab, verb, "job", running, "node", "n1", "uid", "1", "restart", "0")
    assert answer[0] == "error"
    assert lab.job(running)["JobState"] == "RUNNING"


def test_job_details_are_private(lab: Lab, running: str) -> None:
    """Pods, nodes, image and times are shown to the owner and to administrators."""
    own = json.loads(lab.run_as_user(("penstock", "show", running, "--format", "json")).stdout)
    assert own["jobs"][0]["pods"]
    answer = ask_as_nobody(lab, "describe", "job", running)
    assert [(about["pods"], about["timeline"]) for about in json.loads(answer[1])] == [([], [])]


def test_another_user_cannot_read_output_secret_or_script(lab: Lab, running: str) -> None:
    """The API shows him no Secret, the host no spooled script."""
    kubectl = ("kubectl", "get", "secrets", "-n", f"user-{lab.user}")
    assert lab.run_as_user(kubectl, check=False).returncode != 0
    spool = next(lab.place.spool.glob("*/job*/slurm_script"))
    denied = testing.run(("cat", str(spool)), env={}, timeout=60, check=False, cwd=Path("/"), user=labs.GUEST)
    assert denied.returncode != 0


def test_many_connections_do_not_block_others(lab: Lab) -> None:
    """300 silent connections and a slow writer of one user: another's job starts, runs and ends."""
    path = str(lab.place.penstockd_socket)
    crowd = [wire.connect(path, 20.0) for _ in range(300)]
    time.sleep(1)
    try:
        for sock in crowd[:60:10]:  # those beyond the limit were closed at once
            sock.sendall((wire.MAX_FRAME - 1).to_bytes(4, "big"))
        job_id = lab.sbatch("#!/bin/sh\necho through\n", "--output=slurm-%j.out")
        assert output_of(lab, job_id) == "through\n"
        assert lab.accounted(job_id) == ["COMPLETED", "0:0"]
    finally:
        for sock in crowd:
            sock.close()


def test_oversized_message_is_refused(lab: Lab) -> None:
    """Frames have a maximum size."""
    sock = socket.socket(socket.AF_UNIX)
    sock.settimeout(20)
    with sock:
        sock.connect(str(lab.place.penstockd_socket))
        sock.sendall((wire.MAX_FRAME + 1).to_bytes(4, "big"))
        assert b"over the limit" in sock.recv(1000)


# -- namespaces --------------------------------------------------------------------------------------


def test_a_users_namespace_has_a_quota_and_is_closed_to_others(lab: Lab, running: str) -> None:
    """Made with the first job: pods of other users cannot connect, and there is a bound to everything."""
    assert lab.job(running)["JobState"] == "RUNNING"
    namespace = f"user-{lab.user}"
    found = lab.run(("kubectl", "get", "networkpolicy,resourcequota", "-n", namespace, "-o", "json"))
    items = {item["kind"]: item["spec"] for item in json.loads(found.stdout)["items"]}
    assert items["NetworkPolicy"]["policyTypes"] == ["Ingress"]
    assert items["NetworkPolicy"]["ingress"] == [{"from": [{"podSelector": {}}]}]
    assert items["ResourceQuota"]["hard"]["pods"] in ("2000", "2k")
