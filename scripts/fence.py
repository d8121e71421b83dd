"""The tests' PATH: links to the programs of the packages that a make target installs, of their dependencies,
and of every Debian.

Programs of other targets or of this machine are not visible, so a test with an undeclared dependency fails
here and not on a machine with only Python, make and apt. A test declares further programs with the marker
`needs` (tests/programs.py).
"""

from __future__ import annotations

import contextlib
import os
import shutil
import subprocess
import tempfile
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from penstock import wellknown

PLACES = tuple(Path(place, name) for place in ("/usr/local", "/usr", "/") for name in ("sbin", "bin"))
OUTSIDE = "PENSTOCK_TEST_OUTSIDE"
"""The original PATH, for tests that declare what they need."""
QUERY_SECONDS = 60
_FIELDS = (
    "${db:Status-Status}\t${Package}\t${Essential}\t${Priority}\t${Provides}\t${Pre-Depends}, ${Depends}\n"
)


@dataclass(frozen=True)
class Package:
    """An installed package; each dependency is a tuple of alternatives."""

    name: str
    is_everywhere: bool
    provides: tuple[str, ...]
    depends: tuple[tuple[str, ...], ...]


@contextlib.contextmanager
def restricted(programs: Mapping[str, str], environment: Mapping[str, str]) -> Iterator[dict[str, str]]:
    """The environment of tests with these programs (name → package); unchanged without dpkg."""
    before = f"{environment.get('PATH', os.defpath)}:{':'.join(map(str, PLACES))}"
    if shutil.which("dpkg-query", path=before) is None:
        print("penstock: no dpkg: tests see all programs of this machine", flush=True)
        yield dict(environment)
        return
    with tempfile.TemporaryDirectory(prefix="penstock-programs-") as folder:
        Path(folder).chmod(0o755)
        for name, program in visible(programs, before).items():
            (Path(folder) / name).symlink_to(program)
        yield {**environment, "PATH": folder, wellknown.ENV_LAB_PATH: folder, OUTSIDE: before}


def visible(programs: Mapping[str, str], search: str) -> dict[str, Path]:
    """The visible programs by name: those of the packages, and `programs` themselves."""
    known = installed()
    chosen = closure(known, [*programs.values(), *owners(programs, search)])
    found = programs_of(files(chosen))
    for name in programs:
        path = shutil.which(name, path=search)
        if path and "/" not in name:
            found.setdefault(name, Path(path))
    return found


def installed() -> dict[str, Package]:
    """Installed packages by name."""
    lines = _dpkg_query("--show", f"--showformat={_FIELDS}").split("\n")
    rows = (line.split("\t") for line in lines if line.startswith("installed\t"))
    return {row[1]: parse(*row[1:]) for row in rows}


def parse(name: str, essential: str, priority: str, provides: str, depends: str) -> Package:
    """Parse a line of dpkg-query."""
    return Package(
        name=name,
        is_everywhere=essential == "yes" or priority == "required",
        provides=tuple(_bare(word) for word in provides.split(",") if word.strip()),
        depends=tuple(
            tuple(_bare(word) for word in choice.split("|"))
            for choice in depends.split(",")
            if choice.strip()
        ),
    )


def _bare(word: str) -> str:
    """`libc6:any (>= 2.34)` → `libc6`."""
    return word.partition("(")[0].partition(":")[0].strip()


def closure(known: Mapping[str, Package], roots: Iterable[str]) -> set[str]:
    """Essential packages, `roots`, and their dependencies; of alternatives, the first that is installed."""
    providers = {name: package.name for package in known.values() for name in package.provides}
    waiting = [*roots, *(package.name for package in known.values() if package.is_everywhere)]
    chosen: set[str] = set()
    while waiting:
        name = waiting.pop()
        if name in chosen or name not in known:
            continue
        chosen.add(name)
        for choice in known[name].depends:
            candidates = (providers.get(each, each) if each not in known else each for each in choice)
            waiting.extend([each for each in candidates if each in known][:1])
    return chosen


def owners(programs: Iterable[str], search: str) -> list[str]:
    """The packages that own these programs: a site may have its own kubectl package."""
    paths = [path for name in programs if (path := shutil.which(name, path=search))]
    lines = _dpkg_query("--search", *paths, check=False).split("\n")
    return [_bare(line.rpartition(": ")[0]) for line in lines if ": " in line]


def files(packages: Iterable[str]) -> set[Path]:
    """The packages' programs by resolved path: /bin may be a link to /usr/bin."""
    listed = _dpkg_query("--listfiles", *sorted(packages), check=False).split("\n")
    folders: dict[str, Path] = {}
    found = set()
    for line in listed:
        folder, _, name = line.rpartition("/")
        if folder.endswith("bin") and name:
            found.add(folders.setdefault(folder, Path(folder).resolve()) / name)
    return found


def programs_of(owned: set[Path]) -> dict[str, Path]:
    """Programs by name that are among these files or link to one, as awk links to mawk."""
    found: dict[str, Path] = {}
    for place in dict.fromkeys(place.resolve() for place in PLACES):
        for path in sorted(place.iterdir()) if place.is_dir() else ():
            if path in owned or path.resolve() in owned:
                found.setdefault(path.name, path)
    return found


def _dpkg_query(*arguments: str, check: bool = True) -> str:
    argv = ["dpkg-query", *arguments]
    result = subprocess.run(
        argv,
        stdout=subprocess.PIPE,
        stderr=None if check else subprocess.DEVNULL,
        text=True,
        timeout=QUERY_SECONDS,
        env={"PATH": os.environ.get("PATH", os.defpath), "LC_ALL": "C"},
        check=check,
    )
    return result.stdout
