"""Makes plans for `apply` (goal: what the site file renders to) and `uninstall` (goal: the state before)."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Mapping
from pathlib import Path

from penstock import errors, wellknown, wording
from penstock.install import (
    accounts,
    adoption,
    facts,
    inventory,
    kubeadmin,
    kubeconfigs,
    newconf,
    plans,
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

FileGoals = dict[str, inventory.FileState | None]
"""Wanted states of files by path; None: no such file."""


@dataclasses.dataclass(frozen=True)
class Planner:
    site: Site
    store: inventory.Store
    cluster: kubeadmin.Cluster | None
    """None leaves Kubernetes out."""
    ask: queuedjobs.Ask = queuedjobs.nobody

    # -- installing ------------------------------------------------------------------------------------------
    def install(self) -> plans.Plan:
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
        plan = plans.Plan(
            files=files,
            created=tuple(self._created()),
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

    def _created(self) -> Iterator[tuple[str, str, str]]:
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
    ) -> tuple[FileGoals, tuple[str, ...]]:
        """Launchers at an earlier `penstockd.libexec` that queued jobs will start, with a line on each."""
        found: FileGoals = {}
        kept = []
        libexec = Path(self.site.penstockd.libexec)
        for folder in queuedjobs.old_folders(installed.files, goals):
            state_dir = Path(sitefiles.state_dir(self.site, known))
            jobs = queuedjobs.users_of(folder, self.ask, state_dir=state_dir)
            if jobs == ():
                continue
            used = f"started by {wording.many(len(jobs), 'job')} in the queue" if jobs else ""
            kept.append(f"{folder}/{wellknown.LAUNCHER}: {used or 'Slurm does not say which jobs need it'}")
            files = sitefiles.all_files(self.site, known)
            launcher = queuedjobs.launcher_files(files, libexec=libexec, folder=folder)
            found |= {str(file.path): self._state_of(file) for file in launcher}
        return found, tuple(kept)

    def _state_of(self, file: sitefiles.File) -> inventory.FileState:
        return inventory.state_of(file.content, mode=file.mode, owner=file.owner, store=self.store)

    def _refuse_to_replace(self, goals: FileGoals, installed: inventory.Installed) -> None:
        """Refuse to replace a file of the site's that cannot be combined with ours."""
        keys = {str(self._etc / sitefiles.CLI_FILTER): "penstockd.submit_filter"}
        if self.site.slurm.pam_file is not None:
            keys[self.site.slurm.pam_file] = "slurm.pam_file"
        for path, key in keys.items():
            now = inventory.look(Path(path), self.store) if path in goals else None
            if now is not None and now != goals[path] and path not in installed.files:
                raise errors.InstallError(
                    f"the site has its own {path}", hint=f"Leave {key} out, or merge both by hand."
                )

    def _goals(
        self, known: facts.Facts, lua: bytes | None
    ) -> Iterator[tuple[str, inventory.FileState | None]]:
        for file in sitefiles.all_files(self.site, known):
            yield str(file.path), self._state_of(file)
        for edit in sitefiles.all_edits(self.site, known):
            path = inventory.real(edit.path)
            yield str(path), self._like(path, sitefiles.edited(edit).encode(errors="surrogateescape"))
        aside = self._etc / sitefiles.SITE_LUA
        if lua is not None:
            yield str(aside), self._like(self._etc / wellknown.JOB_SUBMIT, lua)
        elif known.site_lua:
            yield str(aside), inventory.look(aside, self.store)

    def _like(self, path: Path, content: bytes) -> inventory.FileState:
        """New content with the file's present owner and mode."""
        now = inventory.look(path, self.store)
        if now is None:
            return inventory.state_of(content, mode=0o644, owner="root", store=self.store)
        return inventory.FileState(self.store.keep(content), now.mode, now.uid, now.gid)

    @property
    def _edited(self) -> tuple[Path, Path]:
        return Path(self.site.slurm.conf), self._etc / "gres.conf"

    @property
    def _links(self) -> dict[str, str]:
        """Edited files that are symbolic links, by their target."""
        return {str(inventory.real(path)): str(path) for path in self._edited if path.is_symlink()}

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
        """The site's own job_submit.lua if it must be moved aside now, and whether there is one at all."""
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
        """Refuse if the place for the site's own job_submit.lua holds a file that is not from us."""
        found = inventory.look(aside, self.store)
        if str(aside) in installed.files or found is None:
            return
        if self.store.copy(found.digest) != content:
            raise errors.InstallError(
                f"{aside} exists and differs from {self._etc / wellknown.JOB_SUBMIT}",
                hint="Keep the right one as job_submit.lua, remove the other, and try again.",
            )

    def _file_changes(self, goals: FileGoals) -> tuple[FileChange, ...]:
        """Changes in order; slurm.conf comes last, when the files it includes exist."""
        edited = {self.site.slurm.conf, str(inventory.real(Path(self.site.slurm.conf)))}
        order = sorted(goals, key=lambda path: (path in edited, path))
        found = (FileChange(path, inventory.look(Path(path), self.store), goals[path]) for path in order)
        return tuple(change for change in found if change.before != change.after)

    def _new_records(
        self, goals: FileGoals, installed: inventory.Installed
    ) -> dict[str, inventory.FileRecord]:
        made = {}
        for path, state in goals.items():
            if state is None:
                continue
            known = installed.files.get(path)
            original = known.original if known is not None else inventory.look(Path(path), self.store)
            if known is None and original == state:
                continue  # the site had the same file before
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
            is_same = live is not None and plans.contains(live, manifest)
            present = part_of(live, manifest) if live is not None and record is None else None
            original = record.original if record is not None else (None if is_same else present)
            made[path] = inventory.ObjectRecord(manifest, existed, original)
            if not is_same or record is None or record.manifest != manifest:
                before = record.manifest if record is not None else None
                changes.append(ObjectChange(path, before, manifest, existed, present))
        gone = {path: each for path, each in installed.objects.items() if path not in made}
        removals, kept = self._removals(gone, installed)
        return (*changes, *removals), kept, made

    # -- uninstalling ----------------------------------------------------------------------------------------
    def uninstall(self) -> plans.Plan:
        installed = self.store.installed()
        if self._finder.is_lost:
            raise errors.InstallError(
                f"{self.site.slurm.conf} includes {facts.include_path(self.site)}, but there are no records"
                f" of what was installed in {self.store.directory}",
                hint="`penstock apply` finds Penstock's files and writes new records; then try again.",
            )
        goals = {path: self._original(path, installed) for path in installed.files}
        goals |= dict.fromkeys(installed.made)
        files = tuple(reversed(self._file_changes(goals)))
        if self.cluster is None:
            left = inventory.Installed(objects=installed.objects)
            kept = tuple(plans.name_of(each.manifest) for each in installed.objects.values())
            return plans.Plan(files=files, objects=(), kept=kept, installed=left, links=self._links)
        removals, kept = self._removals(installed.objects, installed)
        left = inventory.Installed()
        return plans.Plan(files=files, objects=removals, kept=kept, installed=left, links=self._links)

    def _original(self, path: str, installed: inventory.Installed) -> inventory.FileState | None:
        """The file before our first change, with the site's edits since."""
        record = installed.files[path]
        now = inventory.look(Path(path), self.store)
        if Path(path) == self._etc / wellknown.JOB_SUBMIT:
            aside = inventory.look(self._etc / sitefiles.SITE_LUA, self.store)
            was = record.original
            is_link = was is not None and was.link and aside is not None and was.digest == aside.digest
            return was if is_link else aside or was
        if now is not None and now.link:
            return now  # our file was replaced by a link to the site's own
        if now is not None and self._is_edit(path):
            return self._without_our_lines(path, now, record.original)
        if record.original is not None and now is not None and now.digest != record.ours.digest:
            return self._plain(path, now)
        return record.original

    def _without_our_lines(
        self, path: str, now: inventory.FileState, original: inventory.FileState | None
    ) -> inventory.FileState | None:
        """The original if only our lines were added to it, else the present file without them."""
        plain = self._plain(path, now)
        text = self.store.copy(plain.digest)
        if original is None:
            return plain if text.strip() else None
        was = self.store.copy(original.digest)
        return original if text in (was, was + b"\n") else plain

    def kept(self, change: FileChange, now: inventory.FileState | None) -> inventory.FileState | None:
        """What rollback makes of a file that somebody else has changed in the meantime.

        It stays, but without our lines if it had none before: the files that they include are removed.
        """
        if now is None or now.link or not self._is_edit(change.path):
            return now
        was_ours = change.before is not None and self._plain(change.path, change.before) != change.before
        return now if was_ours else self._plain(change.path, now)

    def _is_edit(self, path: str) -> bool:
        edited = [str(inventory.real(each)) for each in self._edited]
        return self.site.slurm.manage == "include" and path in edited

    def _plain(self, path: str, now: inventory.FileState) -> inventory.FileState:
        """A file of the site's without our lines."""
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
