"""The mark in a job's AdminComment, which users cannot write: what job_submit.lua and penstockd have to
remember about a job for as long as Slurm knows it.

penstock 1794858677 requeue=0 avoids=n1,n2 until=1794858799

The second of submission; the owner's choice about requeueing (absent: the site's default); nodes that
penstockd put on its ExcNodeList; until when penstockd makes it wait.
"""

from __future__ import annotations

import dataclasses
import re

from penstock import wellknown

_MARK = re.compile(
    rf"(?<![\w=.-]){wellknown.ADMIN_MARK}(?: (?P<submission>\d{{1,15}})(?: requeue=(?P<requeue>[01]))?"
    r"(?: avoids=(?P<avoids>[\w.,-]+))?(?: until=(?P<until>\d{1,15}))?)?(?![\w=.-])"
)


@dataclasses.dataclass(frozen=True, kw_only=True)
class Mark:
    """The mark of a job that was submitted through job_submit.lua."""

    submission: str = ""  # equal for all attempts of a job, different if the job id is reused
    requeue: bool | None = None
    avoids: tuple[str, ...] = ()
    until: int = 0

    def __str__(self) -> str:
        words = [wellknown.ADMIN_MARK, self.submission]
        words += [f"requeue={int(self.requeue)}"] if self.requeue is not None else []
        words += [f"avoids={','.join(self.avoids)}"] if self.avoids else []
        words += [f"until={self.until}"] if self.until else []
        return " ".join(word for word in words if word)


def read(comment: str) -> Mark | None:
    """The mark in an AdminComment, or None."""
    found = _MARK.search(comment)
    if found is None:
        return None
    return Mark(
        submission=found["submission"] or "",
        requeue={"0": False, "1": True}.get(found["requeue"] or ""),
        avoids=tuple((found["avoids"] or "").split(",")) if found["avoids"] else (),
        until=int(found["until"] or 0),
    )


def write(mark: Mark, comment: str) -> str:
    """The AdminComment with its mark replaced; the rest is the site's."""
    return _MARK.sub(lambda _: str(mark), comment, count=1)
