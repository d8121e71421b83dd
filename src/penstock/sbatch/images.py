"""Image references by the OCI rules: [registry[:port]/]path[:tag][@digest].

The first part is a registry if it has a dot or a colon or is `localhost`; otherwise the image is on
docker.io, without a folder in docker.io/library. Sites allow images by this full name, so that short names do
not bypass the check.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Final

import msgspec

from penstock.sbatch.patterns import Pattern
from penstock.sbatch.values.problem import Problem

DEFAULT_REGISTRY: Final = "docker.io"
_HOST = Pattern(
    r"(?:[a-zA-Z0-9](?:[a-zA-Z0-9-]*[a-zA-Z0-9])?)(?:\.[a-zA-Z0-9](?:[a-zA-Z0-9-]*[a-zA-Z0-9])?)*(?::[0-9]{1,5})?"
)
_IPV6 = Pattern(r"\[[0-9a-fA-F:]+\](?::[0-9]{1,5})?")
_COMPONENT = Pattern(r"[a-z0-9]+(?:(?:\.|_|__|-+)[a-z0-9]+)*")
_TAG = Pattern(r"[A-Za-z0-9_][A-Za-z0-9_.-]{0,127}")
_DIGEST = Pattern(r"[a-z0-9]+(?:[.+_-][a-z0-9]+)*:[0-9a-fA-F]{32,}")


class Image(msgspec.Struct, frozen=True):
    """A parsed reference; `registry` is empty for the default one."""

    registry: str
    path: str
    tag: str = ""
    digest: str = ""


def parse(text: str) -> Image:
    if not text:
        raise Problem("the image is empty", "as in registry.example:5000/team/app:1.2")
    if text.startswith(("http://", "https://", "docker://")):
        raise Problem(f"{text!r} is a URL", f"write {text.split('//', 1)[1]}")
    body, at, digest = text.partition("@")
    if at and not _valid_digest(digest):
        raise Problem(f"{digest!r} is not a valid digest", "sha256: and 64 hexadecimal digits")
    registry, path = _split_registry(body)
    path, colon, tag = path.partition(":")
    if colon and not _TAG.fullmatch(tag):
        raise Problem(
            f"{tag!r} is not a valid tag", "letters, digits, dots, dashes and underscores, 128 at most"
        )
    _check_path(path, text)
    return Image(registry, path, tag, digest)


def full_name(text: str) -> str:
    """The reference with its registry and, on docker.io, its folder."""
    first, slash, rest = text.partition("/")
    if not slash or not _is_host(first):
        first, rest = DEFAULT_REGISTRY, text
    if first == DEFAULT_REGISTRY and "/" not in rest:
        rest = f"library/{rest}"
    return f"{first}/{rest}"


def is_allowed(image: str, prefixes: Iterable[str]) -> bool:
    """Whether the image begins with one of the prefixes, part by part; without prefixes all are allowed."""
    wanted, given = full_name(image), [full for prefix in prefixes for full in _full_prefixes(prefix)]
    return not given or any(_begins(wanted, prefix) for prefix in given)


def _full_prefixes(prefix: str) -> Iterator[str]:
    """Full names that a prefix may mean.

    `registry.example.org` is a registry, `debian` an image, `team/` a folder; `hub:5000` may be a registry
    with a port or an image with a tag, `docker.io/debian` an image or a folder.
    """
    first, slash, rest = prefix.partition("/")
    name, _, port = first.partition(":")
    dotted = "." in name or name == "localhost"
    if slash and _is_host(first):
        yield prefix
    if not slash and (dotted or port.isdecimal()):
        yield f"{prefix}/"
    on_default = first == DEFAULT_REGISTRY and bool(rest) and "/" not in rest
    if on_default or not (dotted or (slash and _is_host(first))):
        yield full_name(prefix)


def _begins(image: str, prefix: str) -> bool:
    if image == prefix or prefix.endswith(("/", ":")):
        return image.startswith(prefix)
    return image.startswith(tuple(f"{prefix}{sign}" for sign in "/:@"))


def _valid_digest(digest: str) -> bool:
    if not _DIGEST.fullmatch(digest):
        return False
    return not digest.startswith("sha256:") or len(digest) == 71


def _is_host(first: str) -> bool:
    return "." in first or ":" in first or first == "localhost"


def _split_registry(body: str) -> tuple[str, str]:
    first, slash, rest = body.partition("/")
    if not slash or not _is_host(first):
        return "", body
    if not _HOST.fullmatch(first) and not _IPV6.fullmatch(first):
        raise Problem(f"{first!r} is not a valid registry", "host or host:port")
    port = first.rpartition(":")[2] if not first.endswith("]") and ":" in first else ""
    if port and not 0 < int(port) < 65536:
        raise Problem(f"{port!r} is not a valid port")
    return first, rest


def _check_path(path: str, text: str) -> None:
    if not path:
        raise Problem(f"{text!r} has a registry but no image")
    if len(path) > 255:
        raise Problem("the image's name is longer than 255 characters")
    for component in path.split("/"):
        if not _COMPONENT.fullmatch(component):
            is_lower = component.lower() == component
            hint = "letters and digits, joined by . _ or -" if is_lower else "lower case only"
            raise Problem(f"{component!r} in {text!r} is not valid in an image's name", hint)
