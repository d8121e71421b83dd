"""Downloads a suite's Slurm with all it needs: apt resolves, verifies and retries, in a folder of its own.

Nothing of the machine's own packages is read or changed.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from penstock import errors
from penstock_lab import subprocesses
from penstock_lab.slurm import suites

SECONDS = 900.0
_DIRECTORIES = ("none", "state/lists/partial", "cache/archives/partial", "log")


def fetch(release: str, folder: Path, *, environment: Mapping[str, str]) -> list[Path]:
    """The packages as files below `folder`."""
    uri = suites.mirror(_run(suites.ASK_APT, {}))
    for name in _DIRECTORIES:
        (folder / name).mkdir(parents=True)
    (folder / "state/status").touch()
    (folder / "sources.list").write_text(suites.sources_list(release, uri=uri))
    (folder / "apt.conf").write_text(suites.apt_conf(folder))
    settings = {"APT_CONFIG": str(folder / "apt.conf"), **_proxies(environment)}
    _run(("apt-get", "--quiet", "--error-on=any", "update"), settings)
    _run(("apt-get", "--quiet", "--yes", "--download-only", "install", *suites.PACKAGES), settings)
    return sorted((folder / "cache/archives").glob("*.deb"))


def _proxies(environment: Mapping[str, str]) -> dict[str, str]:
    return {name: value for name, value in environment.items() if name.lower().endswith("_proxy")}


def _run(argv: tuple[str, ...], environment: Mapping[str, str]) -> str:
    try:
        return subprocesses.run(argv, environment=environment, timeout=SECONDS).stdout
    except errors.LabError as error:
        raise errors.LabError(
            f"cannot fetch Slurm's packages: {error.message}",
            hint=error.hint or "Is the mirror that apt uses within reach? `apt-get update` would tell.",
        ) from error
