"""Actions on an existing lab: take it down, add a user, restart components."""

from __future__ import annotations

from collections.abc import Sequence

from penstock import errors
from penstock_lab import accounts, components, directories, lock, passwd, paths, spec, supervision, teardown
from penstock_lab.kubernetes import variants


def take_down(place: paths.LabPaths, *, force: bool = False) -> bool:
    """Remove the lab; False if there is none. `force` continues even if lab.json cannot be read."""
    if not spec.exists(place):
        directories.require_ours(place.directory)
        return False
    with lock.lock(place.directory):
        lab = _load_or_none(place) if force else spec.load(place)
        if lab is None:
            directories.require_only_ours(place.directory)
        teardown.tear_down(place, lab)
    return True


def is_made(place: paths.LabPaths) -> bool:
    """Whether a lab has come up here before; it need not be running."""
    lab = _load_or_none(place)
    return lab is not None and lab.complete


def add_user(place: paths.LabPaths, name: str, *, account: str) -> None:
    """Give an existing user of this machine a folder on the NAS and an accounting association."""
    lab = spec.load(place)
    passwd.entry_of(name)
    with lock.lock(place.directory):
        accounts.add_user(place, name, account=account)
        directories.make_home(place, name)
        variants.admit_user(place, lab, name)


def restart(place: paths.LabPaths, names: Sequence[str]) -> None:
    lab = spec.load(place)
    known = {part.name: part for part in components.all_components(place, lab)}
    unknown = [name for name in names if name not in known]
    if unknown:
        raise errors.UsageError(
            f"the lab has no component {', '.join(unknown)}", hint=f"It has: {', '.join(known)}."
        )
    with lock.lock(place.directory):
        supervisor = supervision.Supervisor(place)
        for name in names:
            supervisor.stop(known[name])
            supervisor.start(known[name])


def _load_or_none(place: paths.LabPaths) -> spec.LabSpec | None:
    try:
        return spec.load(place)
    except errors.LabError:
        return None
