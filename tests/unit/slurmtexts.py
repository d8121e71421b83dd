"""Output of Slurm's commands for tests: columns by name, scontrol's raw text, and stubs that print it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import pytest

from penstock import errors
from penstock.slurm import commands

SEPARATOR = "|0123456789abcdef|"
ROW = {
    "JobID": "1",
    "UserID": "1001",
    "RestartCnt": "0",
    "State": "RUNNING",
    "Partition": "gpu",
    "JobArrayID": "1",
    "ArrayJobID": "1",
    "ArrayTaskID": "N/A",
    "Name": "wrap",
    "GroupID": "1001",
    "Account": "research",
    "QOS": "high",
    "PriorityLong": "10164",
    "Reason": "None",
    "NodeList": "n[1-2]",
    "ReqNodes": "",
    "Reservation": "(null)",
    "Feature": "(null)",
    "SubmitTime": "1763270000",
    "EligibleTime": "1763270000",
    "StartTime": "1763270010",
    "TimeUsed": "1:02",
    "exit_code": "0",
    "Comment": "",
    "Requeue": "1",
    "admin_comment": "penstock 1763270000",
    "UserName": "alice",
}
"""Of squeue."""
RECORD = {
    "JobIDRaw": "23",
    "JobID": "20_3",
    "UID": "1001",
    "State": "COMPLETED",
    "ExitCode": "0:0",
    "Submit": "990",
    "Start": "1000",
    "End": "1050",
    "Elapsed": "00:00:50",
    "Account": "research",
    "Partition": "gpu",
    "QOS": "normal",
    "User": "alice",
    "JobName": "a b",
    "NodeList": "n1",
    "Comment": "",
}
"""Of sacct."""
SHOW_JOB = """\
JobId=1 JobName=wrap
   UserId=alice(1001) GroupId=alice(1001) MCS_label=N/A
   Priority=10164 Nice=0 Account=research QOS=high
   JobState=RUNNING Reason=None Dependency=(null)
   Requeue=1 Restarts=0 BatchFlag=1 Reboot=0 ExitCode=0:0
   RunTime=00:01:02 TimeLimit=UNLIMITED TimeMin=N/A
   SubmitTime=1763270000 EligibleTime=1763270000
   StartTime=1763270010 EndTime=Unknown Deadline=N/A
   Partition=gpu AllocNode:Sid=localhost:1524
   ReqNodeList=(null) ExcNodeList=(null)
   NodeList=n[1-2]
   TRES=cpu=5,mem=500M,node=2,billing=5,gres/gpu=4
   JOB_GRES=gpu:4
     Nodes=n1 CPU_IDs=0-3 Mem=400 GRES=gpu:2(IDX:0-1)
     Nodes=n2 CPU_IDs=0 Mem=100 GRES=gpu:2(IDX:0-1)
   MinCPUsNode=1 MinMemoryCPU=100M MinTmpDiskNode=0
   Command=/nas/x
   WorkDir=/nas/home/alice
"""


def show_job(gres: str, nodes: str = "n1") -> str:
    """SHOW_JOB with one line of nodes."""
    before, _, _ = SHOW_JOB.partition("     Nodes=")
    return f"{before}     Nodes={nodes} CPU_IDs=0-1 Mem=2048 GRES={gres}\n   MinCPUsNode=1\n"


def printed(rows: Sequence[Mapping[str, str]], names: Sequence[str], separator: str = SEPARATOR) -> str:
    """Output of squeue or sacct for these columns."""
    return "".join("".join(f"{row[name]}{separator}" for name in names) + "\n" for row in rows)


class Programs:
    """Stubs of Slurm's commands."""

    def __init__(self) -> None:
        self.queue: list[Mapping[str, str]] = []
        self.excluded = ""
        self.records: list[Mapping[str, str]] = []
        self.jobs = ""
        """Output of `scontrol show job`; empty for an unknown job."""
        self.config = ""
        self.calls: list[Sequence[str]] = []

    async def run(self, argv: Sequence[str], *, slurm_conf: str, **_: object) -> str:
        self.calls.append(argv)
        options = dict(word.split("=", 1) for word in argv if word.startswith("--") and "=" in word)
        if argv[0] == "squeue":
            return self.excluded if "--format" in options else self._squeue(options["--Format"])
        if argv[0] == "sacct":
            return printed(self.records, options["--format"].split(","), options["--delimiter"])
        if "config" in argv:
            return self.config
        if not self.jobs:
            raise errors.SlurmError("scontrol: Invalid job id specified")
        return self.jobs

    def _squeue(self, wanted: str) -> str:
        names, separators = zip(*(column.split(":", 1) for column in wanted.split(",")), strict=True)
        return printed(self.queue, names, separators[0])


@pytest.fixture
def programs(monkeypatch: pytest.MonkeyPatch) -> Programs:
    """A fixture that test modules import."""
    made = Programs()
    monkeypatch.setattr(commands, "run", made.run)
    return made
