"""Ways to make a lab wrong for a while: a file away, changed or closed, a command, a daemon killed."""

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
Ailment = Callable[[Lab], contextlib.AbstractContextManager[schema.Site]]
NODE = "n4"


def site_of(lab: Lab, **sections: Any) -> schema.Site:
    """The lab's site, with other words in some sections."""
    document = dict(yamlreader.read(lab.place.site_yaml.read_bytes()).data)
    for section, values in sections.items():
        known = document.get(section, {})
        document[section] = {
            key: _merged(known.get(key), value) for key, value in {**known, **values}.items()
        }
    return loader.loads(yamltext.document(document).encode())


def its_kubeconfig(lab: Lab) -> Path:
    """The one that penstockd uses, past a fault proxy or not."""
    return Path(site_of(lab).kubernetes.kubeconfig)


def _merged(known: Any, new: Any) -> Any:
    return {**known, **new} if isinstance(known, dict) and isinstance(new, dict) else new


def said(**sections: Any) -> Ailment:
    """A site file that says something else."""

    @contextlib.contextmanager
    def ailment(lab: Lab) -> Iterator[schema.Site]:
        yield site_of(lab, **sections)

    return ailment


def moved(path: Callable[[Lab], Path]) -> Ailment:
    """A file or folder that is away for a while."""

    @contextlib.contextmanager
    def ailment(lab: Lab) -> Iterator[schema.Site]:
        site, there = site_of(lab), path(lab)
        away = there.with_name(f"{there.name}.away")
        there.rename(away)
        try:
            yield site
        finally:
            away.rename(there)

    return ailment


def changed(path: Callable[[Lab], Path], content: bytes = b"\n# changed\n") -> Ailment:
    """A file with something at its end."""

    @contextlib.contextmanager
    def ailment(lab: Lab) -> Iterator[schema.Site]:
        there = path(lab)
        before = there.read_bytes()
        there.write_bytes(before + content)
        try:
            yield site_of(lab)
        finally:
            there.write_bytes(before)

    return ailment


def mode(path: Callable[[Lab], Path], bits: int) -> Ailment:
    """A file or folder with other rights."""

    @contextlib.contextmanager
    def ailment(lab: Lab) -> Iterator[schema.Site]:
        there = path(lab)
        before = there.stat().st_mode & 0o7777
        there.chmod(bits)
        try:
            yield site_of(lab)
        finally:
            there.chmod(before)

    return ailment


def commands(do: tuple[str, ...], undo: tuple[str, ...]) -> Ailment:
    """What a command does, until another takes it back."""

    @contextlib.contextmanager
    def ailment(lab: Lab) -> Iterator[schema.Site]:
        lab.run(do)
        try:
            yield site_of(lab)
        finally:
            lab.run(undo)

    return ailment


def killed(name: str) -> Ailment:
    """A daemon that has been killed."""

    @contextlib.contextmanager
    def ailment(lab: Lab) -> Iterator[schema.Site]:
        labs.kill(lab.place, name)
        try:
            yield site_of(lab)
        finally:
            lab.penstock("lab", "restart", name)

    return ailment


def setting_changed(before: str, after: str) -> Ailment:
    """A line of slurm.conf that slurmctld has not read."""

    @contextlib.contextmanager
    def ailment(lab: Lab) -> Iterator[schema.Site]:
        conf = lab.place.slurm_conf
        text = conf.read_text()
        conf.write_text(text.replace(f"\n{before}\n", f"\n{after}\n"))
        try:
            yield site_of(lab)
        finally:
            conf.write_text(text)

    return ailment
