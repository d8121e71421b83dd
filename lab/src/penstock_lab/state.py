"""A lab's state: every component with its process, memory and health."""

from __future__ import annotations

from concurrent import futures

import msgspec

from penstock_lab import components, paths, processes, spec, supervision

RUNNING = "running"
STOPPED = "stopped"


class ComponentState(msgspec.Struct, frozen=True, kw_only=True):
    """A line of `penstock lab status`."""

    name: str
    state: str
    pid: int | None = None
    memory_mb: float = 0.0
    since: float | None = None
    """Seconds since the epoch."""
    health: str
    """`ok`, or the problem."""

    @property
    def healthy(self) -> bool:
        return self.health == "ok"


class LabState(msgspec.Struct, frozen=True, kw_only=True):
    """`penstock lab status`, also as JSON."""

    directory: str
    name: str
    user: str
    healthy: bool
    components: tuple[ComponentState, ...]


def look(place: paths.LabPaths) -> LabState:
    """Check every component, in parallel."""
    lab = spec.load(place)
    daemons = components.all_components(place, lab)
    with futures.ThreadPoolExecutor(max_workers=8) as pool:
        states = tuple(pool.map(lambda component: component_state(place, component), daemons))
    return LabState(
        directory=str(place.directory),
        name=lab.name,
        user=lab.user,
        healthy=all(state.healthy for state in states),
        components=states,
    )


def component_state(place: paths.LabPaths, component: components.Component) -> ComponentState:
    record = supervision.read_record(place, component.name)
    if record is None or not processes.alive(record.identity):
        return ComponentState(name=component.name, state=STOPPED, health="not running")
    return ComponentState(
        name=component.name,
        state=RUNNING,
        pid=record.pid,
        memory_mb=round(processes.memory_bytes(record.identity) / 2**20, 1),
        since=record.started_at,
        health=component.check() or component.complaint() or "ok",
    )
