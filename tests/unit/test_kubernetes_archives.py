"""Archives that containerd takes, and the store that every node begins with."""

from __future__ import annotations

import hashlib
import json
import tarfile
from pathlib import Path
from typing import Any

import pytest

from penstock_lab.kubernetes import archives, stores

BELOW, ABOVE = archives.Blob.of(b"below"), archives.Blob.of(b"above")
IMAGE = archives.Image(entrypoint=("/x",), layers=(BELOW, ABOVE))


def content(path: Path) -> dict[str, bytes]:
    """Every file of an archive."""
    with tarfile.open(path) as archive:
        found = {name: archive.extractfile(name) for name in archive.getnames()}
        return {name: file.read() for name, file in found.items() if file is not None}


def blob(files: dict[str, bytes], described: dict[str, Any]) -> bytes:
    """What a descriptor speaks of, which must fit."""
    found = files[f"blobs/{described['digest'].replace(':', '/')}"]
    assert f"sha256:{hashlib.sha256(found).hexdigest()}" == described["digest"]
    assert len(found) == described["size"]
    return found


def test_an_archive_says_what_it_is(tmp_path: Path) -> None:
    """Name, entrypoint, layers in their order, and digests that fit all the way down."""
    archives.write(IMAGE, "docker.io/lab/x:1", tmp_path / "x.tar")
    files = content(tmp_path / "x.tar")
    (named,) = json.loads(files["index.json"])["manifests"]
    assert named["annotations"] == {archives.FULL_NAME: "docker.io/lab/x:1"}
    manifest = json.loads(blob(files, named))
    config = json.loads(blob(files, manifest["config"]))
    assert [blob(files, layer) for layer in manifest["layers"]] == [b"below", b"above"]
    assert config["rootfs"]["diff_ids"] == [BELOW.digest, ABOVE.digest]
    assert config["config"] == {"Entrypoint": ["/x"], "Env": [archives.SEARCH_PATH], "WorkingDir": "/"}


def test_a_layer_that_the_reader_has_is_only_named(tmp_path: Path) -> None:
    """The manifest is the same, the bytes are not sent again."""
    absent = archives.Blob(BELOW.digest, BELOW.size)
    thin = archives.Image(entrypoint=("/x",), layers=(absent, ABOVE))
    assert thin.manifest() == IMAGE.manifest()
    archives.write(thin, "x", tmp_path / "x.tar")
    assert b"below" not in content(tmp_path / "x.tar").values()


def test_a_broken_write_leaves_the_old_archive(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """An archive that is there is whole."""
    target = tmp_path / "x.tar"
    archives.write(IMAGE, "x", target)
    before = target.read_bytes()

    def broken(*_: object, **__: object) -> None:
        raise OSError("disk full")

    monkeypatch.setattr(tarfile.TarFile, "addfile", broken)
    with pytest.raises(OSError, match="disk full"):
        archives.write(IMAGE, "y", target)
    assert target.read_bytes() == before


@pytest.fixture
def store(tmp_path: Path) -> stores.Store:
    """A store with a file and a database."""
    made = stores.Store(tmp_path / "store")
    for name in ("io.containerd.content/blobs/file", "io.containerd.metadata/meta.db"):
        path = made.containerd_root / name
        path.parent.mkdir(parents=True)
        path.write_text("original")
    return made


def test_nodes_share_files_but_no_database(store: stores.Store, tmp_path: Path) -> None:
    """What one containerd notes down is never another's."""
    stores.fill(store, tmp_path / "node")
    own = tmp_path / "node/io.containerd.content/blobs/file"
    assert own.samefile(store.containerd_root / "io.containerd.content/blobs/file")
    (tmp_path / "node/io.containerd.metadata/meta.db").write_text("a node's")
    assert (store.containerd_root / "io.containerd.metadata/meta.db").read_text() == "original"


def test_a_node_that_has_a_store_keeps_it(store: stores.Store, tmp_path: Path) -> None:
    """A repair takes nothing away."""
    (tmp_path / "node").mkdir()
    stores.fill(store, tmp_path / "node")
    assert list((tmp_path / "node").iterdir()) == []


def test_half_a_copy_is_begun_anew(store: stores.Store, tmp_path: Path) -> None:
    """A store that is there is whole."""
    (tmp_path / ".node.new/old").mkdir(parents=True)
    stores.fill(store, tmp_path / "node")
    assert not (tmp_path / "node/old").exists()
    assert not (tmp_path / ".node.new").exists()


@pytest.mark.needs("containerd")
def test_another_containerd_gets_another_store(tmp_path: Path) -> None:
    """What is kept is found by what it was made from."""
    (tmp_path / "pause").write_bytes(b"1")
    first = stores.fingerprint(tmp_path / "pause", "overlayfs")
    assert stores.fingerprint(tmp_path / "pause", "overlayfs") == first
    assert stores.fingerprint(tmp_path / "pause", "native") != first
    (tmp_path / "pause").write_bytes(b"2")
    assert stores.fingerprint(tmp_path / "pause", "overlayfs") != first
