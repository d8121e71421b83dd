"""Kubernetes quantities ("500m", "32Gi", "4") as whole thousandths: sums and comparisons are exact."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from decimal import Decimal
from typing import Any, Final

from penstock.devcluster import statuses

_BINARY: Final = {
    suffix: 1024**power for power, suffix in enumerate(("Ki", "Mi", "Gi", "Ti", "Pi", "Ei"), start=1)
}
_DECIMAL: Final = {"n": -9, "u": -6, "m": -3, "": 0, "k": 3, "M": 6, "G": 9, "T": 12, "P": 15, "E": 18}
_PATTERN: Final = re.compile(r"([+-]?(?:\d+\.?\d*|\.\d+))(?:[eE]([+-]?\d{1,2})|([KMGTPE]i|[numkMGTPE]))?")

Amounts = dict[str, int]


def parse(text: object) -> int:
    """Thousandths of the unit; what is finer than that is rounded up, as Kubernetes does."""
    match = _PATTERN.fullmatch(str(text))
    if match is None:
        raise statuses.bad_request(f"quantities must match the regular expression, got {text!r}")
    number, exponent, suffix = Decimal(match[1]), match[2], match[3] or ""
    factor = (
        Decimal(_BINARY[suffix]) if suffix in _BINARY else Decimal(10) ** int(exponent or _DECIMAL[suffix])
    )
    value = number * factor * 1000
    whole = int(value)
    return whole + 1 if value > whole else whole


def canonical(text: object) -> str:
    """The same amount as the API server writes it: the largest unit of the same kind that leaves no fraction.

    What is no quantity is left for validation to refuse.
    """
    match = _PATTERN.fullmatch(str(text))
    if match is None or match[2]:
        return str(text)
    if match[3] in _BINARY:
        whole = Decimal(match[1]) * _BINARY[match[3]]
        units = [(suffix, Decimal(factor)) for suffix, factor in reversed(_BINARY.items())]
        if whole == whole.to_integral_value():
            return _in_units(whole, [*units, ("", Decimal(1))])
    value = Decimal(parse(text)) / 1000
    return _in_units(
        value, [(suffix, Decimal(10) ** _DECIMAL[suffix]) for suffix in ("E", *"PTGMk", "", "m")]
    )


def _in_units(value: Decimal, units: list[tuple[str, Decimal]]) -> str:
    for suffix, factor in units:
        if value and value % factor == 0:
            return f"{int(value / factor)}{suffix}"
    return str(int(value))


def show(thousandths: int, resource: str) -> str:
    """The canonical text of an amount: thousandths for odd CPUs, binary suffixes for memory."""
    if thousandths % 1000:
        return f"{thousandths}m"
    whole = thousandths // 1000
    if "memory" in resource or "storage" in resource:
        for suffix, factor in reversed(_BINARY.items()):
            if whole and whole % factor == 0:
                return f"{whole // factor}{suffix}"
    return str(whole)


def add(amounts: Iterable[Mapping[str, int]]) -> Amounts:
    """Sum of several resource lists."""
    total: Amounts = {}
    for one in amounts:
        for name, value in one.items():
            total[name] = total.get(name, 0) + value
    return total


def _listed(container: Mapping[str, Any], which: str) -> Amounts:
    resources = container.get("resources") or {}
    found = dict(resources.get(which) or {})
    if which == "requests":
        found = {**(resources.get("limits") or {}), **found}
    return {name: parse(value) for name, value in found.items()}


def of_pod(pod: Mapping[str, Any], which: str = "requests") -> Amounts:
    """What a pod asks of its node: the larger of all containers together and of any single init container."""
    spec = pod.get("spec") or {}
    total = add(_listed(container, which) for container in spec.get("containers") or ())
    for container in spec.get("initContainers") or ():
        for name, value in _listed(container, which).items():
            total[name] = max(total.get(name, 0), value)
    return total
