"""Values of #PBS lines as sbatch parses them, which is not always as in PBS.

In a resource list a known name counts wherever it begins, even in the middle of a word, and each has its own
end of the value (a comma or a colon). Unknown text is ignored silently.
"""

from __future__ import annotations

import re
from typing import Final

from penstock.sbatch.patterns import Pattern
from penstock.sbatch.values.problem import Problem, leading_number, whole_number

NAMES: Final = {
    "naccelerators=": ("", ","),
    "accelerator=": ("", ",:"),
    "arch=": ("", ","),
    "cput=": ("time", ","),
    "file=": ("tmp", ","),
    "host=": ("", ","),
    "mem=": ("mem", ","),
    "mpiprocs=": ("ntasks-per-node", ":"),
    "mppmem=": ("", ","),
    "mppnodes=": ("nodelist", ","),
    "ncpus=": ("mincpus", ":"),
    "nice=": ("nice", ","),
    "nodes=": ("", ","),
    "opsys=": ("", ","),
    "other=": ("", ","),
    "pmem=": ("", ","),
    "proc=": ("constraint", ","),
    "pvmem=": ("", ","),
    "select=": ("nodes", ":"),
    "software=": ("", ","),
    "vmem=": ("", ","),
    "walltime=": ("time", ","),
}
"""Resources: the sbatch option that gets the value unchanged, and the characters that end the value."""

MAIL: Final = {"a": "FAIL", "b": "BEGIN", "e": "END", "n": "NONE"}
_NAME = Pattern("|".join(NAMES))
_SIZES: Final = ("mem=", "file=")


def mail_types(letters: str) -> str:
    """-m: unknown letters are dropped."""
    return ",".join(MAIL[letter] for letter in letters if letter in MAIL) or letters


def resources(text: str, gres: str) -> list[tuple[str, str]]:
    """-l: options and values in order; `gres` is the present --gres, to which accelerators are added."""
    found: list[tuple[str, str]] = []
    position = 0
    while known := _NAME.search(text, position):
        name, start = known.group(), known.end()
        option, ends = NAMES[name]
        position = _end(text, start, ends)
        value = text[start:position]
        if option:
            found.append((option, _plain(name, value)))
            continue
        if name == "nodes=":
            found += _nodes(value)
        elif name in ("accelerator=", "naccelerators=") and (gpus := _accelerators(name, value)):
            gres = f"{gres},gpu:{gpus}" if gres else f"gpu:{gpus}"
            found.append(("gres", gres))
    return found


def _end(text: str, start: int, ends: str) -> int:
    found = [place for end in ends if (place := text.find(end, start)) >= 0]
    return min(found, default=len(text))


def _plain(name: str, value: str) -> str:
    if name in _SIZES and value[-1:] in ("b", "B"):
        return value[:-1]
    return re.sub("[+:]", ",", value) if name == "mppnodes=" else value


def _accelerators(name: str, value: str) -> str:
    if name == "accelerator=":
        return "1" if value.lower().startswith("true") else ""
    if (whole_number(value) or 0) <= 0:
        raise Problem(f"{value!r} is not a number of accelerators")
    return value


def _nodes(value: str) -> list[tuple[str, str]]:
    """nodes=: counts and names joined by + and :, which are added up; of gpus= the last one counts."""
    nodes = per_node = 0
    names: list[str] = []
    gpus = ""
    for found_part in re.finditer("[^+:]+", value):
        part = found_part.group()
        if part.startswith("ppn="):
            per_node += leading_number(value[found_part.start() + 4 :][:20])
        elif part.startswith("gpus="):
            gpus = part[5:]
        elif count := re.match(r"[^A-Za-z0-9]*([0-9]+)", part):
            nodes += int(count.group(1)[:9])
        elif name := re.search("[A-Za-z].*", part):
            names.append(name.group())
    found = [("nodes", str(nodes))] if nodes else []
    if per_node:
        found.append(("ntasks", str(per_node * (nodes or 1))))
    if names:
        found.append(("nodelist", ",".join(names)))
    if gpus:
        found.append(("gpus-per-node", gpus))
    return found
