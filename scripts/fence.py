"""The PATH that tests run with: links to the programs of the packages that a make target installs, of what
those depend on, and of what every Debian has.

A program that only another target or another machine brings is out of sight, so that a test that needs it
without saying so fails here, where it is written, and not on a machine that has nothing but Python, make and
apt. What a test needs beyond, it declares with the marker `needs` (tests/programs.py).
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
"""The PATH from before, for tests that declare what they need."""
QUERY_SECONDS = 60
_FIELDS = (
    "${db:Status-Status}\t${Package}\t${Essential}\t${Priority}\t${Provides}\t${Pre-Depends}, ${Depends}\n"
)


@dataclass(frozen=True)
class Package:
    """What is known of an installed package; each dependency is a choice of names."""

    name: str
    is_everywhere: bool
    provides: tuple[str, ...]
    depends: tuple[tuple[str, ...], ...]


@contextlib.contextmanager
def restricted(programs: Mapping[str, str], environment: Mapping[str, str]) -> Iterator[dict[str, str]]:
    """The environment for tests that may see `programs` (name → package); without dpkg, unchanged."""
    before = f"{environment.get('PATH', os.defpath)}:{':'.join(map(str, PLACES))}"
    if shutil.which("dpkg-query", path=before) is None:
        print("penstock: no dpkg here: tests see every program of this machine", flush=True)
        yield dict(environment)
        return
    with tempfile.TemporaryDirectory(prefix="penstock-programs-") as folder:
        Path(folder).chmod(0o755)
        for name, program in visible(programs, before).items():
            (Path(folder) / name).symlink_to(program)
        yield {**environment, "PATH": folder, wellknown.ENV_LAB_PATH: folder, OUTSIDE: before}


def visible(programs: Mapping[str, str], search: str) -> dict[str, Path]:
    """Every program that tests see by its name: what the packages bring, and each that is named itself,
    wherever it came from.
    """
    known = installed()
    chosen = closure(known, [*programs.values(), *owners(programs, search)])
    found = programs_of(files(chosen))
    for name in programs:
        path = shutil.which(name, path=search)
        if path and "/" not in name:
            found.setdefault(name, Path(path))
    return found


def installed() -> dict[str, Package]:
    """All installed packages by name."""
    lines = _dpkg_query("--show", f"--showformat={_FIELDS}").split("\n")
    rows = (line.split("\t") for line in lines if line.startswith("installed\t"))
    return {row[1]: parse(*row[1:]) for row in rows}


def parse(name: str, essential: str, priority: str, provides: str, depends: str) -> Package:
    """One line of dpkg-query's."""
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
    """Packages that are everywhere, `roots`, and what they depend on; of a choice, the first that is here."""
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
    """Packages that brought these programs here, under whatever name: a site may have its own kubectl."""
    paths = [path for name in programs if (path := shutil.which(name, path=search))]
    lines = _dpkg_query("--search", *paths, check=False).split("\n")
    return [_bare(line.rpartition(": ")[0]) for line in lines if ": " in line]


def files(packages: Iterable[str]) -> set[Path]:
    """What the packages consist of, by true names: /bin may be a link to /usr/bin."""
    listed = _dpkg_query("--listfiles", *sorted(packages), check=False).split("\n")
    folders: dict[str, Path] = {}
    found = set()
    for line in listed:
        folder, _, name = line.rpartition("/")
        if folder.endswith("bin") and name:
            found.add(folders.setdefault(folder, Path(folder).resolve()) / name)
    return found


def programs_of(owned: set[Path]) -> dict[str, Path]:
    """Programs by name that are among these files or lead to one, as awk does to mawk."""
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
