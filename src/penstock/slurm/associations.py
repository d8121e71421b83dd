"""Accounts, users and QOS in Slurm's accounting, through sacctmgr."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Mapping, Sequence

from penstock import errors
from penstock.slurm import commands

SECONDS = 60.0
FORMAT = "account,user,fairshare,grptresmins,partition"
Association = tuple[str, str]  # account and user; "" for the account itself
Limits = dict[str, str]


@dataclasses.dataclass(frozen=True)
class Associations:
    """The accounting of one Slurm."""

    slurm_conf: str
    path: str  # PATH for sacctmgr

    async def of(self, cluster: str) -> dict[Association, Limits]:
        """Limits of every account and user on this cluster."""
        return parse(await self._show("associations", f"cluster={cluster}", f"format={FORMAT}"))

    async def change(self, words: Sequence[str]) -> None:
        """Run sacctmgr with words from `changes`."""
        await self._sacctmgr("--immediate", *words)

    async def qos_names(self) -> frozenset[str]:
        return frozenset((await self._show("qos", "format=name")).split())

    async def _show(self, *words: str) -> str:
        return await self._sacctmgr("--noheader", "--parsable2", "show", *words)

    async def _sacctmgr(self, *words: str) -> str:
        environment = commands.surroundings(self.slurm_conf) | {"PATH": self.path}
        done = await commands.output(("sacctmgr", *words), environment=environment, within=SECONDS)
        if done.code != 0 and "Nothing new added" not in done.out:
            said = (done.err or done.out).strip().rpartition("\n")[2]
            raise errors.SlurmError(f"sacctmgr {' '.join(words)}: {said.strip() or 'failed'}")
        return done.out


def parse(text: str) -> dict[Association, Limits]:
    """Output of `sacctmgr show associations` with FORMAT, without limits per partition."""
    found: dict[Association, Limits] = {}
    for line in text.split("\n"):
        words = line.split("|")
        if len(words) >= 5 and not words[4]:
            account, user, fairshare, minutes = words[:4]
            found[account, user] = {"fairshare": fairshare, "grptresmins": minutes}
    return found


def changes(
    goal: Mapping[Association, Limits], live: Mapping[Association, Limits], *, cluster: str
) -> Iterator[tuple[str, ...]]:
    """sacctmgr's words that bring `live` to `goal`; without `cluster=` they would change all clusters."""
    here = f"cluster={cluster}"
    for (account, user), limits in goal.items():
        known = live.get((account, user))
        if known is None:
            new = ("user", user, f"account={account}") if user else ("account", account)
            yield ("add", *new, here, *(f"{key}={value}" for key, value in limits.items()))
            continue
        different = tuple(  # limits of other TRES are kept
            f"{key}={value}"
            for key, value in limits.items()
            if not set(value.split(",")) <= set(known[key].split(","))
        )
        if different:
            where = (f"name={user}", f"account={account}") if user else (f"name={account}",)
            yield ("modify", "user" if user else "account", "where", *where, here, "set", *different)
