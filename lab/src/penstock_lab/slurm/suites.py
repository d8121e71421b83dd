"""Which suite of Debian's archive carries which release of Slurm, and where apt finds the archive.

The mirror is whatever apt already uses, asked of apt itself: no address is written down here.
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
"""With all they depend on; the last one makes the others find each other outside of /usr."""
KEYRING = Path("/usr/share/keyrings/debian-archive-keyring.gpg")
ASK_APT = (
    "apt-get",
    "indextargets",
    "--format=$(ORIGIN)|$(LABEL)|$(COMPONENT)|$(REPO_URI)",
    "Created-By: Packages",
)
_WANTED = ["Debian", "Debian", "main"]
_RECIPE = "2"
"""Another number when what is made of the packages changes: what was kept is then made anew."""


def suite_of(release: str) -> str:
    """The suite that carries the release, such as trixie for 24.11."""
    return SUITES[releases.parse(release)]


def cache_name(release: str) -> str:
    """The same for the same release, packages and recipe."""
    content = "\0".join((_RECIPE, suite_of(release), *PACKAGES))
    return f"slurm-{release}-{hashlib.sha256(content.encode()).hexdigest()[:16]}"


def mirror(answer: str) -> str:
    """Debian's archive, from what apt says to ASK_APT."""
    rows = (line.split("|") for line in answer.split("\n"))
    found = next((row[3] for row in rows if row[:3] == _WANTED and len(row) == 4), "")
    if not found:
        raise errors.LabError(
            "apt knows no mirror of Debian's archive, where other releases of Slurm come from",
            hint="Use the installed Slurm (no --slurm), or add a Debian mirror to apt's sources.",
        )
    return found


def sources_list(release: str, *, uri: str) -> str:
    """The one line of sources.list that apt needs for this release."""
    if not KEYRING.is_file():
        raise errors.LabError(
            f"{KEYRING} is missing, so packages cannot be verified",
            hint="apt-get install debian-archive-keyring",
        )
    return f"deb [signed-by={KEYRING}] {uri} {suite_of(release)} main\n"


def apt_conf(folder: Path) -> str:
    """Makes apt live in `folder`, as where nothing is installed; proxies stay those of the machine."""
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
