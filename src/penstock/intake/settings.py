"""The intake's settings: a JSON file, every key checked, unknown ones refused."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import msgspec

from penstock import errors

Positive = Annotated[float, msgspec.Meta(gt=0)]
AtLeastOne = Annotated[int, msgspec.Meta(ge=1)]


class Settings(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    folder: str
    """The drop folder, <nas>/slurm-jobs; it must exist."""
    state: str
    """A local folder for the journal and sbatch's answers."""
    slurm_conf: str
    site: str = ""
    """The site's view (JSON), against which scripts are checked if it exists."""
    status: str = "/run/penstock/inbox.json"
    workdir: str = "{home}"
    """Working directory of jobs; may contain {home}, {user} and {uid}."""
    environment: dict[str, str] = {}
    """Variables of jobs, besides HOME, USER, LOGNAME, SHELL, PATH and LANG."""
    settle_seconds: Positive = 2.0
    poll_seconds: Positive = 0.5
    largest_bytes: AtLeastOne = 4 * 1024 * 1024
    user_folders: bool = False
    group_writable: bool = False
    in_flight: AtLeastOne = 4
    in_flight_per_user: AtLeastOne = 3
    uncertain_seconds: Positive = 150.0
    """How long Slurm must not know the token of an uncertain submission before it is repeated."""
    sbatch_seconds: Positive = 120.0
    slurm_release: str = "22.05"
    remember_days: Positive = 30.0
    log_level: str = "info"
    log_format: str = "text"


def load(path: Path) -> Settings:
    try:
        found = msgspec.json.decode(path.read_bytes(), type=Settings)
        found.workdir.format(home="", user="", uid=0)
    except OSError as error:
        raise errors.UsageError(f"cannot read {path}: {error.strerror}") from error
    except (msgspec.MsgspecError, UnicodeDecodeError) as error:
        raise errors.UsageError(f"{path}: {error}") from error
    except (KeyError, IndexError, ValueError) as error:
        raise errors.UsageError(
            f"{path}: invalid workdir pattern: {error!r}", hint="It may contain {home}, {user} and {uid}."
        ) from error
    if found.uncertain_seconds <= found.sbatch_seconds:
        raise errors.UsageError(
            f"{path}: uncertain_seconds is {found.uncertain_seconds:g},"
            f" and sbatch_seconds {found.sbatch_seconds:g}",
            hint="Make uncertain_seconds longer, or a file is submitted again while its sbatch still runs.",
        )
    return found
