"""Which commands get through to the Slurm node, with which words and variables."""

from __future__ import annotations

import pytest

from penstock.calls import commands, outcomes
from penstock.calls.requests import Request
from penstock.model import podcommands
from tests.calls.called import planned, refusal


@pytest.mark.parametrize("name", podcommands.QUERIES)
def test_query_is_passed_as_it_is(name: str) -> None:
    """Options, formats and abbreviations."""
    words = (b"-h", b"--form=%i \xff", b"17")
    run = planned(name, *words)
    assert (run.program, run.words, run.script) == (name, words, None)


def test_only_named_variables_are_passed() -> None:
    """Formats, not what leads to another Slurm or loads code."""
    kept = {b"SQUEUE_FORMAT": b"%i", b"SLURM_TIME_FORMAT": b"%s", b"LC_ALL": b"C", b"SLURM_NODELIST": b"n1"}
    dropped = (b"LD_PRELOAD", b"SLURM_CONF", b"PATH", b"GCONV_PATH", b"SLURM_JWT", b"LANGX", b"XSQUEUE_X")
    run = planned("squeue", environment=kept | dict.fromkeys(dropped, b"/x"))
    assert run.environment == kept


@pytest.mark.parametrize("name", podcommands.OFFERED)
def test_site_chooses(name: str) -> None:
    job = outcomes.Job(id=17, release=(22, 5), commands=("sinfo",), bridged_partitions=("gpu",))
    plan = commands.plan(Request(name=name), job, {outcomes.STDIN: b"#!/bin/sh\n"})
    if name == "sinfo":
        assert isinstance(plan, outcomes.Run)
    else:
        assert isinstance(plan, outcomes.Answer)
        assert (plan.code, b"does not offer" in plan.stderr) == (1, True)


@pytest.mark.parametrize("name", ["salloc", "sh", "../bin/sh", "sacctmgr", ""])
def test_other_commands_are_refused(name: str) -> None:
    assert refusal(name, b"-c", b"id").code == 1


@pytest.mark.parametrize("word", [b"--json=/tmp/evil.so", b"--yaml=../x", b"--js=a/b", b"--y=/x\n"])
def test_plugin_path_is_refused(word: bytes) -> None:
    """Slurm would load it on the node."""
    assert b"path" in refusal("squeue", word).stderr


@pytest.mark.parametrize("word", [b"--json", b"--json=v0.0.40", b"--yaml"])
def test_json_is_allowed(word: bytes) -> None:
    assert planned("squeue", word).words == (word,)


FILES = (b"--file=/etc/x", b"--file", b"--fil=x", b"--fi=x", b"-f", b"-f/etc/x", b"-nf", b"-nXf")


@pytest.mark.parametrize("word", FILES)
def test_sacct_reads_no_file(word: bytes) -> None:
    assert refusal("sacct", word).code == 1


@pytest.mark.parametrize("word", [b"--format=jobid", b"-ojobid,elapsedraw,f", b"-n", b"--federation"])
def test_sacct_options_are_allowed(word: bytes) -> None:
    """An f in a value is none."""
    assert planned("sacct", word).words == (word,)
