"""Generic resources: --gres, --gpus and their variants per node, task or socket.

sbatch checks these against the GresTypes of slurm.conf before it contacts slurmctld. An entry is
`name[:type][:count]`; --gpus* omit the name.
"""

from __future__ import annotations

import re
from typing import Final

from penstock.model.jobspec import Gres
from penstock.sbatch.patterns import Pattern
from penstock.sbatch.values.problem import Problem

DEFAULT_TYPES: Final = ("gpu",)
_COUNT = Pattern(r"(-?[0-9]+)(?:([kKmMgGtTpP])(i?[bB])?)?")
_NOTHING = Pattern(r"-?0+[kKmMgGtTpP]?")
"""A count of 0: sbatch does not check the name before it, as in craynetwork:0."""
_NAME = Pattern(r"[A-Za-z_][A-Za-z0-9_.-]*")
_EQUALS = Pattern(r"=([0-9]+)$")
_MINUS_AFTER_TYPE = Pattern(r"[^:]+:[^:]+:-.*")
_UNITS: Final = " KMGTP"
_FORM: Final = "name[:type][:count], as in gpu:2 or gpu:a100:2"
_GPU_FORM: Final = "[type:]count, as in 2 or a100:2"

Types = tuple[str, ...] | None
"""GresTypes; None if unknown, so that any name may be valid."""


def gres(text: str, known: Types = DEFAULT_TYPES) -> tuple[Gres, ...]:
    """--gres: a list, or `none`."""
    if text.startswith(",") or text.endswith(","):
        raise Problem(f"{text!r}: slurmctld refuses a comma at the beginning or end", _FORM)
    return _list(text, known)


def _list(text: str, known: Types, *, digits_begin_types: bool = False) -> tuple[Gres, ...]:
    if text.lower() == "none":
        return ()
    if text == "":
        raise Problem("the list of generic resources is empty", _FORM)
    entries = (entry for entry in text.split(",") if entry)
    return tuple(_entry(entry, known, digits_begin_types=digits_begin_types) for entry in entries)


def gres_tres(text: str, known: Types = DEFAULT_TYPES) -> tuple[Gres, ...]:
    """--gres of 24.11 and later: also as a TRES, gres/name[:type]=count, but without gres: .

    The list may begin or end with a comma, and a type may begin with a digit, such as MIG's 1g.5gb.
    """
    if text.startswith("gres:") or ",gres:" in text:
        raise Problem(f"{text!r}: Slurm 24.11 accepts no gres: before the name", _FORM)
    plain = [_EQUALS.sub(r":\1", entry.removeprefix("gres/")) for entry in text.split(",")]
    _refuse_minus_after_type(plain)
    return _list(",".join(plain), known, digits_begin_types=True)


def gpus_named(text: str) -> tuple[Gres, ...]:
    """--gpus* of 24.11 and later, where gpu: may precede type and count."""
    plain = [entry.removeprefix("gpu:") for entry in text.split(",")]
    _refuse_minus_after_type([f"gpu:{entry}" for entry in plain])
    return _gpus(plain, digits_begin_types=True)


def _refuse_minus_after_type(entries: list[str]) -> None:
    """Refuse gpu:a100:-0, which earlier releases accept as 0."""
    for entry in entries:
        if _MINUS_AFTER_TYPE.fullmatch(entry):
            raise Problem(f"{entry!r}: Slurm 24.11 accepts no minus after a type", _FORM)


def gpus(text: str) -> tuple[Gres, ...]:
    """--gpus*: a list of [type:]count, which may be empty."""
    return _gpus(text.split(","))


def _gpus(entries: list[str], *, digits_begin_types: bool = False) -> tuple[Gres, ...]:
    return tuple(
        _entry(f"gpu:{entry}", DEFAULT_TYPES, shown=entry, digits_begin_types=digits_begin_types)
        for entry in entries
        if entry
    )


def tres_per_task(text: str, known: Types = DEFAULT_TYPES) -> tuple[Gres, ...]:
    """--tres-per-task (23.02): cpu=N, license/name=N and gres/name[:type]=N."""
    found = []
    for entry in text.split(","):
        match = re.fullmatch(r"(?:(cpu|license/[^:=]+)|gres[/:]([a-z_]+)(?::([^:=]+))?)[:=]([0-9]+)", entry)
        if match is None:
            raise Problem(f"{entry!r} is not a valid trackable resource", "as in cpu=4 or gres/gpu=1")
        cpu, name, kind, number = match.groups()
        if name:
            _require_known(name, known)
        found.append(Gres(cpu or name, kind or "", int(number[:9])))
    return tuple(found)


def _entry(entry: str, known: Types, shown: str = "", *, digits_begin_types: bool = False) -> Gres:
    body = entry.removeprefix("gres:")
    name, *rest = body.split(":")
    none_at_all = not digits_begin_types and rest and _NOTHING.fullmatch(rest[-1]) is not None
    _require_known(name, None if none_at_all else known)
    form = _GPU_FORM if shown else _FORM
    if len(rest) > 2 or any(not part for part in rest):
        raise Problem(f"{shown or entry!r} is not a valid generic resource", form)
    if not rest:
        return Gres(name)
    if len(rest) == 2:
        if not _COUNT.fullmatch(rest[1]) or _number(rest[1]) < 0:
            raise Problem(f"{rest[1]!r} is not a valid count", form)
        return Gres(name, rest[0], _number(rest[1]))
    if _COUNT.fullmatch(rest[0]):
        return Gres(name, "", _number(rest[0]))
    if rest[0][0].isdigit() and not digits_begin_types:
        hint = f"give the type a count: {shown or body}:1"
        raise Problem(f"slurmctld reads {rest[0]!r} as a count, which it is not", hint)
    return Gres(name, rest[0], 1)


def _require_known(name: str, known: Types) -> None:
    if known is None:
        if not _NAME.fullmatch(name):
            raise Problem(f"{name!r} is not a valid generic resource", _FORM)
    elif name not in known:
        hint = f"this site knows: {', '.join(known)}" if known else "this site has none"
        if "=" in name or "/" in name:
            hint = _FORM
        raise Problem(f"{name!r} is not a valid generic resource of this site", hint)


def _number(text: str) -> int:
    """K, KiB etc. are powers of 1024, KB etc. of 1000."""
    match = _COUNT.fullmatch(text)
    assert match is not None  # noqa: S101 - the caller has looked
    digits, unit, bytes_ = match.groups()
    base = 1000 if bytes_ in ("b", "B") else 1024
    power = _UNITS.index(unit.upper()) if unit else 0
    if int(digits[:30]) >= 2**64:
        raise Problem(f"{text!r} is more than Slurm can count")
    return int(digits[:18]) * int(base**power)
