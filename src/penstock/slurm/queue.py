"""Jobs that have not ended, as far as a change of Slurm's configuration can harm them."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence

from penstock import errors
from penstock.model import numbers
from penstock.slurm import commands, fields, hostlists, marks

_FIELDS = ("JobID", "JobArrayID", "ArrayJobID", "Partition", "NodeList", "ReqNodes", "admin_comment")
_UNSET = ("", "(null)", "N/A")


@dataclasses.dataclass(frozen=True, kw_only=True)
class UnfinishedJob:
    """A job, a task of an array, or the tasks of an array that all wait."""

    job_id: int
    shown_id: str
    """As squeue shows it: 20_3, or 20_[4-9]."""
    script_id: int
    """The job whose script slurmctld keeps for it: that of its array."""
    partitions: tuple[str, ...]
    """More than one while it waits."""
    nodes: frozenset[str] = frozenset()
    """Those it has, and those it asked for by name."""
    prepared: bool = False
    """It came through Penstock's job_submit.lua: its script starts the launcher."""


async def unfinished(slurm_conf: str) -> tuple[UnfinishedJob, ...]:
    """Every one of them, whoever asks and whatever partitions are hidden."""
    separator = fields.made_up()
    argv = ("squeue", "--noheader", "--all", fields.wanted(_FIELDS, separator))
    return parse(await commands.run(argv, slurm_conf=slurm_conf), separator)


def parse(text: str, separator: str) -> tuple[UnfinishedJob, ...]:
    """Jobs from squeue's answer; SlurmError when it is not what was asked for."""
    return tuple(_job(row) for row in fields.rows(text, separator, len(_FIELDS)))


def _job(row: Sequence[str]) -> UnfinishedJob:
    job_id, shown, array, partitions, held, required, comment = row
    number = numbers.natural(job_id)
    script = number if array in _UNSET else numbers.natural(array)
    if number is None or script is None:
        raise errors.SlurmError(f"squeue printed a job that we do not understand: {row[:6]}")
    return UnfinishedJob(
        job_id=number,
        shown_id=shown,
        script_id=script,
        partitions=tuple(filter(None, partitions.split(","))),
        nodes=frozenset((*_nodes(held), *_nodes(required))),
        prepared=marks.read(comment) is not None,
    )


def _nodes(names: str) -> tuple[str, ...]:
    return () if names in _UNSET else hostlists.expand(names)
