"""Which name Slurm's daemons see, and who may listen on what it stands for."""

from __future__ import annotations

import os
import socket
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from penstock import wellknown
from penstock_lab import components, loopback, passwd, paths, spec, subprocesses

MACHINE = "the-machine"
LAB = spec.LabSpec(name="default", port_base=21000, user="alice", user_created=False, nodes=1)
Stage = Callable[..., None]


@pytest.fixture
def place() -> Iterator[paths.LabPaths]:
    """A short path, as unix sockets want it."""
    with tempfile.TemporaryDirectory(prefix="penstock-") as folder:
        yield paths.LabPaths(Path(folder))


@pytest.fixture
def stage(monkeypatch: pytest.MonkeyPatch) -> Stage:
    """A machine whose names stand for what a test says; one without namespaces if it says so."""

    def set_up(*, machine: str | None, localhost: str | None = "127.0.0.1", namespaces: bool = True) -> None:
        known = {MACHINE: machine, loopback.NAME: localhost}

        def resolve(name: str) -> str:
            if (found := known[name]) is None:
                raise socket.gaierror("Name or service not known")
            return found

        monkeypatch.setattr(socket, "gethostname", lambda: MACHINE)
        monkeypatch.setattr(socket, "gethostbyname", resolve)
        own = namespaces and localhost == "127.0.0.1"
        monkeypatch.setattr(loopback, "has_own_name", lambda: own)

    return set_up


@pytest.mark.parametrize(
    ("machine", "namespaces", "wanted"),
    [
        ("127.0.0.1", True, "127.0.0.1"),
        ("127.0.0.1", False, "127.0.0.1"),
        ("127.0.1.1", True, None),
        ("127.0.1.1", False, "127.0.1.1"),
        ("192.0.2.7", True, None),
        ("192.0.2.7", False, None),
        (None, True, None),
        (None, False, None),
    ],
)
def test_everybody_listens_on_the_address_that_both_names_stand_for(
    stage: Stage, machine: str | None, namespaces: bool, wanted: str | None
) -> None:
    """srun is called back on the daemons' address: it must not listen on another one."""
    stage(machine=machine, namespaces=namespaces)
    assert loopback.shared_address() == wanted


@pytest.mark.parametrize("machine", ["127.0.1.1", "192.0.2.7", None])
def test_daemons_have_files_of_their_own_where_people_must_not_listen_alike(
    stage: Stage, place: paths.LabPaths, monkeypatch: pytest.MonkeyPatch, machine: str | None
) -> None:
    """The site's own file, and the one line more that only daemons may see; slurmdbd's stays closed."""
    stage(machine=machine)
    place.etc.mkdir()
    place.slurmdbd_conf.write_text("DbdPort=1\n")
    monkeypatch.setattr(passwd, "owner_of", lambda name: None)
    loopback.write(place)
    own = loopback.slurm_conf(place)
    assert own.parent == place.slurm_conf.parent
    assert own.read_text().splitlines() == [
        f"include {place.slurm_conf}",
        "CommunicationParameters=NoInAddrAny,NoCtldInAddrAny",
    ]
    accounting = loopback.accounting_conf(place).with_name("slurmdbd.conf")
    assert accounting.read_text() == "DbdPort=1\nCommunicationParameters=NoInAddrAny\n"
    assert accounting.stat().st_mode & 0o777 == 0o600
    daemons = {part.name: part for part in components.all_components(place, LAB) if part.on_loopback}
    assert set(daemons) == {"slurmdbd", "slurmctld", "slurmd-n1"}
    assert str(own) in daemons["slurmctld"].argv
    assert str(own) in daemons["slurmd-n1"].argv


@pytest.mark.parametrize(
    ("machine", "namespaces"), [("127.0.0.1", True), ("127.0.1.1", False), ("192.0.2.7", False)]
)
def test_otherwise_all_read_the_same_file(
    stage: Stage, place: paths.LabPaths, machine: str, namespaces: bool
) -> None:
    """Nothing more is written."""
    stage(machine=machine, namespaces=namespaces)
    loopback.write(place)
    assert list(place.directory.iterdir()) == []
    assert loopback.slurm_conf(place) == loopback.accounting_conf(place) == place.slurm_conf


@pytest.mark.parametrize(
    ("machine", "namespaces", "wanted"),
    [
        ("192.0.2.7", True, True),
        ("127.0.1.1", False, True),
        ("192.0.2.7", False, False),
        (None, False, False),
    ],
)
def test_daemons_that_can_be_reached_from_outside_are_known(
    stage: Stage, machine: str | None, namespaces: bool, wanted: bool
) -> None:
    """`lab up` tells."""
    stage(machine=machine, namespaces=namespaces)
    assert loopback.is_on_loopback() is wanted


@pytest.mark.parametrize("localhost", ["127.0.0.2", "192.0.2.7", None])
def test_localhost_must_resolve_to_127_0_0_1(
    monkeypatch: pytest.MonkeyPatch, stage: Stage, localhost: str | None
) -> None:
    """Otherwise that host name does not help."""
    real = loopback.has_own_name.__wrapped__
    stage(machine="127.0.1.1", localhost=localhost)
    monkeypatch.setattr(os, "geteuid", lambda: 0)
    assert real() is False
    assert loopback.shared_address() == "127.0.1.1"


def test_a_machine_without_the_programs_does_without(monkeypatch: pytest.MonkeyPatch) -> None:
    """Its own name has to do."""
    monkeypatch.setattr(os, "geteuid", lambda: 0)
    monkeypatch.setenv(wellknown.ENV_LAB_PATH, "/nonexistent")
    assert loopback.has_own_name.__wrapped__() is False


@pytest.mark.skipif(not loopback.has_own_name(), reason="this machine allows no namespaces")
@pytest.mark.parametrize("user", ["root", "nobody"])
def test_a_program_sees_localhost_as_its_user_and_the_machine_keeps_its_name(user: str) -> None:
    """The name is set by root, in a namespace; then exactly that user with no privileges is left."""
    before = socket.gethostname()
    program = 'hostname; id -u; id -g; echo "$PPID"; grep CapEff /proc/self/status'
    said = subprocesses.run((*loopback.prefix(user), "sh", "-c", program)).stdout.split()
    entry = passwd.entry_of(user)
    assert said[:4] == ["localhost", str(entry.pw_uid), str(entry.pw_gid), str(os.getpid())]
    assert (int(said[5], 16) == 0) == (user != "root")
    assert socket.gethostname() == before
