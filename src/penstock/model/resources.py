"""Amounts of CPU, memory and GPUs in whole small units, so that sums are exact, and Kubernetes' way of
writing them.
"""

from __future__ import annotations

import dataclasses
import fractions
import re

_UNITS: dict[str, int | fractions.Fraction] = {
    "": 1, "k": 10**3, "M": 10**6, "G": 10**9, "T": 10**12, "P": 10**15, "E": 10**18,
    "Ki": 2**10, "Mi": 2**20, "Gi": 2**30, "Ti": 2**40, "Pi": 2**50, "Ei": 2**60,
    "m": fractions.Fraction(1, 1000), "u": fractions.Fraction(1, 10**6), "n": fractions.Fraction(1, 10**9),
}  # fmt: skip
_QUANTITY = re.compile(r"(?P<number>[+-]?(\d+\.?\d*|\.\d+)([eE][+-]?\d{1,3})?)(?P<unit>[a-zA-Z]*)")


@dataclasses.dataclass(frozen=True, kw_only=True)
class Amount:
    """How much of a node somebody has, wants or leaves free."""

    millicpus: int = 0
    memory: int = 0
    """Bytes."""
    gpus: int = 0

    def __add__(self, other: Amount) -> Amount:
        return Amount(
            millicpus=self.millicpus + other.millicpus,
            memory=self.memory + other.memory,
            gpus=self.gpus + other.gpus,
        )

    def __sub__(self, other: Amount) -> Amount:
        return Amount(
            millicpus=self.millicpus - other.millicpus,
            memory=self.memory - other.memory,
            gpus=self.gpus - other.gpus,
        )

    def beyond(self, other: Amount) -> Amount:
        """What of this is more than the other has, and nothing where it has more."""
        left = self - other
        return Amount(millicpus=max(left.millicpus, 0), memory=max(left.memory, 0), gpus=max(left.gpus, 0))

    def shortages(self, free: Amount) -> tuple[Shortage, ...]:
        """What of this does not fit into `free`; empty when all does."""
        wants = (
            Shortage(what="gpu", needed=str(self.gpus), free=str(max(free.gpus, 0))),
            Shortage(what="cpu", needed=_cpus(self.millicpus), free=_cpus(max(free.millicpus, 0))),
            Shortage(what="memory", needed=_mebibytes(self.memory), free=_mebibytes(max(free.memory, 0))),
        )
        missing = (self.gpus > free.gpus, self.millicpus > free.millicpus, self.memory > free.memory)
        return tuple(want for want, is_missing in zip(wants, missing, strict=True) if is_missing)


@dataclasses.dataclass(frozen=True, kw_only=True)
class Shortage:
    """Something that does not fit, as a user reads it."""

    what: str
    needed: str
    free: str


def _cpus(millicpus: int) -> str:
    return f"{millicpus / 1000:g}"


def _mebibytes(amount: int) -> str:
    return f"{amount // 2**20}Mi"


def quantity(text: str | int | float) -> fractions.Fraction:
    """A Kubernetes quantity ("500m", "32Gi", "1e3") as a number; ValueError when it is none."""
    match = _QUANTITY.fullmatch(str(text))
    if match is None or match["unit"] not in _UNITS:
        raise ValueError(f"not a Kubernetes quantity: {text!r}")
    return fractions.Fraction(match["number"]) * fractions.Fraction(_UNITS[match["unit"]])
