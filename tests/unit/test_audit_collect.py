"""Taking a snapshot: what is read from Kubernetes, Slurm and penstockd."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import msgspec
import pytest

from penstock import wellknown
from penstock.audit import collect, invariants
from penstock.kube import types
from penstock.kube.kinds import PODS, Kind
from penstock.model import audits, nodes
from penstock.slurm import accounting, control, jobtexts
from tests.unit import slurmtexts
from tests.unit import test_audit as planting

NODES = {
    "n1": ("down", "Not responding"),
    "n2": ("drain", "penstock: x|y"),
    "n3": ("fail", ""),
    "n4": ("idle", ""),
}


class FakeKube:
    """Has pods only."""

    def __init__(self, *pods: types.Pod) -> None:
        self._pods = pods

    async def list(self, kind: Kind, *, metadata_only: bool = False, **_: Any) -> bytes:
        items = self._pods if kind == PODS else []
        return msgspec.json.encode({"metadata": {}, "items": None if metadata_only else items})


@pytest.fixture(autouse=True)
def slurm(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Has no jobs; its sinfo shows hidden nodes in the requested states."""
    shown = "\n".join(
        f'case "$wanted" in *,{state},*) echo "{name}|gpu|1000|{reason}|" ;; esac'
        for name, (state, reason) in NODES.items()
    )
    sinfo = f"""
for word; do
    case "$word" in --states=*) wanted=",${{word#--states=}}," ;; --all) all=yes ;; esac
done
test -n "$all" || exit 0
{shown}
"""
    for name, text in (
        ("scontrol", "echo 'ClusterName             = lab'"),
        ("squeue", ""),
        ("sinfo", sinfo),
    ):
        (tmp_path / name).write_text(f"#!/bin/sh\n{text}\n")
        (tmp_path / name).chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:/usr/bin:/bin")


@pytest.mark.parametrize(("recorded", "kinds"), [("because", []), ("", ["reason-missing"])])
async def test_the_reason_is_read_from_accounting(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, recorded: str, kinds: list[str]
) -> None:
    """slurmctld accepts no comment for a job without a database index."""
    ended = audits.End(job_id=17, restart=0, exit_code=3, reason="because")
    monkeypatch.setattr(collect, "ask_daemon", lambda path: audits.DaemonView(ends=(ended,)))
    monkeypatch.setattr("penstock.slurm.fields.made_up", lambda: "~")
    failed = {"JobID": "17", "State": "FAILED", "exit_code": "768", "Comment": "waits [penstock]"}
    row = slurmtexts.printed([slurmtexts.ROW | failed], jobtexts.COLUMNS, "~")
    known = slurmtexts.RECORD | {"JobIDRaw": "17", "Comment": recorded}
    for name, text in (("squeue", row), ("sacct", slurmtexts.printed([known], accounting.COLUMNS, "~"))):
        (tmp_path / name).write_text(f"#!/bin/sh\necho '{text}'\n")
        (tmp_path / name).chmod(0o755)
    seen = await collect.Looker(FakeKube(), "/etc/slurm/slurm.conf", "/nowhere").look()
    assert [one.kind for one in invariants.judge(seen)] == kinds


@pytest.mark.parametrize(
    ("node", "kinds"),
    [
        ("n1", ["orphan-pod"]),
        ("n2", ["orphan-pod"]),
        ("n3", ["orphan-pod"]),
        ("n4", ["freed-too-early", "orphan-pod"]),
    ],
    ids=["down", "drained", "failing", "idle"],
)
async def test_pods_on_down_nodes_are_no_violation(node: str, kinds: list[str]) -> None:
    """Slurm takes jobs off a down node without waiting for pods, and starts nothing there."""
    pod = planting.pod(on=node)
    labels = {**pod.metadata.labels, wellknown.LABEL_CLUSTER: "lab"}
    ours = msgspec.structs.replace(pod, metadata=msgspec.structs.replace(pod.metadata, labels=labels))
    seen = await collect.Looker(FakeKube(ours), "/etc/slurm/slurm.conf", "/nowhere").look()
    assert sorted(one.kind for one in invariants.judge(seen)) == kinds


async def test_penstockd_resumes_drained_nodes_only() -> None:
    """Not down ones."""
    slurm = control.SlurmControl("/etc/slurm/slurm.conf")
    assert await slurm.drained({"host"}) == ()
    found = await slurm.drained({"gpu", "host"})
    assert found == (nodes.Drain(node="n2", reason="penstock: x|y", since=1000.0),)
