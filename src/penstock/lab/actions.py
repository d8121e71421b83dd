"""What can be done with a lab that exists: take it down, let somebody in."""

from __future__ import annotations

from penstock import errors
from penstock.lab import accounts, locking, passwd, paths, places, spec, teardown
from penstock.lab.kubernetes import choosing


def take_down(place: paths.LabPaths, *, force: bool = False) -> bool:
    """Remove the lab; False when there was none. `force` goes on although lab.json cannot be read."""
    if not spec.exists(place):
        places.require_ours(place.directory)
        return False
    with locking.lock(place.directory):
        lab = _load_or_none(place) if force else spec.load(place)
        teardown.tear_down(place, lab)
    return True


def add_user(place: paths.LabPaths, name: str, *, account: str) -> None:
    """Give an existing user of this machine a folder on the NAS and a place in the accounting."""
    lab = spec.load(place)
    passwd.entry_of(name)
    with locking.lock(place.directory):
        accounts.add_user(place, name, account=account)
        places.make_home(place, name)
        choosing.admit_user(place, lab, name)


def _load_or_none(place: paths.LabPaths) -> spec.LabSpec | None:
    try:
        return spec.load(place)
    except errors.LabError:
        return None
