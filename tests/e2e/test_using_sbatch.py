"""docs/using-sbatch.md: its scripts run, and its commands are typed as they stand there."""

from __future__ import annotations

import functools
import re
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.e2e import semantics

from penstock_lab import testing

Lab = testing.RunningLab
PAGE = (Path(__file__).parents[2] / "docs/using-sbatch.md").read_text()
SCRIPTS = re.findall(r"```bash\n(.*?)```", PAGE, flags=re.DOTALL)
LINES = [
    line.partition(" #")[0].strip()
    for block in re.findall(r"```sh\n(.*?)```", PAGE, flags=re.DOTALL)
    for line in block.split("\n")
    if line
]
NAMED = re.compile(r"registry\.example\.org/\S+")
PYTHON = "/usr/bin/python3"


@pytest.fixture(scope="module")
def folder(lab: Lab) -> Path:
    """Where the scripts find what they need: an environment made with the image's Python."""
    made = semantics.folder(lab)
    lab.run_as_user((PYTHON, "-m", "venv", "--without-pip", str(made / "env")))
    return made


@pytest.fixture
def running(lab: Lab, folder: Path) -> Iterator[str]:
    """A job that has printed a line and ends well when the test lets it."""
    text = "#!/bin/sh\necho up\nuntil [ -e end ]; do sleep 0.2; done\n"
    (folder / "end").unlink(missing_ok=True)
    job_id = lab.sbatch(text, "--output=up.out", cwd=folder)
    semantics.wait_for_text(folder / "up.out", "up")
    yield job_id
    lab.run(("scancel", job_id), check=False)


def test_the_page_has_what_is_tried_here() -> None:
    """No block has another kind of fence, which would not be tried."""
    assert len(SCRIPTS) == 5
    assert len(LINES) == 10


@pytest.mark.parametrize("text", SCRIPTS, ids=lambda text: f"line-{PAGE[: PAGE.index(text)].count(chr(10))}")
def test_every_script_of_the_page_runs(lab: Lab, folder: Path, text: str) -> None:
    """As it stands there, but for the name of an image that only the reader's site has."""
    if not Path(PYTHON).exists() and "python" in text:
        pytest.skip(f"the lab's image has no {PYTHON}")
    path = folder / "page.sh"
    path.write_text(NAMED.sub("lab/host-userland:1", text))
    said = lab.run_as_user(("penstock", "validate", str(path)), cwd=folder)
    assert said.stdout == "1 script accepted\n"
    job_id = lab.run_as_user(("sbatch", "--parsable", str(path)), cwd=folder).stdout.strip()
    tasks = [f"{job_id}_{task}" for task in range(10)] if "--array" in text else [job_id]
    for name in tasks:
        assert semantics.record(lab, name, timeout=180) == semantics.Record("COMPLETED", "0:0")


def test_every_command_of_the_page_works(lab: Lab, folder: Path, running: str) -> None:
    """Typed by the job's owner, what needs rights in all namespaces by one who has them; last what waits for
    the job's end.
    """

    def typed(line: str) -> str:
        argv = ("sh", "-c", f"JOB_ID={running} USER={lab.user}; {line}")
        said = lab.run(argv) if line.endswith(" -A") else lab.run_as_user(argv, cwd=folder, timeout=120)
        return said.stdout

    def shows_the_output(line: str) -> bool:
        return typed(line) == "up\n"

    (folder / "first.sh").write_text(SCRIPTS[0])
    for line in sorted(LINES, key=lambda line: "logs -f" in line):
        if line.startswith("kubectl logs"):
            semantics.wait_until(functools.partial(shows_the_output, line), "the pod's log has the output")
        elif "logs -f" in line:
            (folder / "end").touch()
            assert shows_the_output(line)
        elif line.startswith(("kubectl get", "penstock jobs")):
            said = typed(line)
            assert f"slurm-job-{running}" in said or running in said.split()
        else:
            typed(line)


def test_signals_are_told_of_in_time(lab: Lab) -> None:
    """What the page says of traps: a program in the foreground keeps them back, `& wait` does not."""
    cwd = semantics.folder(lab)
    text = '#!/bin/bash\ntrap "echo trapped; exit 0" USR1\necho up\nsleep 300%s\n'
    for end, state in ((" & wait", "COMPLETED"), ("", "CANCELLED")):
        job_id = lab.sbatch(text % end, "--output=%j.out", cwd=cwd)
        semantics.wait_for_text(cwd / f"{job_id}.out", "up")
        lab.run_as_user(("scancel", "--batch", "--signal=USR1", job_id))
        if end:
            semantics.wait_for_text(cwd / f"{job_id}.out", "trapped")
        else:
            lab.run_as_user(("scancel", job_id))
        assert semantics.record(lab, job_id).state.split()[0] == state
