"""Bringing up: what is new is removed again when it fails, what was up before is kept.

Real daemons are left out here: steps are what each test says they are.
"""

from __future__ import annotations

import os
import subprocess
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path

import msgspec
import pytest

from penstock import errors
from penstock_lab import (
    bringup,
    directories,
    files,
    paths,
    ports,
    preparations,
    processes,
    spec,
    supervision,
    taskgraph,
    teardown,
    users,
)
from penstock_lab.slurm import programs

SUDO = {"SUDO_USER": "daemon"}
LAB = spec.LabSpec(name="x", port_base=21000, user="daemon", user_created=False, nodes=2, complete=True)


class Quiet:
    """Nobody watches."""

    def began(self, name: str) -> None:
        """Nothing to show."""

    def ended(self, name: str, what: str, seconds: float) -> None:
        """Nothing to show."""


@pytest.fixture
def place() -> Iterator[paths.LabPaths]:
    """A place where users can reach a lab; there is none yet."""
    with tempfile.TemporaryDirectory(prefix="penstock-") as parent:
        Path(parent).chmod(0o755)
        yield paths.LabPaths(Path(parent).resolve() / "lab")


Doing = Callable[[], str]


@pytest.fixture
def doing(monkeypatch: pytest.MonkeyPatch, place: paths.LabPaths) -> dict[str, Doing]:
    """The one step there is; and no Slurm is needed on this machine."""
    step: dict[str, Doing] = {"run": lambda: "done"}

    def all_steps(*_: object) -> tuple[taskgraph.Step, ...]:
        return (taskgraph.Step(name="step", run=lambda: step["run"]()),)

    def make_directories(where: paths.LabPaths, lab: spec.LabSpec) -> None:
        where.run.mkdir(exist_ok=True)

    monkeypatch.setattr(preparations, "require_programs", lambda: None)
    monkeypatch.setattr(directories, "make_directories", make_directories)
    monkeypatch.setattr(bringup, "all_steps", all_steps)
    return step


def bring_up(place: paths.LabPaths, **wishes: int) -> spec.LabSpec:
    return bringup.bring_up(
        place,
        bringup.Wishes(
            name=None, nodes=wishes.get("nodes"), gpus=wishes.get("gpus"), port_base=wishes.get("port_base")
        ),
        listener=Quiet(),
        environment=SUDO,
    )


def make(place: paths.LabPaths, lab: spec.LabSpec) -> None:
    place.directory.mkdir(mode=0o755)
    place.run.mkdir()
    place.nas.mkdir()
    (place.nas / "thesis").touch()
    spec.save(place, lab)


def fail() -> str:
    raise errors.LabError("slurmctld ended with exit code 1 while starting", hint="its last words")


@pytest.mark.usefixtures("doing")
class TestNew:
    def test_lab_json_has_the_options(self, place: paths.LabPaths) -> None:
        """lab.json has the options, the defaults, and that it was up."""
        made = bring_up(place, nodes=2, gpus=0)
        assert spec.load(place) == made
        assert (made.name, made.nodes, made.gpus, made.cpus, made.memory_gb) == ("lab", 2, 0, 8, 32)
        assert (made.user, made.user_created, made.complete) == ("daemon", False, True)

    def test_ports_can_be_chosen(self, place: paths.LabPaths) -> None:
        """The first of them, the rest follows."""
        with ports.Claims() as claims:
            base = claims.choose_base(spec.port_count(1))
        assert bring_up(place, nodes=1, port_base=base).port_base == base

    def test_lab_json_is_there_before_anything_else(
        self, place: paths.LabPaths, doing: dict[str, Doing]
    ) -> None:
        """Killed at any moment, the directory can be recognised and removed."""
        seen: list[bool] = []

        def look() -> str:
            seen.append(spec.load(place).complete)
            return "seen"

        doing["run"] = look
        bring_up(place)
        assert seen == [False]

    def test_a_failure_leaves_nothing(self, place: paths.LabPaths, doing: dict[str, Doing]) -> None:
        """Not even the empty directory."""
        doing["run"] = fail
        with pytest.raises(errors.LabError, match="slurmctld ended") as caught:
            bring_up(place)
        assert caught.value.hint == "its last words"
        assert not place.directory.exists()

    def test_internal_error_leaves_nothing(self, place: paths.LabPaths, doing: dict[str, Doing]) -> None:
        """No daemons are left running."""

        def crash() -> str:
            raise ZeroDivisionError

        doing["run"] = crash
        with pytest.raises(ZeroDivisionError):
            bring_up(place)
        assert not place.directory.exists()

    def test_processes_of_a_failed_start_are_ended(
        self, place: paths.LabPaths, doing: dict[str, Doing]
    ) -> None:
        """What was already running when another one failed."""
        children: list[subprocess.Popen[bytes]] = []

        def start_then_fail() -> str:
            child = subprocess.Popen(["sleep", "60"], start_new_session=True)
            children.append(child)
            identity = processes.identify(child.pid)
            assert identity is not None
            record = supervision.Record(
                pid=child.pid, start_ticks=identity.start_ticks, boot_id=processes.boot_id(), started_at=0.0
            )
            place.component_record("munged").write_bytes(msgspec.json.encode(record))
            return fail()

        doing["run"] = start_then_fail
        with pytest.raises(errors.LabError, match="slurmctld ended"):
            bring_up(place)
        assert children[0].wait(timeout=60) < 0
        assert not place.directory.exists()

    def test_full_disk_replaces_the_daemons_error(
        self, place: paths.LabPaths, doing: dict[str, Doing], monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """slurmdbd calls it "Unspecified error"."""
        free = iter([1000])
        monkeypatch.setattr(directories, "free_megabytes", lambda directory: next(free, 1))
        doing["run"] = fail
        with pytest.raises(errors.LabError, match=r"no space left on the lab's disk \(slurmctld ended"):
            bring_up(place)

    def test_a_taken_port_is_found_before_anything_is_made(
        self, place: paths.LabPaths, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """Named by number and component."""
        monkeypatch.setattr(ports, "is_free", lambda port: port != 21003)
        with pytest.raises(errors.LabError, match="port 21003 for slurmd-n1 is in use"):
            bring_up(place, port_base=21000)
        assert not place.directory.exists()


@pytest.mark.usefixtures("doing")
class TestOld:
    def test_a_repair_that_fails_removes_nothing(
        self, place: paths.LabPaths, doing: dict[str, Doing]
    ) -> None:
        """The owner's files are worth more than tidiness."""
        make(place, LAB)
        doing["run"] = fail
        with pytest.raises(errors.LabError, match="slurmctld ended"):
            bring_up(place)
        assert (place.nas / "thesis").exists()
        assert spec.load(place) == LAB

    def test_a_repair_keeps_what_the_lab_was_made_with(self, place: paths.LabPaths) -> None:
        """Ports, user and size, whoever repairs it."""
        make(place, LAB)
        assert bring_up(place) == LAB
        assert bring_up(place, nodes=2) == LAB

    @pytest.mark.parametrize(
        ("wishes", "said"),
        [({"nodes": 3}, "has nodes 2, not 3"), ({"port_base": 22000}, "has port base 21000, not 22000")],
    )
    def test_another_size_is_refused_before_anything_happens(
        self, place: paths.LabPaths, doing: dict[str, Doing], wishes: dict[str, int], said: str
    ) -> None:
        """A wrong call, not a failed one."""
        make(place, LAB)
        doing["run"] = fail
        with pytest.raises(errors.UsageError, match=said):
            bring_up(place, **wishes)

    def test_incomplete_lab_starts_over(self, place: paths.LabPaths, monkeypatch: pytest.MonkeyPatch) -> None:
        """Its processes are killed first, since their state is unknown."""
        ended: list[paths.LabPaths] = []
        monkeypatch.setattr(teardown, "end_processes", lambda where, lab: ended.append(where))
        make(place, msgspec.structs.replace(LAB, complete=False))
        assert bring_up(place).complete
        assert ended == [place]

    def test_incomplete_lab_that_fails_again_is_removed(
        self, place: paths.LabPaths, doing: dict[str, Doing]
    ) -> None:
        """It was never up, so nobody has used it."""
        make(place, msgspec.structs.replace(LAB, complete=False))
        doing["run"] = fail
        with pytest.raises(errors.LabError, match="slurmctld ended"):
            bring_up(place)
        assert not place.directory.exists()


@pytest.mark.usefixtures("doing")
class TestPlaces:
    def test_inaccessible_directory_is_refused(self, place: paths.LabPaths) -> None:
        """Nothing is made there."""
        place.directory.parent.chmod(0o700)
        with pytest.raises(errors.UsageError, match="is closed to them"):
            bring_up(place)
        assert not place.directory.exists()

    def test_missing_parents_are_made(self, place: paths.LabPaths) -> None:
        """/var/lib/penstock-lab need not exist."""
        deeper = paths.LabPaths(place.directory / "deeper")
        bring_up(deeper)
        assert spec.exists(deeper)

    def test_foreign_files_are_not_touched(self, place: paths.LabPaths) -> None:
        """Not a lab, not empty: refused."""
        place.directory.mkdir(mode=0o755)
        (place.directory / "thesis").touch()
        with pytest.raises(errors.UsageError, match="neither empty nor a lab"):
            bring_up(place)
        assert [path.name for path in place.directory.iterdir()] == ["thesis"]


class TestSteps:
    def test_all_real_steps_have_known_dependencies(self, place: paths.LabPaths) -> None:
        """Every daemon is a step, and no step waits for an unknown one."""
        for bridge in (True, False):
            lab = msgspec.structs.replace(LAB, bridge=bridge)
            made = bringup.all_steps(place, lab, supervision.Supervisor(place))
            names = {step.name for step in made}
            assert len(names) == len(made)
            assert names.issuperset(earlier for step in made for earlier in step.after)
            assert ("penstockd" in names) is bridge


@pytest.mark.usefixtures("doing")
def test_directory_changes_owner(place: paths.LabPaths) -> None:
    """Its previous owner could put programs where root runs the lab's."""
    if os.geteuid() != 0:
        pytest.skip("giving a directory away needs root")
    place.directory.mkdir()
    os.chown(place.directory, 65534, 65534)
    bring_up(place)
    assert (place.directory.stat().st_uid, place.directory.stat().st_gid) == (0, 0)


@pytest.mark.usefixtures("doing")
def test_files_added_before_the_lock_are_noticed(
    place: paths.LabPaths, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The directory was empty at the first check."""

    def directory(path: Path, **_: object) -> None:
        (path / "bin").mkdir(parents=True)

    monkeypatch.setattr(files, "directory", directory)
    with pytest.raises(errors.UsageError, match="neither empty nor a lab"):
        bring_up(place)
    assert not place.spec.exists()


@pytest.mark.usefixtures("doing")
def test_the_labs_user_is_made_before_anything_that_takes_long(
    place: paths.LabPaths, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Building takes minutes, in which another lab of the same name would choose the same user's."""
    made: list[str] = []

    def build(*_: object, **__: object) -> spec.LabSpec:
        assert made == ["penstock-lab"]
        raise errors.LabError("cannot be built")

    monkeypatch.setattr(users, "free_name", lambda name: f"penstock-{name}")
    monkeypatch.setattr(users, "ensure_created", lambda place, name: made.append(name))
    monkeypatch.setattr(programs, "with_programs", build)
    with pytest.raises(errors.LabError, match="cannot be built"):
        bringup.bring_up(place, bringup.Wishes(), listener=Quiet(), environment={})
    assert not place.directory.exists()
