"""Views of a site that were written by hand."""

from __future__ import annotations

import json
from pathlib import Path

import msgspec
import pytest

from penstock import errors
from penstock.model.podpolicy import PartitionPolicy, PodPolicy
from penstock.sbatch import siteviews

POLICY = PodPolicy(
    cluster="hall",
    default_image="base:1",
    allowed_images=("hub/",),
    forbidden_directives=("MOUNT",),
    shared_mounts=("/nas",),
    namespace_pattern="u{uid}",
    kill_wait=40,
    gpu_resources={"mi300": "amd.com/gpu"},
    namespace_quota={},
    partitions={
        "gpu": PartitionPolicy(
            mode="trust", image="own:1", allowed_tolerations=(), allowed_node_labels=("a",)
        ),
        "cpu": PartitionPolicy(),
    },
)
BY_HAND = """
cluster = "hall"
default_image = "base:1"
registries = ["hub/"]
forbidden_directives = ["MOUNT"]
shared_mounts = ["/nas"]
namespace_pattern = "u{uid}"
kill_wait = 40
gpu_resources = {mi300 = "amd.com/gpu"}
[partitions]
gpu = {trusted = true, image = "own:1", allowed_tolerations = [], allowed_node_labels = ["a"]}
cpu = {max_time = "1-0", default = true}
host = {bridged = false, image = "none:1"}
"""


def test_top_level_keys_become_the_policy() -> None:
    """Partitions that are not bridged are not part of it."""
    found = siteviews.decode(BY_HAND.encode(), toml=True)
    assert found.pods == POLICY
    assert list(found.partitions) == ["gpu", "cpu", "host"]
    assert siteviews.decode(msgspec.json.encode(found)) == found


@pytest.mark.parametrize(
    "wrong",
    [
        {"partitions": {"gpu": {"trusted": "yes"}}},
        {"partitions": {"gpu": {"bridged": 1}}},
        {"partitions": {"gpu": {"images": "a"}}},
        {"partitions": {"gpu": "a"}},
        {"partitions": ["gpu"]},
        {"registries": "hub/"},
        {"registry": ["hub/"]},
        {"pods": {"registries": ["hub/"]}},
        {"pods": {}, "registries": ["hub/"]},
        ["gpu"],
    ],
)
def test_invalid_view_is_reported(tmp_path: Path, wrong: object) -> None:
    path = tmp_path / "site.json"
    path.write_text(json.dumps(wrong))
    with pytest.raises(errors.UsageError, match=r"site\.json: (Expected|Object contains unknown field)"):
        siteviews.read(str(path))
