"""The containerd that makes the store of images: gone when it is done, and nothing of it outside."""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import msgspec
import pytest

from penstock import errors
from penstock_lab import processes
from penstock_lab.kubernetes import archives, localimages, stores

pytestmark = [
    pytest.mark.needs("containerd", "ctr", package="containerd"),
    pytest.mark.skipif(os.geteuid() != 0, reason="needs root"),
]


@pytest.fixture
def folder() -> Iterator[Path]:
    """A short one: there will be a socket in it."""
    with tempfile.TemporaryDirectory(prefix="penstock-store-") as made:
        yield Path(made)


def test_it_makes_nothing_in_opt(folder: Path) -> None:
    """Its place for plugins is /opt/containerd unless it is told otherwise."""
    with stores._containerd(folder / "root", folder):
        assert (folder / "opt").is_dir()


PROGRAM = """
import sys, time
from pathlib import Path
from penstock_lab.kubernetes import stores
folder = Path(sys.argv[1])
with stores._containerd(folder / "root", folder):
    print("ready", flush=True)
    time.sleep(60)
"""


def test_temporary_containerd_dies_with_its_parent(folder: Path) -> None:
    """After a kill -9 nothing could stop it, and it belongs to no lab."""
    with subprocess.Popen([sys.executable, "-c", PROGRAM, str(folder)], stdout=subprocess.PIPE) as maker:
        assert maker.stdout is not None
        assert maker.stdout.readline() == b"ready\n"
        config = str(folder / "containerd.toml")
        found = [process.identity for process in processes.snapshot() if config in process.argv]
        maker.kill()
    assert len(found) == 1
    left = processes.wait_gone(found, seconds=5)
    processes.end(left, grace=5)
    assert left == []


def store_with(folder: Path, content: bytes) -> stores.Store:
    """A store whose userland is one file of this content."""
    made = stores.Store(folder)
    folder.mkdir()
    (folder / "file").write_bytes(content)
    layer = localimages.layer_of(localimages.Contents(programs={"file": folder / "file"}))
    lower = archives.Blob.of(layer)
    made.layer.write_bytes(layer)
    made.note.write_bytes(msgspec.json.encode(stores.Lower(lower.digest, lower.size)))
    return made


def test_a_node_filled_before_an_upgrade_of_the_host_gets_the_whole_userland(folder: Path) -> None:
    """A layer that is only named must be there; a repair after an upgrade of libc has another one."""
    old, new = store_with(folder / "old", b"1"), store_with(folder / "new", b"2")
    root = folder / "root"
    with stores._containerd(root, folder) as socket:

        def load(store: stores.Store) -> None:
            image = store.userland(whole=not stores.has_lower_layer(store, root))
            stores.load(socket, image, localimages.USERLAND, kind="native", scratch=folder)

        for store in (old, old, new):
            load(store)
        assert stores.has_lower_layer(new, root)
        image = store_with(folder / "newest", b"3").userland()
        with pytest.raises(errors.LabError, match="ctr failed"):
            stores.load(socket, image, localimages.USERLAND, kind="native", scratch=folder)
