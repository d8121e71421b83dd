"""scontrol in pods: shows everything, changes jobs, and nothing else."""

from __future__ import annotations

import pytest

from tests.calls.called import planned, refusal


@pytest.mark.parametrize(
    ("line", "passed"),
    [
        ("show hostnames n[1-3]", "show hostnames n[1-3]"),
        ("show hostname", "show hostname"),
        ("sho job 17", "show job 17"),
        ("-o -d show job 17", "-o -d show job 17"),
        ("show job 17 --oneliner", "--oneliner show job 17"),
        ("show hostlistsorted n2,n1", "show hostlistsorted n2,n1"),
        ("requeue 17", "requeue 17"),
        ("REQ 17", "requeue 17"),
        ("requeuehold 17", "requeuehold 17"),
        ("hold 17", "hold 17"),
        ("release 17", "release 17"),
        ("update JobId=17 TimeLimit=10", "update JobId=17 TimeLimit=10"),
        ("upd TimeLimit=10 job=17", "update TimeLimit=10 job=17"),
        ("update job 17 Nice=5", "update job 17 Nice=5"),
        ("write batch_script 17 -", "write batch_script 17 -"),
        ("--version", "--version"),
        ("ping", "ping"),
    ],
)
def test_allowed(line: str, passed: str) -> None:
    """With the action written out."""
    words = tuple(word.encode() for word in line.split())
    assert planned("scontrol", *words).words == tuple(word.encode() for word in passed.split())


@pytest.mark.parametrize(
    "line",
    [
        "",
        "shutdown",
        "reconfigure",
        "reconfig",
        "takeover",
        "setdebug 9",
        "reboot n1",
        "token",
        "create reservation",
        "delete partitionname=x",
        "update NodeName=n1 State=DRAIN",
        "update PartitionName=gpu State=DOWN",
        "update",
        "write batch_script 17",
        "write batch_script 17 /tmp/x",
        "write config /tmp/x",
        "show hostlist /etc/hosts",
        "show hostlistsorted /etc/hosts",
        "listpids",
        "s",
        "sh",
        "re 17",
        "-M other show job",
        "--authinfo=x show job",
        "--json=/tmp/x.so show job",
        "show job --conf=/tmp/x",
    ],
)
def test_refused(line: str) -> None:
    """In words, with what would do."""
    assert b"penstock: " in refusal("scontrol", *(word.encode() for word in line.split())).stderr
