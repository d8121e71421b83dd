"""docs/reference/json.md and what the commands print are the same."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import typing
from pathlib import Path

import msgspec
import pytest

from penstock import wellknown
from penstock.doctor import all_checks, checks
from penstock.intake import status
from penstock.model import descriptions
from penstock.results import checksums, resultpaths
from penstock.views import jobs, nodes, results

PAGE = (Path(__file__).parents[2] / "docs/reference/json.md").read_text()
DOCUMENTED: dict[str, type[msgspec.Struct]] = {
    "Job": jobs.Job,
    "Reason": jobs.Reason,
    "Refusal": jobs.Refusal,
    "Pod": descriptions.PodView,
    "Shown job": jobs.ShownJob,
    "Step": jobs.Step,
    "Found": resultpaths.Found,
    "Checked": checksums.Verdict,
    "Inbox": status.Inbox,
    "File": status.Item,
    "Node": nodes.NodeSides,
    "Amounts": nodes.Amounts,
    "Report": all_checks.Report,
    "Check": checks.Result,
}
TOP = (jobs.Queue, jobs.Shown, results.Results, nodes.Nodes)


def keys_in(section: str) -> set[str]:
    """Those that the first column of its table names."""
    _, _, rest = PAGE.partition(f"\n### {section}\n")
    table = re.split(r"\n##", rest)[0]
    cells = [line.split(" | ")[0] for line in table.split("\n") if line.startswith("| `")]
    return {key for cell in cells for key in re.findall(r"`(\w+)`", cell)}


def keys_of(kind: type[msgspec.Struct]) -> set[str]:
    return {field.encode_name for field in msgspec.structs.fields(kind)}


@pytest.mark.parametrize("section", DOCUMENTED)
def test_every_key_is_described_and_no_other(section: str) -> None:
    """Who adds, renames or removes one changes the page, and perhaps the version."""
    expected = keys_of(DOCUMENTED[section])
    if section == "Shown job":
        expected -= keys_of(jobs.Job)
    assert keys_in(section) == expected


@pytest.mark.parametrize("section", DOCUMENTED)
def test_moments_and_job_numbers_have_one_form(section: str) -> None:
    """Moments as ISO 8601, never seconds since 1970; numbers of jobs as text, for 20_3 is one, too."""
    for name, hint in typing.get_type_hints(DOCUMENTED[section]).items():
        forms = {hint, *typing.get_args(hint)}
        assert float not in forms or name == "cpus", name
        if name in ("job", "job_id"):
            assert int not in forms, name


def test_every_table_of_the_page_is_of_something() -> None:
    """Nothing is described that is never printed."""
    assert set(re.findall(r"^### (.+)$", PAGE, re.MULTILINE)) == set(DOCUMENTED)


@pytest.mark.parametrize("kind", TOP, ids=lambda kind: kind.__name__)
def test_every_answer_has_a_version(kind: type[msgspec.Struct]) -> None:
    """And one list, as the page says; some say why half of it is not known."""
    (name,) = keys_of(kind) - {"version", "problem"}
    assert f'{{"version": {wellknown.JSON_VERSION}, "{name}": [' in PAGE


@pytest.mark.parametrize("shell", re.findall(r"_PENSTOCK_COMPLETE=(\w+)_source", PAGE))
def test_completion_is_as_the_page_says(shell: str) -> None:
    """What is to be evaluated names the command."""
    env = {"PATH": os.environ["PATH"], "_PENSTOCK_COMPLETE": f"{shell}_source"}
    code = "import sys; sys.argv = ['penstock']; from penstock.cli.main import main; main()"
    argv = [sys.executable, "-c", code]
    said = subprocess.run(argv, env=env, capture_output=True, text=True, timeout=60, check=False)
    assert "_PENSTOCK_COMPLETE" in said.stdout, said.stderr
