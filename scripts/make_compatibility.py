"""Writes docs/compatibility.md from the option table; with --check, only checks that it is up to date."""

from __future__ import annotations

import sys
from pathlib import Path

from penstock.sbatch import compatibility

PAGE = Path(__file__).parents[1] / "docs" / "compatibility.md"


def main() -> int:
    """Returns 1 if --check finds the page out of date."""
    text = compatibility.render()
    if "--check" in sys.argv[1:]:
        current = PAGE.read_text(encoding="utf-8") if PAGE.exists() else ""
        if current != text:
            print(f"{PAGE.name} is out of date: run scripts/make_compatibility.py")
            return 1
        return 0
    PAGE.write_text(text, encoding="utf-8")
    print(f"wrote {PAGE.name}, {len(text.splitlines())} lines")
    return 0


if __name__ == "__main__":
    sys.exit(main())
