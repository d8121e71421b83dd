"""Slurm's commands typed in pods do what they do in plain Slurm, as the job's owner."""

from __future__ import annotations

import re
from pathlib import Path

from tests.e2e import labs, semantics
from tests.e2e.semantics import Row

from penstock_lab import processes

Lab = semantics.Lab
NODE = re.compile(rb"\bn(?:[1-4]\b|\[[1-4,-]+\])")

SHAPE = ("-N2", "-Jname")
SAME = {
    "hostnames": """
scontrol show hostnames
scontrol show hostname "$SLURM_JOB_NODELIST"
scontrol show hostnames 'a[01-03],b7'
scontrol show hostnames 'a[1-2]b[3-4]'
scontrol show hostlist b,a1,a2
scontrol show hostlistsorted b,a1,a2
for node in $(scontrol show hostnames "$SLURM_JOB_NODELIST" | head -n1); do echo "first $node"; done
""",
    "queue": """
squeue --noheader --jobs "$SLURM_JOB_ID" --format '%j|%T|%D|%C|%u'
SQUEUE_FORMAT='%u %T' squeue -h -j "$SLURM_JOB_ID"
squeue -h -j "$SLURM_JOB_ID" -O 'UserName:.20,State'
sinfo --noheader --format '%D' --nodes "$SLURM_JOB_NODELIST" | head -n1
scontrol show job "$SLURM_JOB_ID" | grep -oE '(JobName|UserId|NumNodes|NumTasks|TimeLimit)=[^ ]*'
scontrol show nodes "$SLURM_JOB_NODELIST" | grep -c NodeName=
""",
    "wrong words": """
squeue --no-such-option >out 2>err; echo "$? $(wc -c <out) $(cat err)"
squeue -h -j 99999999; echo $?
scontrol show job 99999999; echo $?
sacct --no-such-option >out 2>err; echo "$? $(cat err)"
scancel 99999999 2>err; echo "$? $(cat err)"
""",
    "streams": """
squeue --no-such-option 2>/dev/null
squeue --no-such-option 2>&1 | wc -l
x=$(scontrol show hostnames a[1-3]); echo "$x"
scontrol show hostnames a[1-100000] | tail -n1
scontrol show hostnames a[1-100000] | head -n1
while read -r word; do scontrol show hostnames "$word"; done <<END
a[1-2]
b[3-4]
END
for i in 1 2 3 4 5 6 7 8; do scontrol show hostnames "a[1-$i]" | wc -l >"of$i" & done; wait; cat of*
scontrol show hostnames a1 >&-; echo $?
""",
    "srun's own words": """
srun --version
srun --help | head -n 5
srun --usage 2>&1 | head -n 3
srun --no-such-option x; echo $?
srun; echo $?
srun -n; echo $?
srun --nt=2 x 2>&1; echo $?
srun --jobid=99999999 hostname; echo $?
""",
    "own job": """
scontrol update JobId=$SLURM_JOB_ID Comment=mine; echo $?
squeue -h -j "$SLURM_JOB_ID" -O Comment:20
scontrol update JobId=$SLURM_JOB_ID TimeLimit=999999999 2>/dev/null; echo $?
""",
}


def test_commands_do_what_they_do_in_plain_slurm(lab: Lab) -> None:
    """Words, exit codes, streams, order and variables, of the same script in both kinds of partition."""
    rows = {name: Row(script=f"#!/bin/bash\n{text}", options=SHAPE) for name, text in SAME.items()}
    for name, sides in semantics.twins(lab, rows).items():
        plain, pods = (without_nodes(sides[side]) for side in (semantics.PLAIN, semantics.PODS))
        assert plain == pods, name


def without_nodes(trace: semantics.Trace) -> tuple[semantics.Record, dict[str, bytes]]:
    """Any two jobs may have others."""
    return trace.record, {name: NODE.sub(b"X", data) for name, data in trace.files.items()}


def output(lab: Lab, script: str, *options: str) -> tuple[semantics.Record, str]:
    """The end and the output of a job in pods."""
    cwd = semantics.folder(lab, "commands")
    job_id = semantics.submit(lab, Row(script=script, options=(*options, "--output=out")), cwd=cwd)
    return semantics.record(lab, job_id), (cwd / "out").read_text()


def test_jobs_submitted_from_a_pod(lab: Lab) -> None:
    """From a file, a here-document, --wrap: name, arguments, folder and variables as sbatch takes them."""
    record, text = output(
        lab,
        r"""#!/bin/bash
cat >inner.sh <<'END'
#!/bin/bash
#SBATCH --time=3
echo "$SLURM_JOB_NAME $# $1 $COLOUR $PWD" >"inner-$2"
END
export COLOUR="it's blue"
mkdir sub
sbatch --parsable --wait -o /dev/null inner.sh "a b" file; echo "$?"
cd sub; sbatch -W -Q -J named -o /dev/null ../inner.sh "c" file; cd ..
COLOUR=red sbatch -W -o /dev/null -J here <<'END'
#!/bin/bash
echo "$SLURM_JOB_NAME $COLOUR $#" >inner-here
END
sbatch -W -o /dev/null --wrap 'echo "$SLURM_JOB_NAME" >inner-wrap; exit 3'; echo "wrap $?"
sbatch no-such-file; echo "missing $?"
cat inner-file sub/inner-file inner-here inner-wrap
""",
    )
    assert record == semantics.Record("COMPLETED", "0:0")
    where = re.escape(str(lab.home)) + r"/commands-\w+"
    assert re.fullmatch(
        rf"\d+\n0\nSubmitted batch job \d+\nSubmitted batch job \d+\nwrap 3\n"
        rf"sbatch: error: Unable to open file no-such-file\nmissing 1\n"
        rf"inner.sh 2 a b it's blue {where}\nnamed 2 c it's blue {where}/sub\nhere red 0\nwrap\n",
        text,
    ), text


def test_pods_submit_only_to_partitions_with_pods(lab: Lab) -> None:
    """Elsewhere a script would run on a host; neither option, directive nor variable leads there."""
    record, text = output(
        lab,
        """#!/bin/bash
printf '#!/bin/sh\\n#SBATCH -p host\\nhostname\\n' >there.sh
sbatch -p host --wrap hostname
sbatch there.sh
SBATCH_PARTITION=host sbatch --wrap hostname
sbatch --reservation=none -p gpu,host --wrap hostname
squeue --me --noheader --all --format %P | sort -u
""",
    )
    assert record.state == "COMPLETED"
    *refusals, partition = text.strip().split("\n")
    assert partition == "gpu"
    assert len(refusals) == 4
    assert all("a pod submits only to partitions with pods" in line for line in refusals)


def test_job_requeues_itself(lab: Lab) -> None:
    """As training scripts do before their time limit."""
    record, text = output(
        lab,
        """#!/bin/bash
echo "run ${SLURM_RESTART_COUNT:-0}"
[ -z "$SLURM_RESTART_COUNT" ] || exit 0
scontrol requeue "$SLURM_JOB_ID"
sleep 300
""",
        "--requeue",
        "--open-mode=append",
    )
    assert record == semantics.Record("COMPLETED", "0:0")
    assert [line for line in text.split("\n") if line.startswith("run")] == ["run 0", "run 1"]


def test_job_cancels_itself(lab: Lab) -> None:
    record, _ = output(lab, '#!/bin/bash\nscancel "$SLURM_JOB_ID"\nsleep 300\n')
    assert record.state.startswith("CANCELLED")


def test_command_in_an_included_file(lab: Lab) -> None:
    """The script itself names none, so its pod is asked a little later."""
    cwd = semantics.folder(lab, "included")
    lab.run_as_user(("tee", str(cwd / "more")), stdin='squeue -h -j "$SLURM_JOB_ID" -o %T\n')
    script = f"#!/bin/bash\n. {cwd}/more\n"
    record, text = output(lab, script)
    assert (record.state, text) == ("COMPLETED", "RUNNING\n")


def test_killed_caller_takes_its_command_along(lab: Lab) -> None:
    """With SIGTERM and SIGKILL, and with the job's own end."""
    record, text = output(
        lab,
        """#!/bin/bash
squeue --iterate 1 >/dev/null & sleep 1; kill $!; wait $!; echo "$?"
squeue --iterate 1 >/dev/null & sleep 1; kill -9 $!; wait $! 2>/dev/null; echo "$?"
squeue --iterate 1 >/dev/null & sleep 1
""",
    )
    assert record.state == "COMPLETED"
    assert [line for line in text.split("\n") if line.isdigit()] == ["143", "137"]
    semantics.wait_until(lambda: not iterating(lab), "no squeue is left on the node")


def iterating(lab: Lab) -> list[int]:
    """Processes of the launcher's that repeat squeue."""
    conf = f"SLURM_CONF={lab.env['SLURM_CONF']}".encode()
    found = [process.pid for process in processes.snapshot() if "--iterate" in process.argv]
    return [pid for pid in found if conf in environment_of(pid).split(b"\0")]


def environment_of(pid: int) -> bytes:
    try:
        return Path(f"/proc/{pid}/environ").read_bytes()
    except (FileNotFoundError, ProcessLookupError):  # it has just ended
        return b""


def test_killing_penstockd_repeats_and_loses_no_command(lab: Lab) -> None:
    """Every command is run once and prints everything, while penstockd is killed again and again."""
    cwd = semantics.folder(lab, "killed")
    script = """#!/bin/bash
for i in $(seq 40); do
    echo "$i $(scontrol show hostnames 'a[1-2000]' | cksum)"
    sbatch -H --parsable -J killed -o /dev/null --wrap true >>submitted || echo "failed $?"
done
"""
    job_id = semantics.submit(lab, Row(script=script, options=("--output=out",)), cwd=cwd)
    for line in ("3 ", "9 ", "15 ", "21 ", "27 ", "33 "):
        semantics.wait_for_text(cwd / "out", f"\n{line}")
        labs.kill(lab.place, "penstockd")
        lab.penstock("lab", "restart", "penstockd")
    assert semantics.record(lab, job_id, timeout=300) == semantics.Record("COMPLETED", "0:0")
    lines = (cwd / "out").read_text().strip().split("\n")
    assert [line.split(" ", 1)[0] for line in lines] == [str(number) for number in range(1, 41)]
    assert len({line.split(" ", 1)[1] for line in lines}) == 1
    held = lab.run(("squeue", "-h", "--name=killed", "--format=%i")).stdout.split()
    lab.run(("scancel", *held))
    assert sorted(held) == sorted((cwd / "submitted").read_text().split())
    assert len(set(held)) == 40
