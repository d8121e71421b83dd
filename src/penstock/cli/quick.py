"""The words of a plain `penstock validate` call, read without click.

click takes 10 to 25 ms to import, which is a third of the whole call. What is not plain (--help, an unknown
option, a missing value) is left to click, which says what is wrong; so this has no messages of its own and
the options are described in one place, validate.py.
"""

from __future__ import annotations

from collections.abc import Sequence

from penstock.cli import checking

FLAGS = {"--lint": "lint", "--quiet": "quiet", "-q": "quiet", "--no-summary": "no_summary"}
VALUES = {"--format": "style", "--site": "site_file", "--slurm": "release"}
SEVERAL = {"--silence": "silence", "--with": "accepted"}


def validate(words: Sequence[str]) -> int | None:
    """The exit status, or None when click should have a look at the call."""
    request = parse(words)
    return None if request is None else checking.run(request)


def parse(words: Sequence[str]) -> checking.Request | None:
    """What is asked for, when it is said in the plainest way."""
    given: dict[str, object] = {}
    several: dict[str, tuple[str, ...]] = {}
    files: list[str] = []
    rest = iter(words)
    for word in rest:
        if word == "--":
            files.extend(rest)
        elif word == "-" or not word.startswith("-"):
            files.append(word)
        elif word in FLAGS:
            given[FLAGS[word]] = True
        else:
            name, equals, value = word.partition("=")
            value = value if equals else next(rest, "")
            if not value:
                return None
            if name in SEVERAL:
                several[SEVERAL[name]] = (*several.get(SEVERAL[name], ()), value)
            elif name in VALUES:
                given[VALUES[name]] = value
            else:
                return None
    if not files or given.get("style", "text") not in checking.STYLES:
        return None
    return checking.Request(files=tuple(files), **several, **given)  # type: ignore[arg-type]  # names and types are those of FLAGS, VALUES and SEVERAL
