"""The parser of each grammar in the option table."""

from __future__ import annotations

from collections.abc import Callable
from importlib import import_module
from typing import Any, Final

_HOME: Final = "penstock.sbatch.values."


def as_is(text: str) -> str:
    return text


GRAMMARS: Final = {
    "acctg-freq": "choices.acctg_freq",
    "array": "arrays.array",
    "begin": "times.point",
    "begin-elevenses": "times.point_elevenses",
    "core-spec": "sizes.core_spec",
    "count": "sizes.count",
    "cpu-freq": "choices.cpu_freq",
    "cpu-freq-governed": "choices.cpu_freq_governed",
    "dependency": "dependencies.dependency",
    "distribution": "bindings.distribution",
    "exclusive": "choices.exclusive",
    "exclusive-topo": "choices.exclusive_topo",
    "extra-node-info": "sizes.extra_node_info",
    "features": "choices.features",
    "get-user-env": "choices.get_user_env",
    "gpu-bind": "bindings.gpu_bind",
    "gpu-bind-named": "bindings.gpu_bind_named",
    "gpu-freq": "bindings.gpu_freq",
    "gpus": "gres.gpus",
    "gpus-named": "gres.gpus_named",
    "gres": "gres.gres",
    "gres-tres": "gres.gres_tres",
    "gres-flags": "choices.gres_flags",
    "group": "choices.number_or_text",
    "hint": "choices.hint",
    "hostlist": "hostlist.hostlist",
    "mail-type": "mailsignals.mail_types",
    "mem-bind": "bindings.mem_bind",
    "mem-bind-unsorted": "bindings.mem_bind_unsorted",
    "memory": "sizes.memory",
    "nice": "sizes.nice",
    "no-kill": "choices.no_kill",
    "node-counts": "sizes.node_counts",
    "node-file": "grammars.as_is",
    "nodes": "sizes.nodes",
    "open-mode": "choices.open_mode",
    "path": "grammars.as_is",
    "power": "choices.power",
    "priority": "sizes.priority",
    "profile": "choices.profile",
    "readable-file": "grammars.as_is",
    "rlimits": "choices.rlimits",
    "signal": "mailsignals.signal",
    "switches": "choices.switches",
    "text": "grammars.as_is",
    "time": "times.limit",
    "tres-per-task": "gres.tres_per_task",
    "user": "choices.number_or_text",
    "yes-no": "choices.yes_no",
    "zero-one": "sizes.zero_one",
}
"""Module and function; modules are imported on first use, because a script needs only a few."""

NEED_TYPES: Final = ("gres", "gres-tres", "tres-per-task")
"""Grammars that need the site's generic resources."""

_LOADED: dict[str, Callable[[str], Any]] = {}


def grammar(name: str) -> Callable[[str], Any]:
    """The parser of this grammar."""
    if name not in _LOADED:
        module, _, function = GRAMMARS[name].partition(".")
        _LOADED[name] = getattr(import_module(_HOME + module), function)
    return _LOADED[name]
