"""Images that a site's prefixes allow."""

from __future__ import annotations

import pytest

from penstock import errors
from penstock.cli import mkinst
from penstock.model.podpolicy import PodPolicy
from penstock.model.siteview import SiteView
from penstock.sbatch import compiler, images, poddirectives

DIGEST = "sha256:" + "0" * 64


@pytest.mark.parametrize(
    ("prefix", "image"),
    [
        ("registry.example.org", "registry.example.org/a"),
        ("registry.example.org/", "registry.example.org/a/b:1"),
        ("registry.example.org/team", "registry.example.org/team/app:1"),
        ("registry.example.org/team/", "registry.example.org/team/app"),
        ("registry.example.org/team/app", "registry.example.org/team/app"),
        ("registry.example.org/team/app", "registry.example.org/team/app:1"),
        ("registry.example.org/team/app", f"registry.example.org/team/app@{DIGEST}"),
        ("registry.example.org/team/app:", "registry.example.org/team/app:1"),
        ("hub.local:5000", "hub.local:5000/a"),
        ("hub:5000/", "hub:5000/a"),
        ("hub:5000", "hub:5000/team/app:1"),
        ("docker.io/debian", "debian:12"),
        ("docker.io/debian", "docker.io/debian:12"),
        ("localhost", "localhost/a"),
        ("docker.io", "debian:12"),
        ("docker.io/", "team/app"),
        ("docker.io/library/", "debian:12"),
        ("docker.io/library/debian", "docker.io/debian:12"),
        ("docker.io/team", "team/app:1"),
        ("debian", "debian:12"),
        ("debian:12", "docker.io/library/debian:12"),
        ("team/", "docker.io/team/app"),
    ],
)
def test_prefix_allows(prefix: str, image: str) -> None:
    """Whether names are short or in full."""
    assert images.is_allowed(image, ("elsewhere.example", prefix))


@pytest.mark.parametrize(
    ("prefix", "image"),
    [
        ("registry.example.org", "registry.example.org.evil/a"),
        ("registry.example.org", "registry.example.org:8080/a"),
        ("registry.example.org", "registry.example.org:1"),
        ("registry.example.org/team", "registry.example.org/teams/app"),
        ("registry.example.org/team", "registry.example.org/other/team"),
        ("registry.example.org/team/app", "registry.example.org/team/application"),
        ("registry.example.org/", "debian:12"),
        ("docker.io/library/", "team/app"),
        ("debian", "debian-evil"),
        ("debian", "evil.example/debian"),
        ("debian:12", "debian:123"),
        ("team/", "evil.example/team/app"),
    ],
)
def test_prefix_does_not_allow(prefix: str, image: str) -> None:
    """A prefix ends where a part of the name ends, and short names do not bypass it."""
    assert not images.is_allowed(image, (prefix,))


def test_no_prefixes_allow_all() -> None:
    assert images.is_allowed("debian", ())


@pytest.mark.parametrize(
    "prefix", ["registry.example.org", "registry.example.org/", "registry.example.org/a"]
)
def test_commands_apply_the_same_prefixes(prefix: str) -> None:
    """`validate` and `mkinst` agree, and show a refused image in full."""
    site = SiteView(pods=PodPolicy(allowed_images=(prefix,)))
    context = compiler.Context(site=site)
    for image, allowed in (("registry.example.org/a/b:1", True), ("registry.example.org.evil/a/b", False)):
        script = f"#!/bin/sh\n#K8S_IMAGE={image}\ntrue\n"
        done = compiler.compile_script(script.encode(), context=context)
        assert done.ok is allowed
        if allowed:
            assert mkinst._image(image, site) == image
        else:
            with pytest.raises(errors.UsageError, match=r"registry\.example\.org\.evil/a/b is not allowed"):
                mkinst._image(image, site)


def test_forbidden_directive_is_reported_with_its_line() -> None:
    script = b"#!/bin/sh\n#K8S_IMAGE=a/b\n#K8S_MOUNT=/a\ntrue\n"
    assert poddirectives.pod_of(script, forbidden=("SHM_SIZE",)).image == "a/b"
    with pytest.raises(errors.UsageError, match="line 3: #K8S_MOUNT is not allowed at this site"):
        poddirectives.pod_of(script, forbidden=("MOUNT",))
