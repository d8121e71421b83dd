"""The dev cluster's fault API, which other clusters lack."""

from __future__ import annotations

import base64
import json
import ssl

import httpx2
import pytest

from penstock_lab import spec, testing


class DevCluster:
    """Sets faults; clears them at the end of the block."""

    def __init__(self, lab: testing.RunningLab) -> None:
        if testing.kubernetes() != spec.DEV:
            pytest.skip("only the dev cluster can be broken on purpose")
        config = json.loads(lab.run(("kubectl", "config", "view", "--raw", "-o", "json")).stdout)
        cluster, user = config["clusters"][0]["cluster"], config["users"][0]["user"]
        authority = base64.b64decode(cluster["certificate-authority-data"]).decode()
        self._http = httpx2.Client(
            base_url=cluster["server"],
            headers={"Authorization": f"Bearer {user.get('token', '')}"},
            verify=ssl.create_default_context(cadata=authority),
            timeout=60,
            trust_env=False,
        )

    def __enter__(self) -> DevCluster:
        return self

    def __exit__(self, *why: object) -> None:
        self._http.delete("/devcluster/v1/faults").raise_for_status()
        self.leave()

    def leave(self) -> None:
        """Close the connection without clearing the faults."""
        self._http.close()

    def set(self, what: str, fault: dict[str, object]) -> None:
        self._http.put(f"/devcluster/v1/faults/{what}", json=fault).raise_for_status()
