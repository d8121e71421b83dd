"""Bearer tokens from a file, and two groups: admin may do everything, viewer may look, not at secrets."""

from __future__ import annotations

import csv
import hmac
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from penstock import errors
from penstock.devcluster import statuses
from penstock.devcluster.kinds import Kind
from penstock.devcluster.statuses import Json

GROUPS: Final = ("admin", "viewer")
_READING: Final = ("get", "list", "watch")
REVIEWS: Final = "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews"
ACCOUNT_REVIEWS: Final = "/apis/authorization.k8s.io/v1/subjectaccessreviews"


@dataclass(frozen=True, slots=True)
class Identity:
    """Whom a token stands for."""

    user: str
    group: str

    @property
    def is_admin(self) -> bool:
        return self.group == "admin"


def read_tokens(path: Path) -> dict[str, Identity]:
    """Lines `token,user,group`; a mistake is one clear line."""
    try:
        rows = [[word.strip() for word in row] for row in csv.reader(path.read_text().splitlines()) if row]
    except (OSError, csv.Error, UnicodeDecodeError) as error:
        raise errors.UsageError(f"tokens file {path}: {error}") from error
    for number, row in enumerate(rows, start=1):
        if len(row) != 3 or row[2] not in GROUPS or not row[0]:
            hint = "each line is token,user,group with group admin or viewer"
            raise errors.UsageError(f"tokens file {path}: entry {number} is wrong", hint=hint)
    return {token: Identity(user, group) for token, user, group in rows}


class Authenticator:
    """Turns an Authorization header into an identity, and says what that one may do."""

    def __init__(self, tokens: dict[str, Identity]) -> None:
        self._tokens = tokens

    def identify(self, header: str) -> Identity:
        scheme, _, token = header.partition(" ")
        if scheme.lower() == "bearer":
            for known, identity in self._tokens.items():
                if hmac.compare_digest(known.encode(), token.strip().encode()):
                    return identity
        raise statuses.ApiError(401, "Unauthorized", "Unauthorized")

    def named(self, user: str) -> Identity:
        """Somebody by name; service accounts, of which nothing is known here, may do everything."""
        return next((who for who in self._tokens.values() if who.user == user), Identity(user, "admin"))


def authorize(who: Identity, verb: str, kind: Kind, namespace: str | None, name: str) -> None:
    """Refuse what the group may not do, in RBAC's words."""
    if who.is_admin or (verb in _READING and kind.plural != "secrets"):
        return
    place = f' in the namespace "{namespace}"' if namespace else " at the cluster scope"
    why = f'User "{who.user}" cannot {verb} resource "{kind.plural}" in API group "{kind.group}"{place}'
    raise statuses.forbidden(kind, name, why)


def review(who: Identity, question: Json) -> Json:
    """SelfSubjectAccessReview: may I? And SubjectAccessReview: may that one?"""
    asked = question["spec"]["resourceAttributes"]
    allowed = who.is_admin or (asked["verb"] in _READING and asked["resource"] != "secrets")
    return {**question, "status": {"allowed": allowed}}
