"""The order in which records are collected: attempts of a job in sequence, users in turn."""

from __future__ import annotations

import collections
from collections.abc import Iterable, Iterator, Mapping

import msgspec

from penstock.model import attempts, numbers


class Head(msgspec.Struct, frozen=True):
    """The part of a record that the collector's loop needs."""

    job_id: int
    restart: int
    uid: int
    launched: float
    closed: float


def first_attempts(names: Iterable[str]) -> list[str]:
    """The lowest attempt of each job, since a job's attempts are collected in order."""
    first: dict[int, int] = {}
    for name in names:
        words = name.removesuffix(".json").partition("-")
        job, restart = numbers.natural(words[0]), numbers.natural(words[2])
        if name.endswith(".json") and job is not None and restart is not None:
            first[job] = min(restart, first.get(job, restart))
    return [attempts.record_name(job, restart) for job, restart in sorted(first.items())]


def in_turn(records: Mapping[str, Head], served: Mapping[int, int]) -> Iterator[tuple[str, Head]]:
    """Round robin over users, the least recently served first; each user's records as they ended."""
    queues: dict[int, collections.deque[tuple[str, Head]]] = {}
    for name, head in sorted(records.items(), key=lambda item: item[1].closed):
        queues.setdefault(head.uid, collections.deque()).append((name, head))
    while queues:
        for uid in sorted(queues, key=lambda uid: served.get(uid, 0)):
            yield queues[uid].popleft()
            if not queues[uid]:
                del queues[uid]
