"""slurm.conf and its includes, before and after a plan."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

from penstock import wellknown
from penstock.install import inventory, sitefiles
from penstock.install.transactions import FileChange
from penstock.slurm import conffile

READ_AT_START = ("gres.conf", sitefiles.GRES_INCLUDE, "cgroup.conf")


class NewConf:
    def __init__(
        self, conf: Path, files: Sequence[FileChange], links: Mapping[str, str], store: inventory.Store
    ) -> None:
        self._conf = conf
        self._changed = {links.get(change.path, change.path): change for change in files}
        self._store = store

    @property
    def changes(self) -> bool:
        """Whether slurm.conf or our include changes."""
        return not self._changed.keys().isdisjoint(
            (str(self._conf), str(self._conf.parent / wellknown.INCLUDE))
        )

    def partitions_only(self) -> bool:
        """Whether nothing but partitions changes.

        `scontrol reconfigure` rereads their lines: additions, changes and removals take effect at once, in
        22.05 as in later releases. Nodes, GRES and PrologSlurmctld are read at the start only.
        """
        if not self.changes or any(Path(path).name in READ_AT_START for path in self._changed):
            return False
        old = conffile.besides_partitions(self._before(str(self._conf)), include=self._before)
        return old == conffile.besides_partitions(self._after(str(self._conf)), include=self._after)

    def contradictions(self) -> tuple[str, ...]:
        """Contradictions with which slurmctld does not start, although Slurm's commands accept them."""
        if not self.changes:
            return ()
        return conffile.contradictions(self._after(str(self._conf)), include=self._after)

    def _before(self, name: str) -> str:
        path = self._conf.parent / name
        return path.read_text(encoding="utf-8", errors="surrogateescape") if path.exists() else ""

    def _after(self, name: str) -> str:
        change = self._changed.get(str(self._conf.parent / name))
        if change is None:
            return self._before(name)
        state = change.after
        return self._store.copy(state.digest).decode(errors="surrogateescape") if state is not None else ""
