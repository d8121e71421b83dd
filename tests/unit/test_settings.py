"""penstockd's settings file."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from penstock import errors
from penstock.daemon import settings

NEW: dict[str, Any] = {"socket": "s", "kubeconfig": "k", "slurm_conf": "c", "hook_uids": [0]}
OLD = NEW | {
    "bridged_partitions": ["gpu"],
    "shared_mounts": ["/nas"],
    "default_image": "base:1",
    "trusted_partitions": ["gpu"],
    "partition_images": {"gpu": "own:1"},
}


def loaded(folder: Path, document: object) -> settings.Settings:
    path = folder / "penstockd.json"
    path.write_text(json.dumps(document))
    return settings.load(path)


def test_policy_is_read_per_partition(tmp_path: Path) -> None:
    """Unknown partitions have the defaults."""
    partitions = {"gpu": {"mode": "trust", "image": "own:1"}, "cpu": {}}
    policy = loaded(tmp_path, NEW | {"pods": {"default_image": "base:1", "partitions": partitions}}).pods
    modes = [policy.partition(name).mode for name in ("gpu", "cpu", "other")]
    assert modes == ["trust", "check", "check"]
    assert [policy.image_in(name) for name in ("gpu", "cpu", "other")] == ["own:1", "base:1", "base:1"]


@pytest.mark.parametrize("document", [OLD, NEW, NEW | {"pods": {"partition_images": {}}}])
def test_settings_of_another_release_are_refused(tmp_path: Path, document: object) -> None:
    """The hint names `penstock apply`: after an update this is the first error."""
    with pytest.raises(errors.UsageError, match=r"penstockd\.json does not fit this release") as raised:
        loaded(tmp_path, document)
    assert "`penstock apply` renews it" in raised.value.hint
