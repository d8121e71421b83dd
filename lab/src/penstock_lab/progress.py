"""Progress on stderr while a lab comes up: live on a terminal, plain lines elsewhere."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Iterator

from rich import console, progress

from penstock_lab import taskgraph


class PlainLines:
    """One line for each finished step."""

    def __init__(self, out: console.Console) -> None:
        self._out = out

    def began(self, name: str) -> None:
        """Prints nothing."""

    def ended(self, name: str, what: str, seconds: float) -> None:
        self._out.print(f"{name:<16} {what} ({seconds:.1f} s)", highlight=False, markup=False)


class MovingLines:
    """One live line for each step."""

    def __init__(self, shown: progress.Progress) -> None:
        self._bars = shown
        self._tasks: dict[str, progress.TaskID] = {}
        self._lock = threading.Lock()

    def began(self, name: str) -> None:
        task = self._bars.add_task(name, total=1, what="")
        with self._lock:
            self._tasks[name] = task

    def ended(self, name: str, what: str, seconds: float) -> None:
        with self._lock:
            task = self._tasks[name]
        self._bars.update(task, completed=1, what=what)


@contextlib.contextmanager
def listener() -> Iterator[taskgraph.Listener]:
    """The listener that suits stderr."""
    out = console.Console(stderr=True)
    if not out.is_terminal:
        yield PlainLines(out)
        return
    with bars(out) as shown:
        yield MovingLines(shown)


def bars(out: console.Console) -> progress.Progress:
    """A spinner, the step's name, its result and its time."""
    return progress.Progress(
        progress.SpinnerColumn(finished_text="[green]✓"),
        progress.TextColumn("{task.description:<16}"),
        progress.TextColumn("[dim]{task.fields[what]}"),
        progress.TimeElapsedColumn(),
        console=out,
    )
