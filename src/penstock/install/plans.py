"""What is different between the site file and the live site: add, change, remove, and nothing else.

Installing and taking back are both a plan: in the first the goal is what the site file renders to, in the
second what was there before us.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import msgspec

from penstock import errors, wellknown, wording
from penstock.install import (
    accounts,
    adoption,
    facts,
    inventory,
    kubeadmin,
    kubeconfigs,
    newconf,
    queuedjobs,
    reach,
    servicefolders,
    sharedobjects,
    sitefiles,
)
from penstock.install.transactions import FileChange, ObjectChange, part_of
from penstock.site import clusters, daemonsettings
from penstock.site import kubeobjects as site_objects
from penstock.site.schema import Site
from penstock.slurm import conffile

Manifest = dict[str, Any]
NEEDS_RESTART = (
    "slurm.conf",
    wellknown.INCLUDE,
    "gres.conf",
    sitefiles.GRES_INCLUDE,
    "cgroup.conf",
    sitefiles.SLURMD_CONF,
)


@dataclasses.dataclass(frozen=True, kw_only=True)
class Plan:
    """All changes, and the record of what is installed after them."""

    files: tuple[FileChange, ...]
    objects: tuple[ObjectChange, ...]
    installed: inventory.Installed
    kept: tuple[str, ...] = ()
    """Objects and files that stay although they are ours, with the reason."""
    lost_records: str = ""
    """The folder of the records, when they were lost and are written anew."""
    accounts: tuple[tuple[str, ...], ...] = ()
    """Commands of sacctmgr; they come last and are never taken back."""
    links: Mapping[str, str] = dataclasses.field(default_factory=dict)
    """Symbolic links by the files that they lead to and that are changed in their place."""
    harms: tuple[queuedjobs.Harm, ...] = ()
    """What would become of jobs that are in the queue."""
    made: tuple[tuple[str, str, str], ...] = ()
    """Lines on what is made after all that and not taken back when it fails: a kubeconfig, folders."""
    partitions_only: bool = False
    """Of what slurmctld reads only partitions change: `scontrol reconfigure` is enough."""
    contradictions: tuple[str, ...] = ()
    """In slurm.conf as it would be: slurmctld would not start."""

    @property
    def empty(self) -> bool:
        return not (self.files or self.objects or self.accounts or self.made or self.lost_records)

    @property
    def restart(self) -> bool:
        """Whether slurmctld must read its configuration anew."""
        names = (Path(self.links.get(change.path, change.path)).name for change in self.files)
        return any(name in NEEDS_RESTART for name in names)

    def split(self, units: Path, installed: inventory.Installed) -> tuple[Plan, Plan | None]:
        """The same in two steps: everything but the files in that folder, and then they, if there are any."""
        later = tuple(change for change in self.files if Path(change.path).parent == units)
        if not later:
            return self, None
        paths = {change.path for change in later}
        kept = {path: record for path, record in installed.files.items() if path in paths}
        between = msgspec.structs.replace(self.installed, files=self.installed.files | kept)
        now = tuple(change for change in self.files if change not in later)
        return (
            dataclasses.replace(self, files=now, installed=between),
            dataclasses.replace(self, files=later, objects=()),
        )

    def lines(self) -> Iterator[tuple[str, str, str]]:
        """(add, change or remove; file or object; its name)"""
        for change in self.objects:
            what = change.after or change.before or {}
            name = f"{what['kind']} {_full_name(what)}"
            yield _word(change.before or change.existed or None, change.after), "object", name
        for file in self.files:
            link = self.links.get(file.path)
            yield _word(file.before, file.after), "file", f"{link} -> {file.path}" if link else file.path
        if self.lost_records:
            yield "add", "records", self.lost_records
        if self.restart:
            yield "reload" if self.partitions_only else "restart", "daemon", "slurmctld"
        for command in self.accounts:
            yield ("add" if command[0] == "add" else "change"), "account", " ".join(command[1:])
        yield from self.made


def _word(before: object | None, after: object | None) -> str:
    if after is None:
        return "remove"
    return "add" if before is None else "change"


def _full_name(manifest: Manifest) -> str:
    home = manifest["metadata"].get("namespace", "")
    return f"{home}/{manifest['metadata']['name']}" if home else str(manifest["metadata"]["name"])


@dataclasses.dataclass(frozen=True)
class Planner:
    """Plans for one site."""

    site: Site
    store: inventory.Store
    cluster: kubeadmin.Cluster | None
    """None leaves Kubernetes out."""
    ask: queuedjobs.Ask = queuedjobs.nobody

    # -- installing ------------------------------------------------------------------------------------------
    def install(self) -> Plan:
        """From what is live to what the site file says."""
        recorded = self.store.installed()
        lua, has_own = self._site_lua(recorded)
        known = facts.gather(self.site, site_lua=has_own)
        reach.require(self.site, known)
        installed = self._finder.complete(known, recorded)
        goals = dict(self._goals(known, lua))
        self._refuse_to_replace(goals, installed)
        launchers, needed = self._old_launchers(goals, known, installed)
        goals |= launchers
        removed = {path: self._original(path, installed) for path in installed.files if path not in goals}
        files = self._file_changes(goals | removed)
        objects, kept, made = self._object_changes(known, installed)
        conf = newconf.NewConf(Path(self.site.slurm.conf), files, self._links, self.store)
        plan = Plan(
            files=files,
            made=tuple(self._made()),
            partitions_only=conf.partitions_only(),
            contradictions=conf.contradictions(),
            objects=objects,
            kept=(*kept, *needed),
            accounts=accounts.plan(self.site, cluster=facts.cluster_name(self.site, known)),
            links=self._links,
            lost_records=str(self.store.directory) if installed != recorded else "",
            installed=inventory.Installed(
                files=self._new_records(goals, installed), objects=made, made=installed.made
            ),
        )
        outlook = self._outlook(known, installed, reread=plan.restart)
        return dataclasses.replace(plan, harms=queuedjobs.harms(self.ask, outlook))

    def _made(self) -> Iterator[tuple[str, str, str]]:
        for folder, _, _ in servicefolders.missing(self.site):
            yield "add", "folder", str(folder)
        if self.cluster is not None:
            yield from kubeconfigs.planned(self.site)

    def _outlook(
        self, known: facts.Facts, installed: inventory.Installed, *, reread: bool
    ) -> queuedjobs.Outlook:
        there = known.existing
        before = queuedjobs.bridged_now(installed, self.store, daemonsettings.view_path(self.site))
        nodes = {node.name for group in known.groups.values() for node in group}
        return queuedjobs.Outlook(
            partitions=frozenset(self.site.partitions) | (there.partitions if there else frozenset()),
            nodes=frozenset(nodes) | (there.nodes if there else frozenset()),
            bridged=frozenset(clusters.bridged_partitions(self.site)),
            bridged_before=before or frozenset(),
            reread=reread,
        )

    def _old_launchers(
        self, goals: Mapping[str, object], known: facts.Facts, installed: inventory.Installed
    ) -> tuple[dict[str, inventory.FileState | None], tuple[str, ...]]:
        """Launchers at an earlier `penstockd.libexec` that jobs in the queue start, and a line on each."""
        found: dict[str, inventory.FileState | None] = {}
        said = []
        libexec = Path(self.site.penstockd.libexec)
        for folder in queuedjobs.old_folders(installed.files, goals):
            state_dir = Path(sitefiles.state_dir(self.site, known))
            jobs = queuedjobs.users_of(folder, self.ask, state_dir=state_dir)
            if jobs == ():
                continue
            why = (
                f"started by {wording.many(len(jobs), 'job')} in the queue"
                if jobs
                else "Slurm does not say who needs it"
            )
            said.append(f"{folder}/{wellknown.LAUNCHER}: {why}")
            files = sitefiles.all_files(self.site, known)
            for file in queuedjobs.launcher_files(files, libexec=libexec, folder=folder):
                found[str(file.path)] = inventory.state_of(
                    file.content, mode=file.mode, owner=file.owner, store=self.store
                )
        return found, tuple(said)

    def _refuse_to_replace(
        self, goals: dict[str, inventory.FileState | None], installed: inventory.Installed
    ) -> None:
        """Files that a site may have of its own and that cannot be made to work together with ours."""
        keys = {str(self._etc / sitefiles.CLI_FILTER): "penstockd.submit_filter"}
        if self.site.slurm.pam_file is not None:
            keys[self.site.slurm.pam_file] = "slurm.pam_file"
        for path, key in keys.items():
            now = inventory.look(Path(path), self.store) if path in goals else None
            if now is not None and now != goals[path] and path not in installed.files:
                raise errors.InstallError(
                    f"the site has its own {path}", hint=f"Leave {key} out, or put both together by hand."
                )

    def _goals(
        self, known: facts.Facts, lua: bytes | None
    ) -> Iterator[tuple[str, inventory.FileState | None]]:
        for file in sitefiles.all_files(self.site, known):
            yield (
                str(file.path),
                inventory.state_of(file.content, mode=file.mode, owner=file.owner, store=self.store),
            )
        for edit in sitefiles.all_edits(self.site, known):
            yield str(inventory.real(edit.path)), self._edited(edit)
        aside = self._etc / sitefiles.SITE_LUA
        if lua is not None:
            yield str(aside), self._like(self._etc / wellknown.JOB_SUBMIT, lua)
        elif known.site_lua:
            yield str(aside), inventory.look(aside, self.store)

    def _edited(self, edit: sitefiles.Edit) -> inventory.FileState:
        new = sitefiles.edited(edit)
        return self._like(inventory.real(edit.path), new.encode(errors="surrogateescape"))

    def _like(self, path: Path, content: bytes) -> inventory.FileState:
        """New content with the owner and mode that the file has."""
        now = inventory.look(path, self.store)
        if now is None:
            return inventory.state_of(content, mode=0o644, owner="root", store=self.store)
        return inventory.FileState(self.store.keep(content), now.mode, now.uid, now.gid)

    @property
    def _links(self) -> dict[str, str]:
        """Of the files that are edited those that are links."""
        edited = (Path(self.site.slurm.conf), self._etc / "gres.conf")
        return {str(inventory.real(path)): str(path) for path in edited if path.is_symlink()}

    @property
    def _has_aside(self) -> bool:
        aside = self._etc / sitefiles.SITE_LUA
        return aside.exists() and not sitefiles.is_marked_file(aside)

    @property
    def _finder(self) -> adoption.Finder:
        return adoption.Finder(self.site, self.store, self.cluster)

    @property
    def _etc(self) -> Path:
        return Path(self.site.slurm.conf).parent

    def _site_lua(self, installed: inventory.Installed) -> tuple[bytes | None, bool]:
        """The site's own job_submit.lua if it is to be put aside now, and whether there is one at all."""
        path = self._etc / wellknown.JOB_SUBMIT
        now = inventory.look(path, self.store)
        known = installed.files.get(str(path))
        if now is None or (known is not None and known.ours.digest == now.digest):
            return None, self._has_aside
        content = self.store.copy(now.digest)
        if sitefiles.is_marked(content):
            return None, self._has_aside
        self._refuse_to_overwrite(self._etc / sitefiles.SITE_LUA, content, installed)
        return content, True

    def _refuse_to_overwrite(self, aside: Path, content: bytes, installed: inventory.Installed) -> None:
        """The place for the site's own job_submit.lua may hold a text that we did not put there."""
        found = inventory.look(aside, self.store)
        if str(aside) in installed.files or found is None:
            return
        if self.store.copy(found.digest) != content:
            raise errors.InstallError(
                f"{aside} is there and is not what {self._etc / wellknown.JOB_SUBMIT} says",
                hint="Put what holds into job_submit.lua, remove the other, and try again.",
            )

    def _file_changes(self, goals: dict[str, inventory.FileState | None]) -> tuple[FileChange, ...]:
        """slurm.conf itself last: what it includes is there by then."""
        edited = {self.site.slurm.conf, str(inventory.real(Path(self.site.slurm.conf)))}
        order = sorted(goals, key=lambda path: (path in edited, path))
        found = (FileChange(path, inventory.look(Path(path), self.store), goals[path]) for path in order)
        return tuple(change for change in found if change.before != change.after)

    def _new_records(
        self, goals: dict[str, inventory.FileState | None], installed: inventory.Installed
    ) -> dict[str, inventory.FileRecord]:
        made = {}
        for path, state in goals.items():
            if state is None:
                continue
            known = installed.files.get(path)
            original = known.original if known is not None else inventory.look(Path(path), self.store)
            if known is None and original == state:
                continue  # it was like that without us
            made[path] = inventory.FileRecord(state, original)
        return made

    def _object_changes(
        self, known: facts.Facts, installed: inventory.Installed
    ) -> tuple[tuple[ObjectChange, ...], tuple[str, ...], dict[str, inventory.ObjectRecord]]:
        if self.cluster is None:
            return (), (), installed.objects
        changes: list[ObjectChange] = []
        made: dict[str, inventory.ObjectRecord] = {}
        for manifest in site_objects.all_objects(self.site, known.groups):
            path = kubeadmin.path_of(manifest)
            record = installed.objects.get(path)
            live = self.cluster.get_settled(manifest)
            existed = record.existed if record is not None else live is not None
            is_same = live is not None and contains(live, manifest)
            said = part_of(live, manifest) if live is not None and record is None else None
            original = record.original if record is not None else (None if is_same else said)
            made[path] = inventory.ObjectRecord(manifest, existed, original)
            if not is_same or record is None or record.manifest != manifest:
                before = record.manifest if record is not None else None
                changes.append(ObjectChange(path, before, manifest, existed, said))
        gone = {path: each for path, each in installed.objects.items() if path not in made}
        removals, kept = self._removals(gone, installed)
        return (*changes, *removals), kept, made

    # -- taking back -----------------------------------------------------------------------------------------
    def uninstall(self) -> Plan:
        """From what is live to what was there before us."""
        installed = self.store.installed()
        if self._finder.is_lost:
            raise errors.InstallError(
                f"{self.site.slurm.conf} includes {facts.include_path(self.site)}, but there are no records"
                f" of what was installed in {self.store.directory}",
                hint="`penstock apply` finds out what is Penstock's and writes them anew; then try again.",
            )
        goals = {path: self._original(path, installed) for path in installed.files}
        goals |= dict.fromkeys(installed.made)
        files = tuple(reversed(self._file_changes(goals)))
        if self.cluster is None:
            kept = [
                f"{each.manifest['kind']} {_full_name(each.manifest)}" for each in installed.objects.values()
            ]
            left = inventory.Installed(objects=installed.objects)
            return Plan(files=files, objects=(), kept=tuple(kept), installed=left, links=self._links)
        removals, used = self._removals(installed.objects, installed)
        left = inventory.Installed()
        return Plan(files=files, objects=removals, kept=used, installed=left, links=self._links)

    def _original(self, path: str, installed: inventory.Installed) -> inventory.FileState | None:
        """What was there before us, with what somebody else has written since."""
        record = installed.files[path]
        now = inventory.look(Path(path), self.store)
        if Path(path) == self._etc / wellknown.JOB_SUBMIT:
            aside = inventory.look(self._etc / sitefiles.SITE_LUA, self.store)
            was = record.original
            is_link = was is not None and was.link and aside is not None and was.digest == aside.digest
            return was if is_link else aside or was
        if now is not None and now.link:
            return now  # somebody has put a link in the place of our file: it leads to a file of theirs
        if now is not None and self._is_edit(path):
            return self._without_our_lines(path, now, record.original)
        if record.original is not None and now is not None and now.digest != record.ours.digest:
            return self._plain(path, now)
        return record.original

    def _without_our_lines(
        self, path: str, now: inventory.FileState, original: inventory.FileState | None
    ) -> inventory.FileState | None:
        """A file that we edit may have been edited by others before and after our last call."""
        plain = self._plain(path, now)
        text = self.store.copy(plain.digest)
        if original is None:
            return plain if text.strip() else None
        was = self.store.copy(original.digest)
        return original if text in (was, was + b"\n") else plain

    def kept(self, change: FileChange, now: inventory.FileState | None) -> inventory.FileState | None:
        """What becomes of a file that somebody has changed since a call that was cut short: it stays, without
        our lines if it had none before, for what they include is taken back.
        """
        if now is None or now.link or not self._is_edit(change.path):
            return now
        was_ours = change.before is not None and self._plain(change.path, change.before) != change.before
        return now if was_ours else self._plain(change.path, now)

    def _is_edit(self, path: str) -> bool:
        edited = (Path(self.site.slurm.conf), self._etc / "gres.conf")
        return self.site.slurm.manage == "include" and path in [str(inventory.real(each)) for each in edited]

    def _plain(self, path: str, now: inventory.FileState) -> inventory.FileState:
        """A file of the site's without our lines, whatever else was edited in it."""
        text = self.store.copy(now.digest).decode(errors="surrogateescape")
        for include in (facts.include_path(self.site), self._etc / sitefiles.GRES_INCLUDE):
            text = conffile.plain(text, include=str(include))
        digest = self.store.keep(text.encode(errors="surrogateescape"))
        return inventory.FileState(digest, now.mode, now.uid, now.gid)

    def _removals(
        self, leaving: dict[str, inventory.ObjectRecord], installed: inventory.Installed
    ) -> tuple[tuple[ObjectChange, ...], tuple[str, ...]]:
        if self.cluster is None:
            return (), ()
        uses = sharedobjects.Uses(self.cluster, installed.objects, leaving)
        changes, kept = [], []
        for path, record in reversed(leaving.items()):
            reason = uses.reason(record)
            if reason:
                kept.append(f"{record.manifest['kind']} {record.manifest['metadata']['name']}: {reason}")
            else:
                changes.append(ObjectChange(path, record.manifest, None, record.existed, record.original))
        return tuple(changes), tuple(kept)


def contains(live: Any, wanted: Any) -> bool:
    """Whether the live object says all that the manifest says, however much more it says."""
    if isinstance(wanted, dict):
        return isinstance(live, dict) and all(
            contains(live.get(key), value) or (value in ({}, [], False) and not live.get(key))
            for key, value in wanted.items()
        )
    if isinstance(wanted, list | tuple):
        return (
            isinstance(live, list)
            and len(live) == len(wanted)
            and all(contains(one, other) for one, other in zip(live, wanted, strict=True))
        )
    return str(live) == str(wanted)


def summary(plans: Sequence[tuple[str, str, str]]) -> dict[str, int]:
    """How many changes of each kind."""
    return {word: sum(line[0] == word for line in plans) for word in ("add", "change", "remove", "restart")}
