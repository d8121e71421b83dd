"""cli_filter.lua inside the real sbatch: the findings of `penstock validate` for those who submit, and
nothing for anybody else.
"""

from __future__ import annotations

import re
import resource
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from penstock.render import clifilter
from penstock_lab import testing as lab_testing

GOOD = "#!/bin/sh\n#SBATCH -p gpu\n#K8S_IMAGE=a/b:1\nhostname\n"
ELSEWHERE = "#!/bin/sh\n#SBATCH -p v100\n#K8S_IMAGE=a/b:1\nhostname\n"
WRONG = "#!/bin/sh\n#SBATCH -p gpu\n#K8S_IMGAE=a/b:1\nhostname\n"
ROUNDS = 15
SITE = '{"partitions": {"gpu": {"max_time": "1-0", "default": true}, "cpu": {"max_time": "7-0"}}}'


class Filtered:
    """A slurm.conf of its own on a port nobody listens on: submissions end after the filter. The program that
    the filter calls is `program`, a shell script that tests write.
    """

    def __init__(self, lab: lab_testing.RunningLab, folder: Path) -> None:
        self.lab, self.folder = lab, folder
        self.program = folder / "pen'stock"
        self.runs_penstock()
        changed = {"SlurmctldPort": "9", "MessageTimeout": "1"}
        lines = []
        for line in lab.place.slurm_conf.read_text(encoding="utf-8").splitlines():
            name = line.partition("=")[0]
            lines.append(f"{name}={changed[name]}" if name in changed else line)
        (folder / "slurm.conf").write_text("\n".join(lines) + "\n", encoding="utf-8")
        (folder / "gres.conf").write_bytes(lab.place.gres_conf.read_bytes())
        text = clifilter.render_cli_filter(
            penstock=str(self.program),
            bridged_partitions=("gpu", "cpu"),
            default_partition="gpu",
            site_file=str(folder / "site.json"),
        )
        (folder / "site.json").write_text(SITE, encoding="utf-8")
        (folder / "cli_filter.lua").write_text(text, encoding="utf-8")

    def runs_penstock(self) -> None:
        self.runs(f'echo x >> {self.folder}/calls\nexec {sys.executable} -m penstock "$@"')

    def runs(self, text: str) -> None:
        self.program.write_text(f"#!/bin/sh\n{text}\n")
        self.program.chmod(0o755)

    @property
    def called(self) -> bool:
        return (self.folder / "calls").exists()

    def submit(self, text: str, *options: str) -> str:
        """What sbatch says on stderr."""
        script = self.folder / "my job's.sh"
        script.write_text(text, encoding="utf-8")
        (self.folder / "calls").unlink(missing_ok=True)
        argv = ("env", f"SLURM_CONF={self.folder}/slurm.conf", "sbatch", *options, str(script))
        return self.lab.run(argv, check=False).stderr


@pytest.fixture
def filtered(lab: lab_testing.RunningLab, tmp_path: Path) -> Filtered:
    """sbatch with the filter in place, and nobody to send jobs to."""
    return Filtered(lab, tmp_path)


@pytest.fixture
def script(lab: lab_testing.RunningLab) -> Iterator[Path]:
    """A script of the lab's user, as a file: what comes from stdin is not looked at."""
    path = lab.home / "filtered.sh"
    path.write_text(WRONG)
    yield path
    path.unlink()


def test_invalid_script_is_refused_with_the_diagnostic(filtered: Filtered) -> None:
    """The user of sbatch sees the findings of `penstock validate`, and nothing is submitted."""
    said = filtered.submit(WRONG)
    assert "error[unknown-directive]: #K8S_IMGAE is not known" in said
    assert "did you mean #K8S_IMAGE?" in said
    assert "Unable to contact" not in said


def test_valid_script_is_submitted(filtered: Filtered) -> None:
    """The filter passes it to slurmctld."""
    assert "Unable to contact" in filtered.submit(GOOD)
    assert filtered.called


@pytest.mark.parametrize("options", [("-p", "gpu"), ("--partition=gpu",), ("-Hp", "gpu", "--comment", "")])
def test_the_command_line_outweighs_the_script(filtered: Filtered, options: tuple[str, ...]) -> None:
    """A partition that only the script names, and that this site does not have, is not asked for."""
    assert "error[unknown-partition]" in filtered.submit(ELSEWHERE, "-t", "10", "-p", "gpu,v100")
    assert "Unable to contact" in filtered.submit(ELSEWHERE, *options)
    assert filtered.called


def test_what_the_command_line_asks_for_is_checked(filtered: Filtered) -> None:
    """A good script with a time that its partition does not have."""
    said = filtered.submit(GOOD, "-t", "2-0")
    assert "error[over-max-time]: command line" in said
    assert "Unable to contact" not in said


def test_a_submit_host_without_the_sites_view(filtered: Filtered) -> None:
    """What is wrong with the script itself is still said."""
    (filtered.folder / "site.json").unlink()
    assert "error[unknown-directive]" in filtered.submit(WRONG)


def test_heterogeneous_jobs_are_not_checked(filtered: Filtered) -> None:
    """Only sbatch knows which options are for which component."""
    filtered.submit(WRONG, "-n1", ":", "-n2")
    assert not filtered.called


def test_other_partitions_start_nothing(filtered: Filtered) -> None:
    """For a partition without pods no program is started."""
    assert "Unable to contact" in filtered.submit(WRONG, "-p", "host")
    assert not filtered.called


@pytest.mark.parametrize(
    "program",
    [
        "exit 127",
        "exit 1",
        "echo Traceback >&2; exit 1",
        "kill -9 $$",
        "echo error[x]; exit 2",
        "cat /dev/zero | head -c 9",
    ],
    ids=["not there", "crashed", "crashed with words", "killed", "wrong call", "nonsense"],
)
def test_broken_penstock_does_not_block_sbatch(filtered: Filtered, program: str) -> None:
    """Whatever happens to the check, the job is submitted."""
    filtered.runs(program)
    assert "Unable to contact" in filtered.submit(WRONG)


def test_missing_penstock_does_not_block_sbatch(filtered: Filtered) -> None:
    """Without the program sbatch continues silently."""
    filtered.program.unlink()
    said = filtered.submit(WRONG)
    assert "Unable to contact" in said
    assert "not found" not in said


def test_hanging_penstock_does_not_block_sbatch(filtered: Filtered) -> None:
    """After some seconds the job is submitted without advice."""
    filtered.runs("trap '' TERM; while :; do sleep 1; done")
    assert "Unable to contact" in filtered.submit(WRONG)


def test_lab_has_the_filter_enabled(lab: lab_testing.RunningLab, script: Path) -> None:
    """The lab's own user gets the same findings as from `penstock validate`, and the job is not submitted."""
    refused = lab.run_as_user(("sbatch", "--hold", str(script)), check=False)
    assert refused.returncode != 0
    told = lab.run_as_user(("penstock", "validate", "--no-summary", str(script)), check=False).stdout
    assert told.splitlines() == [
        line.removeprefix("sbatch: lua: ") for line in refused.stderr.splitlines() if ": lua: " in line
    ]


@pytest.mark.parametrize(
    ("options", "code"),
    [("--gres=gpu:8", "never-fits"), ("--mem=640G", "never-fits"), ("-p nope", "unknown-partition")],
)
def test_lab_needs_no_site_option(lab: lab_testing.RunningLab, script: Path, options: str, code: str) -> None:
    """`penstock validate` needs no --site there, and sbatch no variable."""
    script.write_text(f"#!/bin/sh\n#SBATCH {options}\nhostname\n")
    told = lab.run_as_user(("penstock", "validate", str(script)), check=False)
    assert (told.returncode, f"error[{code}]" in told.stdout) == (1, True)
    bare = ("env", "-u", "PENSTOCK_SITE", "sbatch", "--hold", "-p", "gpu", str(script))
    refused = lab.run_as_user(bare, check=False)
    assert (f"error[{code}]" in refused.stderr) is (code == "never-fits")
    if refused.returncode == 0:
        lab.run(("scancel", refused.stdout.split()[-1]))


def test_explain_knows_the_lab(lab: lab_testing.RunningLab, script: Path) -> None:
    """Its image, its NAS, and the memory that slurmctld gives a job that asks for none."""
    script.write_text("#!/bin/sh\nhostname\n")
    said = lab.run_as_user(("penstock", "explain", str(script))).stdout
    job_id = lab.sbatch("#!/bin/sh\nhostname\n", "--hold")
    shown = lab.run(("scontrol", "show", "job", "--oneliner", job_id)).stdout
    lab.run(("scancel", job_id))
    assert "none: name one" not in said
    assert str(lab.place.nas) in said
    memory = re.search(r"memory ([0-9]+)Mi", said)
    assert memory is not None
    assert f"MinMemoryCPU={int(memory[1]) // 1024}G " in shown


def test_warnings_do_not_stop_a_job(lab: lab_testing.RunningLab, script: Path) -> None:
    """What is only unwise is said, and the job is queued."""
    script.write_text("#!/bin/sh\n#SBATCH -p gpu\nhostname\n#SBATCH -t 5\n")
    done = lab.run_as_user(("sbatch", "--parsable", "--hold", str(script)))
    lab.run(("scancel", done.stdout.strip()))
    assert "warning[directive-after-command]" in done.stderr


def test_srun_and_salloc_are_not_affected(lab: lab_testing.RunningLab) -> None:
    """The filter ignores other commands."""
    for argv in (("srun", "-p", "host", "echo", "fine"), ("salloc", "-Q", "-p", "host", "echo", "fine")):
        done = lab.run_as_user(argv, timeout=120)
        assert done.stdout == "fine\n"
        assert "lua" not in done.stderr


def test_unbridged_partitions_start_no_program(filtered: Filtered) -> None:
    """sbatch only loads Lua there, which takes one millisecond."""
    conf = filtered.folder / "slurm.conf"
    without = filtered.folder / "without" / "slurm.conf"
    without.parent.mkdir()
    without.write_text(conf.read_text().replace("CliFilterPlugins=lua\n", ""))
    (without.parent / "gres.conf").write_bytes((filtered.folder / "gres.conf").read_bytes())
    script = filtered.folder / "s.sh"
    script.write_text("#!/bin/sh\nhostname\n")
    bare, plain, watched = _cpu_in_turns(
        (sys.executable, "-c", "pass"),
        ("env", f"SLURM_CONF={without}", "sbatch", "-p", "host", str(script)),
        ("env", f"SLURM_CONF={conf}", "sbatch", "-p", "host", str(script)),
        env=filtered.lab.env,
    )
    assert watched - plain < bare / 2


def _cpu_in_turns(*commands: tuple[str, ...], env: dict[str, str]) -> list[float]:
    """The least CPU time of each, which a busy machine lengthens little."""
    return [
        min(taken)
        for taken in zip(*([_cpu(argv, env) for argv in commands] for _ in range(ROUNDS)), strict=True)
    ]


def _cpu(argv: tuple[str, ...], env: dict[str, str]) -> float:
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    subprocess.run(argv, env=env, capture_output=True, timeout=60, check=False)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return after.ru_utime - before.ru_utime + after.ru_stime - before.ru_stime
