"""Launches that are refused, and launchers that attach to what is left."""

from __future__ import annotations

import pytest

from penstock import errors
from penstock.render import pods as rendering
from penstock.render import secrets
from tests.unit import fakes, test_sessions
from tests.unit.test_sessions import World, connect, launch

world = test_sessions.world


async def test_another_uids_job_is_refused(world: World) -> None:
    world.slurm.add(fakes.allocation(8))
    peer = await connect(world)
    launch(peer, 8)
    assert (await peer.hear())[0] == b"note"
    assert await peer.hear() == [b"exit", b"126"]
    assert not world.kube.calls


async def test_a_wrong_directive_fails_the_job(world: World) -> None:
    """Nothing is created."""
    world.run(7)
    peer = await connect(world)
    launch(peer, 7, script=b"#!/x\n#K8S_IMAGES=x\ntrue\n")
    assert b"#K8S_IMAGES is not known" in (await peer.hear())[1]
    assert await peer.hear() == [b"exit", b"1"]
    assert not world.kube.calls


@pytest.mark.parametrize("line", [b"ENV=CITY=Z\xfcrich", b"WORKDIR=/nas/M\xfc", b"COMMAND=echo \xfc"])
async def test_a_value_that_is_not_utf8_fails_the_job(world: World, line: bytes) -> None:
    """With line and remedy; nothing is created."""
    world.run(7)
    peer = await connect(world)
    launch(peer, 7, script=b"#!/x\n#K8S_" + line + b"\ntrue\n")
    verb, text = await peer.hear()
    assert verb == b"note"
    assert text.startswith(b"not started: line 2: #K8S_")
    assert text.endswith(b"byte 0xfc of the value is not UTF-8 (save the script as UTF-8)")
    assert await peer.hear() == [b"exit", b"1"]
    assert not world.kube.calls


@pytest.mark.parametrize(
    ("script", "words"),
    [
        (b"#!/x\n#K8S_IMAGE=hub.example.evil/a\ntrue\n", b"image hub.example.evil/a is not allowed"),
        (b"#!/x\n#K8S_IMAGE=debian:12\ntrue\n", b"image docker.io/library/debian:12 is not allowed"),
        (b"#!/x\n#K8S_IMAGE=hub.example/a\n#K8S_MOUNT=/a\ntrue\n", b"line 3: #K8S_MOUNT is not allowed"),
    ],
)
async def test_a_forbidden_directive_fails_the_job(world: World, script: bytes, words: bytes) -> None:
    """Whatever was checked at submission."""
    world.allow("hub.example/", forbidden="MOUNT")
    world.run(7)
    peer = await connect(world)
    launch(peer, 7, script=script)
    assert words in (await peer.hear())[1]
    assert await peer.hear() == [b"exit", b"1"]
    assert not world.kube.calls


async def test_a_rendering_error_fails_the_job_and_leaves_no_pod(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    """After an error a launcher would try again forever."""

    def fails(*_: object, **__: object) -> rendering.Manifest:
        raise ValueError("no such letter")

    monkeypatch.setattr(secrets, "render_secret", fails)
    world.run(7)
    peer = await connect(world)
    launch(peer, 7)
    assert await peer.hear() == [b"note", b"not started: its objects cannot be created: no such letter"]
    assert await peer.hear() == [b"exit", b"1"]
    assert ("create", "pods") in [call[:2] for call in world.kube.calls]
    assert not world.kube.names("pods")


async def test_new_site_rules_do_not_end_a_running_job(world: World) -> None:
    world.run(7)
    peer = await connect(world)
    script = b"#!/x\n#K8S_IMAGE=debian:12\n#K8S_SHM_SIZE=1G\ntrue\n"
    launch(peer, 7, script=script)
    assert await peer.hear() == [b"started"]
    world.allow("hub.example/", forbidden="SHM_SIZE")
    peer = await connect(world)
    launch(peer, 7, attach="1", script=script)
    assert await peer.hear() == [b"started"]
    world.end(fakes.ended(7))
    assert await peer.hear() == [b"exit", b"7"]


async def test_attaching_without_a_pod_ends_the_job(world: World) -> None:
    """It is never started a second time."""
    world.run(7)
    peer = await connect(world)
    launch(peer, 7, attach="1")
    assert (await peer.hear())[0] == b"note"
    assert await peer.hear() == [b"exit", b"1"]
    assert not [call for call in world.kube.calls if call[0] == "create"]


async def test_a_pod_lost_after_an_unanswered_binding_is_not_created_again(world: World) -> None:
    """The script may have run: after the announcement no other gang is created."""
    world.run(7)

    def bound_and_deleted(key: tuple[str, str, str]) -> None:
        del world.kube.objects[key]
        raise errors.KubeUnavailable("the answer was lost")

    world.kube.on_bind = bound_and_deleted
    peer = await connect(world)
    launch(peer, 7)
    assert await peer.hear() == [b"started"]
    assert await peer.hear() == [b"note", b"the job's pod was deleted from outside"]
    assert await peer.hear() == [b"exit", b"1"]
    assert len([call for call in world.kube.calls if call[:2] == ("create", "pods")]) == 1
