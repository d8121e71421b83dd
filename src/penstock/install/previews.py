"""Renders a site file without installing it: as text, into a folder, or compared with the live site."""

from __future__ import annotations

import dataclasses
from collections.abc import Collection, Iterator, Sequence
from pathlib import Path
from typing import Any

from penstock import errors, wording
from penstock.install import facts, kubeadmin, plans, sitefiles
from penstock.nas import atomic
from penstock.render import yamltext
from penstock.site import kubeobjects
from penstock.site.schema import Site


@dataclasses.dataclass(frozen=True, kw_only=True)
class Preview:
    """Files, edits and manifests of a site, of the requested kinds."""

    site: Site
    own: Sequence[sitefiles.File]
    edits: Sequence[sitefiles.Edit]
    manifests: Sequence[dict[str, Any]]

    @property
    def files(self) -> tuple[sitefiles.File, ...]:
        """Files of ours, and one file with all manifests."""
        if not self.manifests:
            return (*self.own,)
        text = yamltext.documents(self.manifests).encode()
        return (*self.own, sitefiles.File(path=Path("kubernetes.yaml"), content=text, kind="kubernetes"))

    def differences(self) -> Iterator[tuple[str, str, str]]:
        """Name, live text and rendered text of each file and object that differs."""
        plain = wording.without_stray_bytes
        texts = {file.path: file.content.decode() for file in self.own}
        texts |= {edit.path: sitefiles.edited(edit) for edit in self.edits}
        for path, text in texts.items():
            live = path.read_text(encoding="utf-8", errors="surrogateescape") if path.exists() else ""
            if live != text:
                yield str(path), plain(live), plain(text)
        cluster = kubeadmin.admin(self.site) if self.manifests else None
        for manifest in self.manifests:
            there = cluster.get(manifest) if cluster else None
            if there is None or not plans.contains(there, manifest):
                before = yamltext.document(_same_keys(there or {}, manifest))
                yield kubeadmin.path_of(manifest), before, yamltext.document(manifest)

    def write_below(self, top: Path) -> None:
        """Write with the modes of the installed files, as one has a password; symlinks are refused."""
        try:
            top.mkdir(parents=True, exist_ok=True)
            for file in self.files:
                path = top / str(file.path).lstrip("/")
                _make_folders(top, path.parent)
                atomic.write(path, file.content, mode=file.mode)
        except OSError as error:
            message = f"--out {top}: cannot write {error.filename}: {error.strerror}"
            raise errors.UsageError(message) from error


def preview(site: Site, kinds: Collection[str]) -> Preview:
    known = facts.gather(site, site_lua=sitefiles.has_site_lua(site))
    return Preview(
        site=site,
        own=[file for file in sitefiles.all_files(site, known) if file.kind in kinds],
        edits=sitefiles.all_edits(site, known) if "slurm" in kinds else (),
        manifests=kubeobjects.all_objects(site, known.groups) if "kubernetes" in kinds else (),
    )


def _same_keys(live: Any, wanted: Any) -> Any:
    """The fields of the live object that the manifest has."""
    if isinstance(wanted, dict) and isinstance(live, dict):
        return {key: _same_keys(live[key], value) for key, value in wanted.items() if key in live}
    return live


def _make_folders(top: Path, folder: Path) -> None:
    for parent in (*reversed(folder.parents), folder):
        if parent == top or not parent.is_relative_to(top):
            continue
        if parent.is_symlink():
            raise errors.UsageError(f"--out {top}: {parent} is a link", hint="Use an empty folder.")
        parent.mkdir(exist_ok=True)
