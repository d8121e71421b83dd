"""Restores lost records: finds what an earlier `apply` has installed.

Files with names that a site may use itself carry a mark (`wellknown.WRITTEN`). All other names are ours alone
and count as ours if slurm.conf includes our file. Empty device files of GPUs may be the site's and are left.
With `manage: whole` nothing is adopted: a slurm.conf of ours without records may have been rendered and
copied by other means, and removing it later would end the site's Slurm.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec

from penstock import wellknown
from penstock.install import facts, inventory, kubeadmin, kubeconfigs, sitefiles
from penstock.install.transactions import part_of
from penstock.site import kubeobjects as site_objects
from penstock.site.schema import Site
from penstock.slurm import conffile

Manifest = dict[str, Any]
CONTROLLERS = ("kube-controller-manager",)
NAMED_BY_US = ("ClusterRole", "ClusterRoleBinding", "ServiceAccount")
"""Kinds that are ours if they have our label: they hold nothing of others."""


@dataclasses.dataclass(frozen=True)
class Finder:
    site: Site
    store: inventory.Store
    cluster: kubeadmin.Cluster | None

    @property
    def is_lost(self) -> bool:
        """Whether slurm.conf includes our file although there are no records."""
        return not self.store.installed().files and self._is_edited(Path(self.site.slurm.conf))

    def complete(self, known: facts.Facts, installed: inventory.Installed) -> inventory.Installed:
        """The records, completed with files and objects of ours that are missing in them."""
        if self.site.slurm.manage != "include":
            return installed
        is_lost = self.is_lost
        missing = {
            path: record
            for path, record in self._files(known, is_lost=is_lost)
            if path not in installed.files
        }
        if not missing:
            return installed
        found = msgspec.structs.replace(installed, files=installed.files | missing)
        if not is_lost:
            return found
        kubeconfig = Path(self.site.kubernetes.kubeconfig)
        made = {*installed.made, *([str(kubeconfig)] if kubeconfigs.is_ours(kubeconfig) else ())}
        objects = dict(self._objects(known)) | installed.objects
        return msgspec.structs.replace(found, made=sorted(made), objects=objects)

    # -- files -----------------------------------------------------------------------------------------------
    def _files(self, known: facts.Facts, *, is_lost: bool) -> Iterator[tuple[str, inventory.FileRecord]]:
        etc = Path(self.site.slurm.conf).parent
        common = sitefiles.common_names(self.site)
        for file in sitefiles.all_files(self.site, known):
            now = inventory.look(file.path, self.store) if file.content else None
            if now is None or now.link:
                continue
            is_alone = is_lost and file.path not in common
            if is_alone or sitefiles.is_marked(self.store.copy(now.digest)):
                original = self._sites_lua(etc) if file.path == etc / wellknown.JOB_SUBMIT else None
                yield str(file.path), inventory.FileRecord(now, original)
        aside = inventory.look(etc / sitefiles.SITE_LUA, self.store)
        if aside is not None and sitefiles.is_marked_file(etc / wellknown.JOB_SUBMIT):
            yield str(etc / sitefiles.SITE_LUA), inventory.FileRecord(aside)
        for edit in sitefiles.all_edits(self.site, known):
            now = inventory.look(inventory.real(edit.path), self.store)
            if now is not None and self._is_edited(edit.path):
                yield str(inventory.real(edit.path)), inventory.FileRecord(now, self._plain(now, edit))

    def _sites_lua(self, etc: Path) -> inventory.FileState | None:
        """The site's job_submit.lua that was moved aside, unless it was overwritten by one of ours."""
        aside = inventory.look(etc / sitefiles.SITE_LUA, self.store)
        return None if aside is None or sitefiles.is_marked(self.store.copy(aside.digest)) else aside

    def _is_edited(self, path: Path) -> bool:
        includes = (facts.include_path(self.site), path.parent / sitefiles.GRES_INCLUDE)
        lines = _text(path).split("\n")
        return any(f"include {include}" == line.strip() for include in includes for line in lines)

    def _plain(self, now: inventory.FileState, edit: sitefiles.Edit) -> inventory.FileState | None:
        text = self.store.copy(now.digest).decode(errors="surrogateescape")
        plain = conffile.plain(text, include=str(edit.include)).encode(errors="surrogateescape")
        return msgspec.structs.replace(now, digest=self.store.keep(plain)) if plain.strip() else None

    # -- objects ---------------------------------------------------------------------------------------------
    def _objects(self, known: facts.Facts) -> Iterator[tuple[str, inventory.ObjectRecord]]:
        if self.cluster is None:
            return
        for manifest in site_objects.all_objects(self.site, known.groups):
            live = self.cluster.get(manifest)
            if live is not None and _has_label(live):
                existed = manifest["kind"] not in NAMED_BY_US and not _is_made_by(live, self.cluster.manager)
                yield kubeadmin.path_of(manifest), inventory.ObjectRecord(part_of(live, manifest), existed)


def _text(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8", errors="surrogateescape")
    except OSError:
        return ""


def _has_label(live: Manifest) -> bool:
    labels = live["metadata"].get("labels") or {}
    return bool(labels.get(wellknown.LABEL_MANAGED_BY) == wellknown.MANAGED_BY_VALUE)


def _is_made_by(live: Manifest, manager: str) -> bool:
    """Whether we are the only field manager: a namespace may be somebody else's."""
    entries = [each for each in live["metadata"].get("managedFields") or () if not each.get("subresource")]
    managers = {str(each.get("manager")) for each in entries} - {*CONTROLLERS}
    return managers == {manager}
