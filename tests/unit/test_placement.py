"""Which nodes a script may ask for itself, and what penstockd says of others."""

from __future__ import annotations

import pytest

from tests.unit import fakes, test_sessions
from tests.unit.test_sessions import World

world = test_sessions.world


@pytest.mark.parametrize(
    ("line", "words"),
    [
        (b"TOLERATION=node-role.kubernetes.io/control-plane", b"(allowed in this partition: spot, pool=a)"),
        (b"TOLERATION=pool", b"#K8S_TOLERATION=pool is not allowed here"),
        (b"TOLERATION=pool=b:NoSchedule", b"#K8S_TOLERATION=pool=b is not allowed here"),
        (b"NODE_SELECTOR=kubernetes.io/hostname=n9", b"hostname=n9 is not allowed here (none is allowed in"),
        (b"TOLERATION=pool=a", b""),
        (b"TOLERATION=spot=yes:NoExecute", b""),
    ],
)
async def test_trusted_scripts_are_limited_to_allowed_taints_and_labels(
    world: World, line: bytes, words: bytes
) -> None:
    world.bridge.context.settings = fakes.policy("gpu", mode="trust", allowed_tolerations=("spot", "pool=a"))
    world.run(7)
    peer = await test_sessions.connect(world)
    test_sessions.launch(peer, 7, script=b"#!/x\n#K8S_" + line + b"\ntrue\n")
    answer = await peer.hear()
    if not words:
        assert answer == [b"started"]
        return
    assert words in answer[1]
    assert await peer.hear() == [b"exit", b"1"]
    assert not world.kube.calls
