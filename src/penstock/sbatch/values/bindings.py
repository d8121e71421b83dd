"""Placement of tasks, memory and GPUs: --distribution, --mem-bind, --gpu-bind, --gpu-freq.

sbatch splits these values at separators and accepts empty parts and abbreviated words, so more is accepted
here than the manual says.
"""

from __future__ import annotations

import re
from typing import Final

from penstock.sbatch.patterns import Pattern
from penstock.sbatch.values.choices import matching
from penstock.sbatch.values.problem import INT_MAX, Problem, whole_number

_DISTRIBUTION: Final = "as in block, cyclic, plane=4 or block:cyclic"
_BY_NODE: Final = ("*", "block", "cyclic")
_WITHIN: Final = (*_BY_NODE, "fcyclic")
_PACKS: Final = ("pack", "nopack")

_GPU_BINDING: Final = "as in closest, single:1, map_gpu:0,1 or none"
_GPU_BEGINS = Pattern(r"[cn].*", re.IGNORECASE)
_GPU_NAMES = Pattern(r"(?:closest|none).*", re.IGNORECASE)
_GPU_LIST = Pattern(
    r"map_gpu:(?:[0-9]*(?:\*[0-9]*)?,)*[0-9]*(?:\*[0-9]*)?"
    r"|mask_gpu:(?:(?:(?-i:0x))?[0-9a-f]*(?:\*[0-9]*)?,)*(?:(?-i:0x))?[0-9a-f]*(?:\*[0-9]*)?"
    r"|(?:per_task|single):(?![ \t]*-[0-9]*[1-9]).*",
    re.IGNORECASE,
)
_GPU_SHORT_LIST = Pattern(r"^(map|mask):", re.IGNORECASE)
_GPU_AS_MEANT = Pattern(r"closest|none|(?:map|mask)(?:_gpu)?:.+|(?:per_task|single):[0-9]+", re.IGNORECASE)
_FREQUENCY = r"(?:(?:memory=)?(?:low|medium|high|highm1|[0-9]+)|verbose)"
_GPU_FREQ = Pattern(rf",+|,*{_FREQUENCY}(?:,+{_FREQUENCY})*,*")

_MEMORY_BINDING: Final = "as in local, rank, none or map_mem:0,1"
_NO_VALUE = Pattern(r",(?![0-9]|[0-9a-fA-F]*(?:,|$))")
_MEM_WORDS: Final = ("p", "prefer", "q", "quiet", "v", "verbose", "no", "none", "rank", "local")
_MEM_SORTS: Final = ("sort", "nosort")
_TIMES = r"\*0*[1-9][0-9]*"
_NODE = rf"(?:[0-9]*{_TIMES}|[0-9]+)"
_MASK = rf"(?:(?-i:0x))?(?:[0-9a-f]*{_TIMES}|[0-9a-f]+)"
_MEM_LIST = Pattern(
    rf"(?:map_?mem[^:=]*[:=],*{_NODE}(?:,+{_NODE})*|mask_?mem[^:=]*[:=],*{_MASK}(?:,+{_MASK})*),*(?:[:=].*)?",
    re.IGNORECASE,
)


def distribution(text: str) -> str:
    """--distribution, normalized to the words of the manual."""
    lowered = text.lower()
    if lowered.startswith("plane"):
        return f"plane={_plane(text)}"
    layout, _, packed = lowered.partition(",")
    parts = [part for part in layout.split(":") if part]
    if not _is_layout(parts) or packed not in ("", *_PACKS):
        raise Problem(f"{text!r} is not a valid distribution", _DISTRIBUTION)
    found = "arbitrary" if parts == ["hostfile"] else ":".join(parts)
    return f"{found},{packed}" if packed else found


def _is_layout(parts: list[str]) -> bool:
    if len(parts) == 1:
        return parts[0] in (*_BY_NODE, *_PACKS, "arbitrary", "hostfile")
    return 1 < len(parts) < 4 and parts[0] in _BY_NODE and all(part in _WITHIN for part in parts[1:])


def _plane(text: str) -> int:
    size = whole_number(text.partition("=")[2])
    if size is None or not 0 < size <= INT_MAX:
        raise Problem(f"{text!r} needs a block size and nothing else", "as in plane=4")
    return size


def gpu_bind(text: str) -> str:
    """--gpu-bind of 22.05, which accepts the first letter of closest and none."""
    return _gpu_binding(text, _bare(text), _GPU_BEGINS)


def gpu_bind_named(text: str) -> str:
    """--gpu-bind of 23.02 and later; map: and mask: since 23.11."""
    return _gpu_binding(text, _GPU_SHORT_LIST.sub(r"\1_gpu:", _bare(text)), _GPU_NAMES)


def _bare(text: str) -> str:
    return text[8:] if text[:8].lower() == "verbose," else text


def _gpu_binding(text: str, bare: str, names: Pattern) -> str:
    if names.fullmatch(bare) is None and _GPU_LIST.fullmatch(bare) is None:
        raise Problem(f"{text!r} is not a valid GPU binding", _GPU_BINDING)
    if _GPU_AS_MEANT.fullmatch(bare) is None:
        raise Problem(
            f"{text!r} is not a valid GPU binding; sbatch reads its beginning", _GPU_BINDING, odd=True
        )
    return text


gpu_freq = matching(_GPU_FREQ, "GPU frequency", "low, medium, high, highm1 or MHz")


def mem_bind(text: str) -> str:
    """--mem-bind: a list of words, which may contain commas before numbers."""
    return _memory_binding(text, (*_MEM_WORDS, *_MEM_SORTS))


def mem_bind_unsorted(text: str) -> str:
    """--mem-bind of 26.05 and later."""
    return _memory_binding(text, _MEM_WORDS)


def _memory_binding(text: str, words: tuple[str, ...]) -> str:
    for part in _NO_VALUE.sub(";", text).split(";"):
        if part.lower() not in words and _MEM_LIST.fullmatch(part) is None:
            raise Problem(f"{text!r} is not a valid memory binding", _MEMORY_BINDING)
    return text
