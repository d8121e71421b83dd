"""Images made of the host's own files: an archive that containerd takes, the same bytes every time."""

from __future__ import annotations

import io
import tarfile
from pathlib import Path

from hypothesis import given, settings
from hypothesis import strategies as st

from penstock_lab.kubernetes import localimages


def layer(**contents: object) -> tarfile.TarFile:
    """The layer of contents, which are given by name."""
    made = localimages.Contents(**contents)  # type: ignore[arg-type]  # fields are given by name, right or not at all
    return tarfile.open(fileobj=io.BytesIO(localimages.layer_of(made)))


def test_the_same_files_are_the_same_bytes() -> None:
    """No date, no owner of the building host in it."""
    made = localimages.Contents(texts={"a": "1", "b/c": "2"}, folders={"tmp": 0o1777})
    assert localimages.layer_of(made) == localimages.layer_of(made)


NAMES = st.lists(st.sampled_from("abc"), min_size=1, max_size=4).map("/".join)


@settings(max_examples=50)
@given(st.dictionaries(NAMES, st.integers(0, 0o1777)))
def test_parents_come_before_children_and_nothing_twice(folders: dict[str, int]) -> None:
    """Whoever unpacks in order never lacks a directory."""
    with layer(folders=folders) as found:
        names = found.getnames()
    assert len(names) == len(set(names))
    for number, name in enumerate(names):
        parents = {str(parent) for parent in Path(name).parents} - {"."}
        assert parents <= set(names[:number])


def test_links_and_their_targets_both_come(tmp_path: Path) -> None:
    """A library is often a link to its release; a set-uid bit stays on the host."""
    (tmp_path / "lib.so.1.2").write_bytes(b"code")
    (tmp_path / "lib.so.1.2").chmod(0o4755)
    (tmp_path / "lib.so.1").symlink_to("lib.so.1.2")
    with layer(sources=(tmp_path / "lib.so.1",)) as found:
        base = str(tmp_path).lstrip("/")
        link, file = found.getmember(f"{base}/lib.so.1"), found.getmember(f"{base}/lib.so.1.2")
    assert (link.issym(), link.linkname) == (True, "lib.so.1.2")
    assert (file.size, file.mode) == (4, 0o755)


def test_the_userland_has_a_shell_and_what_it_needs() -> None:
    """bash, sh, coreutils and the loader."""
    with tarfile.open(fileobj=io.BytesIO(localimages.layer_of(localimages.userland()))) as found:
        names = set(found.getnames())
    assert {"usr/bin/sh", "usr/bin/awk", "tmp"} <= names
    assert any(name.endswith("bin/bash") for name in names)
    assert any("ld-linux" in name for name in names)


def test_an_image_knows_the_hosts_users() -> None:
    """As one of the site would; and it may know its own name."""
    texts = localimages.names(image="lab/x\n").texts
    assert "root:x:0:0:" in texts["etc/passwd"]
    assert texts["etc/group"].startswith("root:x:0:")
    assert texts["etc/image"] == "lab/x\n"


def test_libraries_are_found_by_the_loader_itself() -> None:
    """What `ldd` names, and only files."""
    found = localimages.libraries_of([Path("/bin/bash")])
    assert any(path.name.startswith("libc.so") for path in found)
    assert all(path.is_absolute() for path in found)
