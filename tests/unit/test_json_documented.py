"""docs/reference/json.md agrees with what the commands print."""

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
    """Keys in the first column of the section's table."""
    _, _, rest = PAGE.partition(f"\n### {section}\n")
    table = re.split(r"\n##", rest)[0]
    cells = [line.split(" | ")[0] for line in table.split("\n") if line.startswith("| `")]
    return {key for cell in cells for key in re.findall(r"`(\w+)`", cell)}


def keys_of(kind: type[msgspec.Struct]) -> set[str]:
    return {field.encode_name for field in msgspec.structs.fields(kind)}


@pytest.mark.parametrize("section", DOCUMENTED)
def test_all_keys_are_documented(section: str) -> None:
    """A changed key must change the page, and perhaps the version."""
    expected = keys_of(DOCUMENTED[section])
    if section == "Shown job":
        expected -= keys_of(jobs.Job)
    assert keys_in(section) == expected


@pytest.mark.parametrize("section", DOCUMENTED)
def test_times_and_job_ids_have_one_form(section: str) -> None:
    """Times are ISO 8601; job ids are text, since 20_3 is one."""
    for name, hint in typing.get_type_hints(DOCUMENTED[section]).items():
        forms = {hint, *typing.get_args(hint)}
        assert float not in forms or name == "cpus", name
        if name in ("job", "job_id"):
            assert int not in forms, name


def test_all_documented_tables_exist() -> None:
    """Nothing is documented that is never printed."""
    assert set(re.findall(r"^### (.+)$", PAGE, re.MULTILINE)) == set(DOCUMENTED)


@pytest.mark.parametrize("kind", TOP, ids=lambda kind: kind.__name__)
def test_every_answer_has_a_version(kind: type[msgspec.Struct]) -> None:
    """And one list, as the page says; some have a `problem`."""
    (name,) = keys_of(kind) - {"version", "problem"}
    assert f'{{"version": {wellknown.JSON_VERSION}, "{name}": [' in PAGE


@pytest.mark.parametrize("shell", re.findall(r"_PENSTOCK_COMPLETE=(\w+)_source", PAGE))
def test_completion_is_as_documented(shell: str) -> None:
    """The printed script names the command."""
    env = {"PATH": os.environ["PATH"], "_PENSTOCK_COMPLETE": f"{shell}_source"}
    code = "import sys; sys.argv = ['penstock']; from penstock.cli.main import main; main()"
    argv = [sys.executable, "-c", code]
    said = subprocess.run(argv, env=env, capture_output=True, text=True, timeout=60, check=False)
    assert "_PENSTOCK_COMPLETE" in said.stdout, said.stderr
