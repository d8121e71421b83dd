"""Moving files away when names are taken, and on a NAS that fails meanwhile."""

from __future__ import annotations

import errno
import os
import signal
import socket
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from penstock.nas import renames
from tests.unit import intakes
from tests.unit.intakes import harness, nas

__all__ = ["nas"]  # pytest finds the fixture by its name

pytestmark = pytest.mark.skipif(os.geteuid() != 0, reason="only root can give files away")
BAD = "#!/bin/sh\n#SBATCH --no-such-option\n"


@pytest.fixture
def fail_when_blocked() -> Iterator[None]:
    """Opening a pipe would block forever."""

    def stop(number: int, frame: object) -> None:
        raise AssertionError("the intake is held up")

    before = signal.signal(signal.SIGALRM, stop)
    signal.alarm(20)
    yield
    signal.alarm(0)
    signal.signal(signal.SIGALRM, before)


def bind(path: Path) -> None:
    with socket.socket(socket.AF_UNIX) as one:
        one.bind(str(path))


def found(nas: Path, name: str) -> Path:
    (path,) = nas.glob(f"failed/*/{name}")
    return path


@pytest.mark.usefixtures("fail_when_blocked")
class TestObstacles:
    @pytest.mark.parametrize("make", [os.mkfifo, bind, lambda path: path.symlink_to("nowhere")])
    async def test_name_of_error_text_taken_by_refused_file(
        self, nas: Path, make: Callable[[Path], None]
    ) -> None:
        """A pipe with that name is refused like any other; the error text gets another name."""
        here = harness(nas)
        obstacle = nas / "submit" / "bad.sh.error.txt"
        make(obstacle)
        os.chown(obstacle, intakes.USERS[0], -1, follow_symlinks=False)
        await here.settle()
        intakes.drop(nas, "bad.sh", text=BAD)
        await here.settle(looks=10)
        assert set(intakes.filed(nas, "failed")) == {
            "bad.sh.error.txt",
            "bad.sh.error.txt.error.txt",
            "bad.sh.2",
            "bad.sh.2.error.txt",
        }


class TestTroubles:
    async def test_error_text_of_other_file_survives_io_error(
        self, nas: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """A file named like an error text is put beside it, also if the NAS fails in between."""
        here = harness(nas)
        intakes.drop(nas, "bad.sh", text=BAD)
        await here.settle()
        text, _ = intakes.letter(nas)
        real, failing = renames.look, [OSError(errno.EIO, "Input/output error")]

        def look(spot: renames.Spot) -> os.stat_result | None:
            if spot.name == "bad.sh.error.txt" and failing:
                raise failing.pop()
            return real(spot)

        monkeypatch.setattr(renames, "look", look)
        intakes.drop(nas, "bad.sh.error.txt", uid=intakes.USERS[1], text=BAD)
        await here.settle()
        assert not failing
        assert set(intakes.filed(nas, "failed")) == {
            "bad.sh",
            "bad.sh.error.txt",
            "bad.sh.error.txt.2",
            "bad.sh.error.txt.2.error.txt",
        }
        assert found(nas, "bad.sh.error.txt").read_text() == text

    async def test_repeated_refused_file_finds_a_free_name_quickly(
        self, nas: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """A timer copies the same bad file every few seconds."""
        here = harness(nas)
        intakes.drop(nas, "bad.sh", text=BAD)
        await here.settle()
        day = found(nas, "bad.sh").parent
        for number in range(2, 10_000):
            (day / f"bad.sh.{number}").symlink_to("nowhere")
        real = renames.look
        looks: list[str] = []

        def look(spot: renames.Spot) -> os.stat_result | None:
            looks.append(spot.name)
            return real(spot)

        monkeypatch.setattr(renames, "look", look)
        intakes.drop(nas, "bad.sh", text=BAD)
        await here.settle(looks=10)
        assert len(looks) < 1000

    async def test_long_error_text_is_written_once(self, nas: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        """More than 1 MiB, because it quotes the script; the following move fails at first."""
        here = harness(nas)
        real, failing = renames.move, [OSError(errno.EIO, "Input/output error")]

        def move(source: renames.Spot, target: renames.Spot, *, inode: int = 0) -> bool:
            if target.name.startswith("bad.sh") and failing:
                raise failing.pop()
            return real(source, target, inode=inode)

        monkeypatch.setattr(renames, "move", move)
        intakes.drop(nas, "bad.sh", text=f"#!/bin/sh\n#SBATCH --{'x' * (2 << 20)}\n")
        await here.settle()
        assert not failing
        assert len(intakes.letter(nas)[0]) > 1 << 20
        assert set(intakes.filed(nas, "failed")) == {"bad.sh", "bad.sh.error.txt"}

    async def test_long_name_is_cut_at_whole_character(self, nas: Path) -> None:
        """Some servers refuse names that are not UTF-8, at every try."""
        here = harness(nas)
        intakes.drop(nas, f"x{120 * 'ä'}.sh", text=BAD)
        await here.settle()
        assert set(intakes.filed(nas, "failed")) == {f"x{99 * 'ä'}", f"x{99 * 'ä'}.error.txt"}
