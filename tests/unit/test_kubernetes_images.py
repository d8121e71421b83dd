"""Images made of the host's own files: an archive that containerd takes, the same bytes every time."""

from __future__ import annotations

import hashlib
import io
import json
import tarfile
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from penstock.lab.kubernetes import images


def image(**more: object) -> images.Image:
    """An image of next to nothing."""
    fields: dict[str, object] = {
        "reference": "lab/x:1",
        "entrypoint": ("/x",),
        "sources": (),
        "programs": {},
        "links": {},
        "texts": {},
        "folders": {},
    }
    return images.Image(**(fields | more))  # type: ignore[arg-type]  # fields are given by name, right or not at all


def opened(path: Path) -> tuple[list[dict[str, object]], dict[str, object], tarfile.TarFile]:
    """Manifest, configuration and layer of an archive, checked against each other."""
    with tarfile.open(path) as archive:

        def content(name: str) -> bytes:
            file = archive.extractfile(name)
            assert file is not None
            return file.read()

        manifest = json.loads(content("manifest.json"))
        config = json.loads(content(manifest[0]["Config"]))
        layer = content(manifest[0]["Layers"][0])
        assert config["rootfs"]["diff_ids"] == [f"sha256:{hashlib.sha256(layer).hexdigest()}"]
        assert manifest[0]["Config"] == f"{hashlib.sha256(content(manifest[0]['Config'])).hexdigest()}.json"
    return manifest, config, tarfile.open(fileobj=io.BytesIO(layer))


def test_an_archive_says_what_it_is(tmp_path: Path) -> None:
    """Name, entrypoint, and digests that fit."""
    target = tmp_path / "x.tar"
    images.write_archive(image(texts={"etc/motd": "hello"}), target)
    manifest, config, layer = opened(target)
    with layer:
        assert layer.getnames() == ["etc", "etc/motd"]
    assert manifest[0]["RepoTags"] == ["lab/x:1"]
    assert config["config"] == {"Entrypoint": ["/x"], "Env": [images.SEARCH_PATH], "WorkingDir": "/"}


def test_the_same_files_are_the_same_bytes(tmp_path: Path) -> None:
    """No date, no owner of the building host in it."""
    for name in ("a.tar", "b.tar"):
        images.write_archive(image(texts={"a": "1", "b/c": "2"}, folders={"tmp": 0o1777}), tmp_path / name)
    assert (tmp_path / "a.tar").read_bytes() == (tmp_path / "b.tar").read_bytes()


NAMES = st.lists(st.sampled_from("abc"), min_size=1, max_size=4).map("/".join)


@settings(max_examples=50)
@given(st.dictionaries(NAMES, st.integers(0, 0o1777)))
def test_parents_come_before_children_and_nothing_twice(folders: dict[str, int]) -> None:
    """Whoever unpacks in order never lacks a directory."""
    with tarfile.open(fileobj=io.BytesIO(images.layer_of(image(folders=folders)))) as layer:
        names = layer.getnames()
    assert len(names) == len(set(names))
    for number, name in enumerate(names):
        parents = {str(parent) for parent in Path(name).parents} - {"."}
        assert parents <= set(names[:number])


def test_links_and_their_targets_both_come(tmp_path: Path) -> None:
    """A library is often a link to its release; a set-uid bit stays on the host."""
    (tmp_path / "lib.so.1.2").write_bytes(b"code")
    (tmp_path / "lib.so.1.2").chmod(0o4755)
    (tmp_path / "lib.so.1").symlink_to("lib.so.1.2")
    layer_bytes = images.layer_of(image(sources=(tmp_path / "lib.so.1",)))
    with tarfile.open(fileobj=io.BytesIO(layer_bytes)) as layer:
        base = str(tmp_path).lstrip("/")
        link, file = layer.getmember(f"{base}/lib.so.1"), layer.getmember(f"{base}/lib.so.1.2")
    assert (link.issym(), link.linkname) == (True, "lib.so.1.2")
    assert (file.size, file.mode) == (4, 0o755)


def test_the_userland_has_a_shell_and_what_it_needs(tmp_path: Path) -> None:
    """bash, sh, coreutils, the loader and the host's users."""
    with tarfile.open(fileobj=io.BytesIO(images.layer_of(images.userland()))) as layer:
        names = set(layer.getnames())
        users = layer.extractfile("etc/passwd")
        assert users is not None
        assert b"root:x:0:0:" in users.read()
    assert {"usr/bin/sh", "usr/bin/awk", "tmp"} <= names
    assert any(name.endswith("bin/bash") for name in names)
    assert any("ld-linux" in name for name in names)


def test_libraries_are_found_by_the_loader_itself() -> None:
    """What `ldd` names, and only files."""
    found = images.libraries_of([Path("/bin/bash")])
    assert any(path.name.startswith("libc.so") for path in found)
    assert all(path.is_absolute() for path in found)


def test_a_broken_write_leaves_the_old_archive(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """An archive that is there is whole."""
    target = tmp_path / "x.tar"
    images.write_archive(image(texts={"a": "1"}), target)
    before = target.read_bytes()

    def broken(*_: object) -> None:
        raise OSError("disk full")

    monkeypatch.setattr(images, "_add_bytes", broken)
    with pytest.raises(OSError, match="disk full"):
        images.write_archive(image(links={"b": "a"}), target)
    assert target.read_bytes() == before
