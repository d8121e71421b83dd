"""Namespaces per user or per account: sharing, refused names, quotas."""

from __future__ import annotations

import dataclasses
from pathlib import Path

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.unit import fakes

from penstock import errors
from penstock.model import launches, namespacepattern
from penstock.model.podpolicy import PodPolicy
from penstock.render import namespaces as rendering
from penstock.site import kubeobjects, loader, schema, sitenamespaces
from penstock.site.findings import SiteError

GOOD = Path(__file__).with_name("good.yaml").read_text()
USERS = GOOD[GOOD.index("    users:\n") : GOOD.index("timeouts:\n")]
TEAMS = (("user-{user}", "team-{account}"), (USERS, "    quota: {pods: 9}\n"))
NAMES = st.text(st.sampled_from("ab1-_A."), min_size=1, max_size=8)


def site(*replacements: tuple[str, str]) -> schema.Site:
    text = GOOD
    for old, new in replacements:
        assert old in text
        text = text.replace(old, new)
    return loader.loads(text.encode())


def mistakes(*replacements: tuple[str, str]) -> str:
    with pytest.raises(SiteError) as caught:
        site(*replacements)
    return caught.value.message


def test_account_has_a_namespace_with_quota() -> None:
    """One for all its users, with the same objects as a user's."""
    found = site(*TEAMS)
    quota = found.accounts["research"].quota
    assert quota is not None
    assert sitenamespaces.all_homes(found) == {"team-research": quota}
    there = [
        each["kind"]
        for each in kubeobjects.all_objects(found, {})
        if "team-research" in (each["metadata"].get("namespace"), each["metadata"]["name"])
    ]
    assert there == ["Namespace", "ResourceQuota", "LimitRange", "NetworkPolicy"]


def test_site_quota_applies_to_accounts_without_one() -> None:
    plain = (
        TEAMS[0],
        (USERS, "  other: {quota: {pods: 3}}\n"),
        ("timeouts:\n", "quota: {pods: 7}\ntimeouts:\n"),
    )
    found = sitenamespaces.all_homes(site(*plain))
    assert {name: quota.pods for name, quota in found.items() if quota} == {
        "team-research": 7,
        "team-other": 3,
    }


def test_namespaces_by_uid_are_left_to_penstockd() -> None:
    """The site file has names only."""
    assert (
        sitenamespaces.all_homes(site(("user-{user}", "u{uid}"), ("{quota: {cpus: 128, memory: 1Ti}}", "{}")))
        == {}
    )


@pytest.mark.parametrize(
    ("account", "pattern", "words"),
    [
        ("Teaching_2", "team-{account}", "its namespace would be 'team-Teaching_2', which is not a valid"),
        ("x" * 60, "team-{account}", "which is not a valid name in Kubernetes; small letters"),
        ("kube-system", "{account}", "'kube-system', which is reserved"),
        ("default", "{account}", "'default', which is reserved"),
        ("penstock-system", "{account}", "'penstock-system', which is reserved"),
    ],
)
def test_account_with_an_invalid_namespace_is_refused(account: str, pattern: str, words: str) -> None:
    said = mistakes(("user-{user}", f'"{pattern}"'), (USERS, f"  {account}: {{}}\n"))
    assert f"accounts.{account}: " in said
    assert words in said


def test_quota_of_a_user_without_a_kubernetes_name_is_refused() -> None:
    """The namespace has the uid, which the file does not know."""
    assert "the namespace has the uid instead" in mistakes(("alice:", "Alice:"))


OWNER = dataclasses.replace(fakes.OWNER, account="research")


@pytest.mark.parametrize(
    ("pattern", "owner", "expected"),
    [
        ("team-{account}", OWNER, "team-research"),
        ("{cluster}-{account}", OWNER, "hall-research"),
        ("{account}-{uid}", OWNER, "research-1001"),
        ("user-{user}", dataclasses.replace(OWNER, name="Bob_S"), "user-1001"),
        ("user-{user}", dataclasses.replace(OWNER, name="42"), "user-1001"),
    ],
)
def test_namespace_of_a_job(pattern: str, owner: launches.Owner, expected: str) -> None:
    """By the account that Slurm charges; a user whose name looks like a uid gets his own uid."""
    policy = msgspec.structs.replace(fakes.SETTINGS, namespace_pattern=pattern, cluster="hall")
    assert namespacepattern.namespace_of(owner, policy) == expected


@pytest.mark.parametrize(
    ("pattern", "account", "words"),
    [
        ("team-{account}", "", "the job has no account"),
        ("team-{account}", "a_b", "would have the namespace 'team-a_b'"),
        ("{account}", "kube-system", "'kube-system' is not for jobs"),
        ("{account}", "penstock-system", "'penstock-system' is not for jobs"),
    ],
)
def test_job_without_a_valid_namespace_is_refused(pattern: str, account: str, words: str) -> None:
    """No pods get into the cluster's own namespaces, whatever an account is called."""
    policy = msgspec.structs.replace(
        fakes.SETTINGS, namespace_pattern=pattern, reserved_namespaces=("penstock-system",)
    )
    with pytest.raises(errors.UsageError, match=words):
        namespacepattern.namespace_of(dataclasses.replace(OWNER, account=account), policy)


def test_shared_namespace_has_the_accounts_label() -> None:
    made = rendering.render_namespace(OWNER, PodPolicy(namespace_pattern="team-{account}"))
    assert made["metadata"]["labels"] == {"penstock.dev/account": "research"}


@given(
    st.sampled_from(["user-{user}", "u{uid}", "team-{account}", "{account}-{uid}", "{uid}-{account}"]),
    st.lists(
        st.tuples(NAMES, st.integers(1, 99), NAMES), min_size=2, max_size=2, unique_by=lambda one: one[1]
    ),
)
def test_owners_never_share_by_accident(pattern: str, owners: list[tuple[str, int, str]]) -> None:
    """Different users and accounts have different namespaces with every allowed pattern."""
    shared = namespacepattern.is_shared(pattern)
    found: list[str] = []
    for user, uid, account in owners:
        try:
            owner = launches.Owner(name=user, uid=uid, gid=uid, groups=(), account=account)
            found.append(
                namespacepattern.namespace_of(owner, PodPolicy(namespace_pattern=pattern, cluster="c"))
            )
        except errors.UsageError:
            return
    names = {owner[0] for owner in owners}
    whose = {owner[2] for owner in owners} if shared else {str(owner[1]) for owner in owners}
    if len(names) == 2 or shared:
        assert len(set(found)) == len(whose)
