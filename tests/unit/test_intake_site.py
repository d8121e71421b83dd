"""A dropped script is held against the site, as it is at that moment."""

from __future__ import annotations

import logging
import os
from pathlib import Path

import pytest

from tests.unit import intakes
from tests.unit.intakes import desk, nas

__all__ = ["nas"]  # pytest finds the fixture by its name

pytestmark = pytest.mark.skipif(os.geteuid() != 0, reason="only root can give files away")
VIEW = '{"partitions": {"gpu": {"default": true}}, "nodes": [{"cpus": 8, "memory_mib": 32768, "gpus": %d}]}'
SCRIPT = "#!/bin/sh\n#SBATCH --gres=gpu:8\ntrue\n"


async def test_what_no_node_can_hold_is_refused_in_words(nas: Path) -> None:
    """The letter names line and amount; Slurm would say `Requested node configuration is not available`."""
    view = nas.parent / "site.json"
    view.write_text(VIEW % 4)
    here = desk(nas, site=str(view))
    intakes.drop(nas, "big.sh", text=SCRIPT)
    await here.settle()
    assert "8 GPUs on one node asked for, the largest node has 4" in intakes.letter(nas)[0]
    assert here.slurm.jobs == []


async def test_a_site_that_has_grown_is_seen_without_a_restart(nas: Path) -> None:
    """`penstock apply` writes the view anew, and the next file is judged by it."""
    view = nas.parent / "site.json"
    view.write_text(VIEW % 4)
    here = desk(nas, site=str(view))
    view.write_text(VIEW % 8)
    intakes.drop(nas, "big.sh", text=SCRIPT)
    await here.settle()
    intakes.assert_once(nas, here.slurm, ("big.sh",))


@pytest.mark.parametrize("text", ["", "{"])
async def test_without_a_view_slurm_decides(nas: Path, caplog: pytest.LogCaptureFixture, text: str) -> None:
    """It is missing, or cannot be read: said in the log, and nobody's file is refused for it."""
    view = nas.parent / "site.json"
    if text:
        view.write_text(text)
    here = desk(nas, site=str(view))
    intakes.drop(nas, "big.sh", text=SCRIPT)
    with caplog.at_level(logging.WARNING):
        await here.settle()
    intakes.assert_once(nas, here.slurm, ("big.sh",))
    assert "not held against the site" in caplog.text


async def test_another_owner_is_not_to_be_had(nas: Path) -> None:
    """sbatch runs as the file's owner, and takes --uid from root alone."""
    here = desk(nas)
    intakes.drop(nas, "root.sh", text="#!/bin/sh\n#SBATCH --uid=0\ntrue\n")
    await here.settle()
    assert "--uid is for root alone" in intakes.letter(nas)[0]
