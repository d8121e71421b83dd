"""Debian's suites by release of Slurm, and the configuration with which apt downloads them.

The mirror is the one that apt already uses, as apt reports it.
"""

from __future__ import annotations

import hashlib
from pathlib import Path

from penstock import errors
from penstock.model import releases

SUITES: dict[releases.Release, str] = {(22, 5): "bookworm", (24, 11): "trixie", (26, 5): "sid"}
CHOICES = tuple(releases.text(release) for release in sorted(SUITES))
PACKAGES = (
    "slurmctld",
    "slurmd",
    "slurmdbd",
    "slurm-client",
    "slurm-wlm-basic-plugins",
    "slurm-wlm-mysql-plugin",
    "patchelf",
)
"""patchelf makes the others work outside /usr."""
KEYRING = Path("/usr/share/keyrings/debian-archive-keyring.gpg")
ASK_APT = (
    "apt-get",
    "indextargets",
    "--format=$(ORIGIN)|$(LABEL)|$(COMPONENT)|$(REPO_URI)",
    "Created-By: Packages",
)
_WANTED = ["Debian", "Debian", "main"]
_RECIPE = "2"
"""Change it when the result of unpacking changes, to invalidate the cache."""


def suite_of(release: str) -> str:
    """The suite with the release, such as trixie for 24.11."""
    return SUITES[releases.parse(release)]


def cache_name(release: str) -> str:
    """Depends on release, packages and recipe."""
    content = "\0".join((_RECIPE, suite_of(release), *PACKAGES))
    return f"slurm-{release}-{hashlib.sha256(content.encode()).hexdigest()[:16]}"


def mirror(answer: str) -> str:
    """The URI of Debian's archive, from apt's answer to ASK_APT."""
    rows = (line.split("|") for line in answer.split("\n"))
    found = next((row[3] for row in rows if row[:3] == _WANTED and len(row) == 4), "")
    if not found:
        raise errors.LabError(
            "apt has no mirror of Debian's archive, needed for other releases of Slurm",
            hint="Use the installed Slurm (no --slurm), or add a Debian mirror to apt's sources.",
        )
    return found


def sources_list(release: str, *, uri: str) -> str:
    if not KEYRING.is_file():
        raise errors.LabError(
            f"{KEYRING} is missing, so packages cannot be verified",
            hint="apt-get install debian-archive-keyring",
        )
    return f"deb [signed-by={KEYRING}] {uri} {suite_of(release)} main\n"


def apt_conf(folder: Path) -> str:
    """apt.conf that keeps apt in `folder`, with no installed packages and the machine's proxies."""
    return f"""\
Dir::Etc::SourceList "{folder}/sources.list";
Dir::Etc::SourceParts "{folder}/none";
Dir::Etc::Preferences "{folder}/none/preferences";
Dir::Etc::PreferencesParts "{folder}/none";
Dir::State "{folder}/state";
Dir::State::Status "{folder}/state/status";
Dir::Cache "{folder}/cache";
Dir::Log "{folder}/log";
APT::Install-Recommends "false";
APT::Sandbox::User "root";
Acquire::Languages "none";
Acquire::Retries "3";
#clear APT::Update::Pre-Invoke;
#clear APT::Update::Post-Invoke;
#clear APT::Update::Post-Invoke-Success;
"""
