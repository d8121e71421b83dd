"""Amounts: memory, counts, node counts, and other numbers with special rules."""

from __future__ import annotations

import re
from typing import Final

from penstock.model.jobspec import NodeRange
from penstock.sbatch.patterns import Pattern
from penstock.sbatch.values.problem import INT_MAX, LONG_MAX, Problem, as_int32, leading_number, whole_number

_MEMORY = Pattern(r"[ \t\n\v\f\r]*(?:\+|-(?=0+(?![0-9])))?([0-9]+)(?:([kKmMgGtT])[bB]?)?")
_KIB: Final = {"K": 1, "M": 1024, "G": 1024**2, "T": 1024**3}
_NODES = Pattern(r"[ \t\n\v\f\r]*([+-]?[0-9]+)([kK]?)([mM]?)[ \t\n\v\f\r]*")
_PART_OF_NODE = Pattern(r"((?:[ \t]*[+-]?[0-9]+)?)([kKmM]?)(?:-((?:[ \t]*[+-]?[0-9]+)?)([kKmM]?)(?:-.*)?)?")
MAX_NICE: Final = 2147483645
MAX_PRIORITY: Final = 4294967294


def memory(text: str) -> int:
    """--mem and its variants in MiB; a bare number is MiB, K is rounded up."""
    match = _MEMORY.fullmatch(text)
    if match is None:
        raise Problem(f"{text!r} is not a valid amount of memory", _memory_hint(text))
    number = int(match.group(1).lstrip("0")[:20] or "0")
    if number > LONG_MAX:
        raise Problem(f"{text!r} is more memory than Slurm can count")
    kib = number * _KIB[(match.group(2) or "M").upper()]
    return -(-kib // 1024)


def _memory_hint(text: str) -> str:
    if re.fullmatch(r"[0-9]+[kmgt]i?b?", text, re.IGNORECASE):
        return f"write {text.rstrip('bBiI')}; K, M, G and T are powers of 1024 already"
    if re.fullmatch(r"[0-9]*\.[0-9]+[gGtT][bB]?", text):
        number = float(text.rstrip("gGtTbB")) * 1024
        return f"no fractions; write {round(number)}{'M' if 'g' in text.lower() else 'G'}"
    return "a number of MiB, or one with K, M, G or T"


def count(text: str) -> int:
    """A number above 0."""
    number = whole_number(text)
    if number is None or number <= 0:
        raise Problem(f"{text!r} is not a number above 0")
    if number != as_int32(number):
        kept = as_int32(number)
        message = f"{text!r} overflows: Slurm reads it as {kept}"
        raise Problem(message, odd=number < LONG_MAX, value=kept)
    return number


def core_spec(text: str) -> int:
    """--core-spec: may be 0 or empty."""
    number = whole_number(text or "0")
    if number is None or not 0 <= number < LONG_MAX:
        raise Problem(f"{text!r} is not a number of cores")
    return number


def zero_one(text: str) -> int:
    """--wait-all-nodes; sbatch checks 16 bits of a number."""
    number = whole_number(text or "0")
    if number is None or not 0 <= number < LONG_MAX or number & 0xFFFF > 1:
        raise Problem(f"{text!r} is neither 0 nor 1")
    return number & 0xFFFF


def nice(text: str) -> int:
    """--nice: as read by atoi(3)."""
    number = leading_number(text)
    if abs(number) > MAX_NICE:
        raise Problem(f"{text!r} is out of range (+/- {MAX_NICE})")
    if text and whole_number(text) is None:
        raise Problem(f"{text!r} is not a number; Slurm reads it as {number}", odd=True)
    return number


def priority(text: str) -> int:
    """--priority: TOP, or a number as read by atoi(3)."""
    if text.upper() == "TOP":
        return MAX_PRIORITY - 1
    number = leading_number(text)
    if not 0 <= number < MAX_PRIORITY:
        raise Problem(f"{text!r} is not a valid priority (0 to {MAX_PRIORITY - 1})")
    return number


def nodes(text: str) -> NodeRange:
    """--nodes of 22.05: N, N-M, -M; k and m are factors of 1024 and 1024 * 1024."""
    low, dash, high = text.partition("-")
    if dash and not low.strip(" \t\n\v\f\r"):
        low = "1"
    minimum = _node_count(low, text)
    if minimum < 0 and not dash:
        raise Problem(f"{low!r} is more nodes than Slurm can count")
    minimum = 1 if minimum < 0 else minimum  # an overflow before a dash is 1 for sbatch
    if not dash:
        return NodeRange(minimum, minimum)
    maximum = _node_count(high, text) if high.strip() else -1
    if maximum == 0:
        return NodeRange(minimum, 0)
    if maximum < minimum:
        message = f"{text!r}: the maximum {maximum} is less than the minimum {minimum}"
        raise Problem(message, "write the smaller number first")
    return NodeRange(minimum, maximum)


def node_counts(text: str) -> NodeRange:
    """--nodes of 23.02 and later: also lists and steps, as in 1,4 or 2-8:2, of which min and max are kept."""
    if "," not in text and ":" not in text:
        return nodes(text)
    found = [nodes(part.partition(":")[0]) for part in text.split(",") if part]
    for part in text.split(","):
        _, colon, step = part.partition(":")
        if colon and (whole_number(step) or 0) <= 0:
            raise Problem(f"{step!r} is not a valid step", "as in 2-8:2")
    if not found:
        raise Problem(f"{text!r} is not a valid list of node counts", "as in 1,4 or 2-8:2")
    return NodeRange(min(entry.minimum for entry in found), max(entry.maximum for entry in found))


def _node_count(part: str, whole: str) -> int:
    match = _NODES.fullmatch(part)
    if match is None:
        hint = "a number, or min-max" if "," not in whole else "lists of node counts need Slurm 23.02"
        raise Problem(f"{part!r} is not a valid node count", hint)
    number, thousands, millions = match.groups()
    factor = (1024 if thousands else 1) * (1024 * 1024 if millions else 1)
    return as_int32((whole_number(number) or 0) * factor)


def extra_node_info(text: str) -> tuple[int | None, int | None, int | None]:
    """--extra-node-info: sockets[:cores[:threads]], None for * or empty; the minimum of a range."""
    numbers = [_part_of_node(part) for part in text.split(":")[:3]]
    sockets, cores, threads = (*numbers, None, None)[:3]
    return sockets, cores, threads


def _part_of_node(part: str) -> int | None:
    if part.startswith("*") or not part:
        return None
    match = _PART_OF_NODE.fullmatch(part)
    if match is None:
        raise Problem(f"{part!r} is not a number of sockets, cores or threads", "sockets[:cores[:threads]]")
    least, most = _counted(*match.group(1, 2)), _counted(*match.group(3, 4))
    if max(least, most) > INT_MAX:
        raise Problem(f"{part!r} is beyond what Slurm can count", "sockets[:cores[:threads]]")
    if least < 0 or (match.group(3) is not None and most <= 0):
        raise Problem(f"{part!r} is not a number above 0", "sockets[:cores[:threads]]")
    return least


def _counted(number: str | None, unit: str | None) -> int:
    factor = {"k": 1024, "m": 1024 * 1024}.get((unit or "").lower(), 1)
    return (whole_number(number or "0") or 0) * factor
