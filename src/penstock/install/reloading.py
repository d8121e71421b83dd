"""Whether slurmctld can take a change without a restart.

`scontrol reconfigure` reads the lines of partitions anew: one that is new, changed or gone is so at once, in
22.05 as in later releases. Nodes and GRES, and PrologSlurmctld, are read at the start only.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

from penstock import wellknown
from penstock.install import records, rendering
from penstock.install.transactions import FileChange
from penstock.slurm import conffile

READ_AT_START = ("gres.conf", rendering.GRES_INCLUDE, "cgroup.conf")


def partitions_only(
    conf: Path, files: Sequence[FileChange], links: Mapping[str, str], store: records.Store
) -> bool:
    """Whether of slurm.conf and what it includes nothing but partitions changes."""
    changed = {links.get(change.path, change.path): change for change in files}
    if any(Path(path).name in READ_AT_START for path in changed):
        return False
    if not {str(conf), str(conf.parent / wellknown.INCLUDE)} & changed.keys():
        return False

    def before(name: str) -> str:
        path = conf.parent / name
        return path.read_text(encoding="utf-8", errors="surrogateescape") if path.exists() else ""

    def after(name: str) -> str:
        change = changed.get(str(conf.parent / name))
        if change is None:
            return before(name)
        return _text(store, change.after)

    old, new = before(str(conf)), after(str(conf))
    return conffile.besides_partitions(old, include=before) == conffile.besides_partitions(new, include=after)


def _text(store: records.Store, state: records.FileState | None) -> str:
    return store.copy(state.digest).decode(errors="surrogateescape") if state is not None else ""
