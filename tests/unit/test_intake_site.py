"""Dropped scripts are checked against the site as it is at that moment."""

from __future__ import annotations

import logging
import os
from pathlib import Path

import pytest

from tests.unit import intakes
from tests.unit.intakes import harness, nas

__all__ = ["nas"]  # pytest finds the fixture by its name

pytestmark = pytest.mark.skipif(os.geteuid() != 0, reason="only root can give files away")
VIEW = '{"partitions": {"gpu": {"default": true}}, "nodes": [{"cpus": 8, "memory_mib": 32768, "gpus": %d}]}'
SCRIPT = "#!/bin/sh\n#SBATCH --gres=gpu:8\ntrue\n"


async def test_request_beyond_largest_node_is_refused(nas: Path) -> None:
    """With line and amount; Slurm would say `Requested node configuration is not available`."""
    view = nas.parent / "site.json"
    view.write_text(VIEW % 4)
    here = harness(nas, site=str(view))
    intakes.drop(nas, "big.sh", text=SCRIPT)
    await here.settle()
    assert "8 GPUs on one node requested, the largest node has 4" in intakes.letter(nas)[0]
    assert here.slurm.jobs == []


async def test_changed_site_view_needs_no_restart(nas: Path) -> None:
    """`penstock apply` replaces the view, and the next file is checked against the new one."""
    view = nas.parent / "site.json"
    view.write_text(VIEW % 4)
    here = harness(nas, site=str(view))
    view.write_text(VIEW % 8)
    intakes.drop(nas, "big.sh", text=SCRIPT)
    await here.settle()
    intakes.assert_once(nas, here.slurm, ("big.sh",))


@pytest.mark.parametrize("text", ["", "{"])
async def test_without_site_view_slurm_decides(
    nas: Path, caplog: pytest.LogCaptureFixture, text: str
) -> None:
    """A missing or invalid view is logged, and no file is refused for it."""
    view = nas.parent / "site.json"
    if text:
        view.write_text(text)
    here = harness(nas, site=str(view))
    intakes.drop(nas, "big.sh", text=SCRIPT)
    with caplog.at_level(logging.WARNING):
        await here.settle()
    intakes.assert_once(nas, here.slurm, ("big.sh",))
    assert "not checked against the site" in caplog.text


async def test_uid_option_is_refused(nas: Path) -> None:
    """sbatch runs as the file's owner, and only root may use --uid."""
    here = harness(nas)
    intakes.drop(nas, "root.sh", text="#!/bin/sh\n#SBATCH --uid=0\ntrue\n")
    await here.settle()
    assert "--uid is for root only" in intakes.letter(nas)[0]
