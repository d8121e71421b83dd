"""The journal: contents, locking, allowed file systems."""

from __future__ import annotations

import os
from pathlib import Path

import msgspec
import pytest

from penstock import errors, mounts
from penstock.journal import database, entries

TABLE = """\
22 1 254:0 / / rw,relatime - ext4 /dev/vda rw
30 22 0:26 / /run rw - tmpfs tmpfs rw
40 22 0:50 / /nas rw shared:1 - nfs4 server:/nas rw
41 40 0:51 / /nas/with\\040blank rw - fuse.sshfs x rw
42 22 0:52 / /run rw - ext4 /dev/vdb rw
43 22 0:53 / /odd\u2028\x85\udcff rw - xfs /dev/vdc rw
"""


def journal(folder: Path) -> entries.Journal:
    return entries.Journal(database.connect(folder / "journal.db"))


def test_entries_persist_and_can_be_replaced(tmp_path: Path) -> None:
    """For the next process; names are bytes."""
    entry = journal(tmp_path).put(entries.Entry("a" * 32, b"\xff job", 1000, entries.SUBMITTING))
    journal(tmp_path).put(msgspec.structs.replace(entry, state=entries.ACCEPTED, job_id="7"))
    found = journal(tmp_path).get("a" * 32)
    assert found is not None
    assert (found.name, found.state, found.job_id, found.began) == (b"\xff job", "accepted", "7", entry.began)


def test_open_entries_are_not_done(tmp_path: Path) -> None:
    """Done entries can be forgotten."""
    here = journal(tmp_path)
    for number, state in enumerate((*entries.OPEN, entries.PROCESSED, entries.FAILED)):
        here.put(entries.Entry(str(number), b"x", 1, state))
    assert [entry.state for entry in here.open()] == list(entries.OPEN)
    assert {entry.state for entry in here.latest(10)} == {entries.FAILED, entries.PROCESSED}
    here.forget(before=here.latest(1)[0].changed + 1)
    assert (len(here.latest(10)), len(here.open())) == (0, len(entries.OPEN))


def test_facts_are_stored_once(tmp_path: Path) -> None:
    """The instance name never changes."""
    connection = database.connect(tmp_path / "journal.db")
    assert database.instance(connection) == database.instance(connection)
    assert database.fact(connection, "marker") == ""
    assert database.fact(connection, "marker", "m") == "m"
    assert database.fact(connection, "marker", "n") == "m"


def test_network_file_system_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing is created there."""
    monkeypatch.setattr(mounts, "kind_of", lambda path: "nfs4")
    with pytest.raises(errors.UsageError, match="nfs4"):
        database.connect(tmp_path / "journal.db")
    assert list(tmp_path.iterdir()) == []


def test_corrupt_file_is_a_journal_error(tmp_path: Path) -> None:
    """No sqlite3 error escapes."""
    (tmp_path / "journal.db").write_bytes(b"not a database" * 100)
    with pytest.raises(errors.JournalError, match="cannot be used"):
        database.connect(tmp_path / "journal.db")


def test_newer_schema_is_refused(tmp_path: Path) -> None:
    """Rather than misread."""
    database.connect(tmp_path / "journal.db").execute("PRAGMA user_version=99")
    with pytest.raises(errors.JournalError, match="newer"):
        database.connect(tmp_path / "journal.db")


def test_state_is_locked(tmp_path: Path) -> None:
    """A second intake is refused until the first has ended."""
    first = database.lock(tmp_path)
    with pytest.raises(errors.UsageError, match="another intake"):
        database.lock(tmp_path)
    os.close(first)
    os.close(database.lock(tmp_path))


@pytest.mark.parametrize(
    ("path", "kind"),
    [
        ("/var/lib", "ext4"),
        ("/nas/slurm-jobs", "nfs4"),
        ("/nas/with blank/x", "fuse.sshfs"),
        ("/run/x", "ext4"),
        ("/nasty", "ext4"),
        ("/odd\u2028\x85\udcff/x", "xfs"),
    ],
)
def test_kind_is_that_of_deepest_mount(path: str, kind: str) -> None:
    """With blanks in names and mounts over mounts."""
    assert mounts.kind_in(TABLE, Path(path)) == kind


def test_network_file_systems_are_recognised() -> None:
    """FUSE counts as one, unless it is known to be local."""
    assert mounts.is_network("nfs4")
    assert mounts.is_network("fuse.sshfs")
    assert not mounts.is_network("ext4")
    assert not mounts.is_network("fuseblk")
    assert mounts.kind_of(Path("/proc")) == "proc"
