"""Writes docs/reference/ from the site file's schema and the kinds of reasons; a test checks that it is
current.

usage: make_reference.py
"""

from __future__ import annotations

from pathlib import Path

from penstock.model.reasons import OUTCOMES, REFUSALS
from penstock.site import reference

FOLDER = Path(__file__).resolve().parent.parent / "docs" / "reference"
REASONS = """# Reasons

Why a job does not start yet, and how it ended. Programs should use the kind, which is stable; the text is for
people and may change. Kinds are in `penstock jobs|show --format json` ([JSON](json.md)), in
`job_summary.json` and as label `kind` of the metrics `penstock_refused_total` and `penstock_ended_total`.
This page is made from `src/penstock/model/reasons.py` by `scripts/make_reference.py`.

## Refusals: the job goes back to the queue

| kind | meaning | what to do |
|---|---|---|
{refusals}

## Outcomes: the job has ended

| kind | meaning | exit code in Slurm |
|---|---|---|
{outcomes}
"""


def reasons() -> str:
    refusals, outcomes = (
        "\n".join(f"| `{kind}` | {meaning} | {last} |" for kind, (meaning, last) in table.items())
        for table in (REFUSALS, OUTCOMES)
    )
    return REASONS.format(refusals=refusals, outcomes=outcomes)


def main() -> None:
    FOLDER.mkdir(exist_ok=True)
    (FOLDER / "site.md").write_text(reference.markdown(), encoding="utf-8")
    (FOLDER / "site.schema.json").write_text(reference.json_schema(), encoding="utf-8")
    (FOLDER / "reasons.md").write_text(reasons(), encoding="utf-8")
    print(f"docs/reference: {len(list(FOLDER.iterdir()))} files")


if __name__ == "__main__":
    main()
