"""Sites and facts for tests of rendering and planning, without a live site."""

from __future__ import annotations

from pathlib import Path

from penstock.install import facts
from penstock.model import resources
from penstock.render import includes
from penstock.site import clusters, loader, nodegroups, schema

GOOD = Path(__file__).parents[1] / "sitefile" / "good.yaml"
MEMBERS = tuple(
    nodegroups.Member(
        name=f"s{number}",
        labels={"pool": "small"},
        allocatable=resources.Amount(millicpus=7900, memory=30 * 2**30, gpus=0),
    )
    for number in (1, 2)
)
EXISTING = includes.Existing(
    settings={
        "epilog": "/etc/slurm/epilog.d/*",
        "jobsubmitplugins": "throttle",
        "authinfo": "socket=/run/munge/munge.socket.2,cred_expire=120",
        "accountingstoragetype": "accounting_storage/slurmdbd",
    },
    nodes=frozenset({"n1", "n2"}),
    partitions=frozenset({"cpu"}),
)


def site(*replacements: tuple[str, str]) -> schema.Site:
    """The valid site file, with replacements."""
    text = GOOD.read_text()
    for old, new in replacements:
        assert old in text
        text = text.replace(old, new)
    return loader.loads(text.encode())


def known(
    of: schema.Site, *, existing: includes.Existing | None = EXISTING, site_lua: bool = False
) -> facts.Facts:
    """Facts without a live site."""
    return facts.Facts(
        release=(22, 5),
        groups=nodegroups.groups(of, MEMBERS),
        existing=existing if of.slurm.manage == "include" else None,
        slurm_uid=64030,
        site_lua=site_lua,
        default_partition=clusters.default_partition(of),
        password="from a file" if of.slurm.manage == "whole" else "",
    )
