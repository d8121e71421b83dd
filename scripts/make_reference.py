"""Writes docs/reference/ from the schema of the site file; a test fails when that was forgotten.

usage: make_reference.py
"""

from __future__ import annotations

from pathlib import Path

from penstock.site import reference

FOLDER = Path(__file__).resolve().parent.parent / "docs" / "reference"


def main() -> None:
    FOLDER.mkdir(exist_ok=True)
    (FOLDER / "site.md").write_text(reference.markdown(), encoding="utf-8")
    (FOLDER / "site.schema.json").write_text(reference.json_schema(), encoding="utf-8")
    print(f"docs/reference: {len(list(FOLDER.iterdir()))} files")


if __name__ == "__main__":
    main()
