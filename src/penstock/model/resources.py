"""Amounts of CPU, memory and GPUs in small integer units, so that sums are exact, and Kubernetes
quantities.

GPUs of the usual resource name have their own field; every other extended resource (amd.com/gpu,
nvidia.com/mig-1g.10gb, but also network cards) is counted by name, so that none is taken for another.
"""

from __future__ import annotations

import dataclasses
import fractions
import re
from collections.abc import Callable, Collection, Iterable

_UNITS: dict[str, int | fractions.Fraction] = {
    "": 1, "k": 10**3, "M": 10**6, "G": 10**9, "T": 10**12, "P": 10**15, "E": 10**18,
    "Ki": 2**10, "Mi": 2**20, "Gi": 2**30, "Ti": 2**40, "Pi": 2**50, "Ei": 2**60,
    "m": fractions.Fraction(1, 1000), "u": fractions.Fraction(1, 10**6), "n": fractions.Fraction(1, 10**9),
}  # fmt: skip
_QUANTITY = re.compile(r"(?P<number>[+-]?(\d+\.?\d*|\.\d+)([eE][+-]?\d{1,3})?)(?P<unit>[a-zA-Z]*)")
Devices = tuple[tuple[str, int], ...]  # extended resources as (name, count), sorted by name, without zeros


@dataclasses.dataclass(frozen=True, kw_only=True)
class Amount:
    """An amount of a node's resources."""

    millicpus: int = 0
    memory: int = 0  # bytes
    gpus: int = 0  # of nvidia.com/gpu
    devices: Devices = ()  # under any other resource name

    @property
    def all_gpus(self) -> int:
        """GPUs under any name, for an amount without other devices: what Slurm allocated to a job."""
        return self.gpus + sum(count for _, count in self.devices)

    def count_of(self, resource: str) -> int:
        return dict(self.devices).get(resource, 0)

    def only(self, names: Collection[str]) -> Amount:
        """With devices of these names only."""
        if not self.devices:
            return self
        return dataclasses.replace(self, devices=tuple(each for each in self.devices if each[0] in names))

    def __add__(self, other: Amount) -> Amount:
        return self._with(other, int.__add__)

    def __sub__(self, other: Amount) -> Amount:
        return self._with(other, int.__sub__)

    def largest(self, other: Amount) -> Amount:
        """The maximum per resource."""
        return self._with(other, max)

    def smallest(self, other: Amount) -> Amount:
        """The minimum per resource."""
        return self._with(other, min)

    def _with(self, other: Amount, how: Callable[[int, int], int]) -> Amount:
        return Amount(
            millicpus=how(self.millicpus, other.millicpus),
            memory=how(self.memory, other.memory),
            gpus=how(self.gpus, other.gpus),
            devices=self._devices(other, how) if self.devices or other.devices else (),
        )

    def beyond(self, other: Amount) -> Amount:
        """By how much this exceeds the other, per resource."""
        return (self - other).largest(Amount())

    def _devices(self, other: Amount, how: Callable[[int, int], int]) -> Devices:
        one, two = dict(self.devices), dict(other.devices)
        return devices((name, how(one.get(name, 0), two.get(name, 0))) for name in one.keys() | two.keys())

    def shortages(self, free: Amount) -> tuple[Shortage, ...]:
        """What does not fit into `free`. An overcommitted resource has none free."""
        free = free.largest(Amount())
        rows: list[tuple[str, int, int, Callable[[int], str]]]
        rows = [(name, count, free.count_of(name), str) for name, count in self.devices]
        rows += [
            ("gpu", self.gpus, free.gpus, str),
            ("cpu", self.millicpus, free.millicpus, _cpus),
            ("memory", self.memory, free.memory, _mebibytes),
        ]
        return tuple(
            Shortage(what=what, needed=shown(wanted), free=shown(left))
            for what, wanted, left, shown in rows
            if wanted > left
        )


def devices(counts: Iterable[tuple[str, int]]) -> Devices:
    """Counts by name in the form of `Amount.devices`."""
    return tuple(sorted((name, count) for name, count in counts if count))


@dataclasses.dataclass(frozen=True, kw_only=True)
class Shortage:
    """A resource that does not fit, as a user reads it."""

    what: str
    needed: str
    free: str


def _cpus(millicpus: int) -> str:
    return f"{millicpus / 1000:g}"


def _mebibytes(amount: int) -> str:
    return f"{amount // 2**20}Mi"


def quantity(text: str | int | float) -> fractions.Fraction:
    """A Kubernetes quantity ("500m", "32Gi", "1e3") as a number. ValueError if it is not one."""
    match = _QUANTITY.fullmatch(str(text))
    if match is None or match["unit"] not in _UNITS:
        raise ValueError(f"not a Kubernetes quantity: {text!r}")
    return fractions.Fraction(match["number"]) * fractions.Fraction(_UNITS[match["unit"]])
