"""Downloads a suite's Slurm with its dependencies: apt resolves, verifies and retries, in a separate folder.

The machine's own packages are neither read nor changed.
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
    """Download the packages below `folder`."""
    uri = suites.mirror(_run(suites.ASK_APT, {}))
    for name in _DIRECTORIES:
        (folder / name).mkdir(parents=True)
    (folder / "state/status").touch()
    (folder / "sources.list").write_text(suites.sources_list(release, uri=uri))
    (folder / "apt.conf").write_text(suites.apt_conf(folder))
    proxies = {name: value for name, value in environment.items() if name.lower().endswith("_proxy")}
    settings = {"APT_CONFIG": str(folder / "apt.conf"), **proxies}
    _run(("apt-get", "--quiet", "--error-on=any", "update"), settings)
    _run(("apt-get", "--quiet", "--yes", "--download-only", "install", *suites.PACKAGES), settings)
    return sorted((folder / "cache/archives").glob("*.deb"))


def _run(argv: tuple[str, ...], environment: Mapping[str, str]) -> str:
    try:
        return subprocesses.run(argv, environment=environment, timeout=SECONDS).stdout
    except errors.LabError as error:
        raise errors.LabError(
            f"cannot fetch Slurm's packages: {error.message}",
            hint=error.hint or "Can apt reach its mirror? Try `apt-get update`.",
        ) from error
