"""Putting files away where others have left things in the way, and on a NAS that fails meanwhile."""

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
from tests.unit.intakes import desk, nas

__all__ = ["nas"]  # pytest finds the fixture by its name

pytestmark = pytest.mark.skipif(os.geteuid() != 0, reason="only root can give files away")
BAD = "#!/bin/sh\n#SBATCH --no-such-option\n"


@pytest.fixture
def impatient() -> Iterator[None]:
    """Whoever waits for a pipe here waits for ever."""

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


@pytest.mark.usefixtures("impatient")
class TestObstacles:
    @pytest.mark.parametrize("make", [os.mkfifo, bind, lambda path: path.symlink_to("nowhere")])
    async def test_what_lies_where_a_letter_belongs_holds_up_nobody(
        self, nas: Path, make: Callable[[Path], None]
    ) -> None:
        """A pipe that is called like a letter is refused as any other; the letter then gets another name."""
        here = desk(nas)
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
    async def test_a_letter_of_anothers_survives_a_look_that_fails(
        self, nas: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """A file that is called like a letter is put beside it, also when the NAS fails in between."""
        here = desk(nas)
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

    async def test_the_same_bad_file_all_day_is_put_away_as_fast_as_the_first(
        self, nas: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """A script that a timer copies every few seconds: neither its number nor its way to it runs out."""
        here = desk(nas)
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

    async def test_a_long_letter_is_written_once(self, nas: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        """Longer than a mebibyte, since it repeats the script's words; the move after it fails at first."""
        here = desk(nas)
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

    async def test_a_long_name_is_not_cut_within_a_character(self, nas: Path) -> None:
        """Some servers refuse names that are not UTF-8, at every try."""
        here = desk(nas)
        intakes.drop(nas, f"x{120 * 'ä'}.sh", text=BAD)
        await here.settle()
        assert set(intakes.filed(nas, "failed")) == {f"x{99 * 'ä'}", f"x{99 * 'ä'}.error.txt"}
