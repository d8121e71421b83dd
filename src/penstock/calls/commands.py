"""The commands of Slurm's that pods have, and how a call of each is planned."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping

from penstock.calls import scontrol, srunplan, submission
from penstock.calls.outcomes import Answer, Files, Job, Run, Step, Wanted, refused
from penstock.calls.requests import Request
from penstock.model import podcommands

_PASSED = re.compile(
    rb"(?:SQUEUE|SINFO|SACCT|SCANCEL|SPRIO|SSHARE|SSTAT|SCONTROL)_[A-Z_]+"
    rb"|SLURM_(?:TIME_FORMAT|BITSTR_LEN|CLUSTERS|JOB_NODELIST|NODELIST)|LANG|LC_[A-Z]+|TZ"
)
_PARSER = re.compile(rb"--(?:j|js|jso|json|y|ya|yam|yaml)=.*/.*", re.DOTALL)
"""A plugin named by its path would be loaded."""
_SACCT_FILE = re.compile(rb"--fi(?:l|le)?(?:=.*)?|-[abBcDhlLnpPTvVXZ]*f.*", re.DOTALL)


def plan(request: Request, job: Job, files: Files) -> Answer | Run | Wanted:
    """What becomes of the call; `files` are those that earlier plans wanted."""
    planner = _PLANNERS.get(request.name)
    if planner is None:
        return refused(request.name, "this command does not work in pods")
    if request.name in podcommands.OFFERED and request.name not in job.commands:
        return refused(request.name, "this site does not offer this command in pods")
    return planner(request, job, files)


def variables(request: Request) -> dict[bytes, bytes]:
    """Variables that only change what a command shows."""
    return {name: value for name, value in request.environment.items() if _PASSED.fullmatch(name)}


def _query(request: Request, job: Job, files: Files) -> Answer | Run | Wanted:
    """A command that reads from slurmctld or slurmdbd, or cancels: it has the rights of the job's owner."""
    if any(map(_PARSER.fullmatch, request.words)):
        return refused(request.name, "--json and --yaml take no path in pods")
    if request.name == "sacct" and any(map(_SACCT_FILE.fullmatch, request.words)):
        return refused(request.name, "--file would be read on the Slurm node")
    return Run(program=request.name, words=request.words, environment=variables(request))


def _scontrol(request: Request, job: Job, files: Files) -> Answer | Run | Wanted:
    found = scontrol.words(request.words)
    if isinstance(found, Answer):
        return found
    return Run(program=request.name, words=found, environment=variables(request))


def _srun(request: Request, job: Job, files: Files) -> Answer | Run | Wanted:
    found = srunplan.plan(request.words, request.environment, job, files)
    if isinstance(found, Step):
        why = "job steps (srun) do not run in pods yet; write the command without srun"
        return refused(request.name, why)
    return found


def _salloc(request: Request, job: Job, files: Files) -> Answer | Run | Wanted:
    return refused(request.name, "there is no salloc in pods; submit a script with sbatch")


_PLANNERS: Mapping[str, Callable[[Request, Job, Files], Answer | Run | Wanted]] = {
    **dict.fromkeys(podcommands.QUERIES, _query),
    "scontrol": _scontrol,
    "sbatch": submission.plan,
    "srun": _srun,
    "salloc": _salloc,
}
