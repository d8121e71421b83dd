"""Temporary faults of a lab in general: a file moved, changed or closed, a command, a daemon killed."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from tests.e2e import labs

from penstock.render import yamltext
from penstock.site import loader, schema, yamlreader
from penstock_lab import testing

Lab = testing.RunningLab
Fault = Callable[[Lab], contextlib.AbstractContextManager[schema.Site]]
NODE = "n4"


def site_of(lab: Lab, **sections: Any) -> schema.Site:
    """The lab's site with changed sections."""
    document = dict(yamlreader.read(lab.place.site_yaml.read_bytes()).data)
    for section, values in sections.items():
        known = document.get(section, {})
        document[section] = {
            key: _merged(known.get(key), value) for key, value in {**known, **values}.items()
        }
    return loader.loads(yamltext.document(document).encode())


def its_kubeconfig(lab: Lab) -> Path:
    """penstockd's kubeconfig, with or without a fault proxy."""
    return Path(site_of(lab).kubernetes.kubeconfig)


def _merged(known: Any, new: Any) -> Any:
    return {**known, **new} if isinstance(known, dict) and isinstance(new, dict) else new


def said(**sections: Any) -> Fault:
    """A site file with changed sections."""

    @contextlib.contextmanager
    def fault(lab: Lab) -> Iterator[schema.Site]:
        yield site_of(lab, **sections)

    return fault


def moved(path: Callable[[Lab], Path]) -> Fault:
    """Move a file or folder away."""

    @contextlib.contextmanager
    def fault(lab: Lab) -> Iterator[schema.Site]:
        site, there = site_of(lab), path(lab)
        away = there.with_name(f"{there.name}.away")
        there.rename(away)
        try:
            yield site
        finally:
            away.rename(there)

    return fault


def changed(path: Callable[[Lab], Path], content: bytes = b"\n# changed\n") -> Fault:
    """Append to a file."""

    @contextlib.contextmanager
    def fault(lab: Lab) -> Iterator[schema.Site]:
        there = path(lab)
        before = there.read_bytes()
        there.write_bytes(before + content)
        try:
            yield site_of(lab)
        finally:
            there.write_bytes(before)

    return fault


def mode(path: Callable[[Lab], Path], bits: int) -> Fault:
    """Change the mode of a file or folder."""

    @contextlib.contextmanager
    def fault(lab: Lab) -> Iterator[schema.Site]:
        there = path(lab)
        before = there.stat().st_mode & 0o7777
        there.chmod(bits)
        try:
            yield site_of(lab)
        finally:
            there.chmod(before)

    return fault


def commands(do: tuple[str, ...], undo: tuple[str, ...]) -> Fault:
    """Run a command, later another one that undoes it."""

    @contextlib.contextmanager
    def fault(lab: Lab) -> Iterator[schema.Site]:
        lab.run(do)
        try:
            yield site_of(lab)
        finally:
            lab.run(undo)

    return fault


def killed(name: str) -> Fault:
    """Kill a daemon."""

    @contextlib.contextmanager
    def fault(lab: Lab) -> Iterator[schema.Site]:
        labs.kill(lab.place, name)
        try:
            yield site_of(lab)
        finally:
            lab.penstock("lab", "restart", name)

    return fault


def setting_changed(before: str, after: str) -> Fault:
    """Change a line of slurm.conf without telling slurmctld."""

    @contextlib.contextmanager
    def fault(lab: Lab) -> Iterator[schema.Site]:
        conf = lab.place.slurm_conf
        text = conf.read_text()
        conf.write_text(text.replace(f"\n{before}\n", f"\n{after}\n"))
        try:
            yield site_of(lab)
        finally:
            conf.write_text(text)

    return fault
