"""A job's working directory and HOME in its pod, with and without shared mounts."""

from __future__ import annotations

import dataclasses

import pytest

from penstock.model.jobspec import Mount, PodSpec
from penstock.render import pods, secrets, workdirs
from tests.unit import fakes

SHARED = ("/nas", "/scratch")
OWN = workdirs.OWN_HOME


@pytest.mark.parametrize(
    ("workdir", "pod", "found", "lost"),
    [
        (b"/nas/home/alice", PodSpec(), b"/nas/home/alice", b""),
        (b"/scratch", PodSpec(), b"/scratch", b""),
        (b"/home/alice", PodSpec(), b"/tmp", b"/home/alice"),
        (b"/nasty", PodSpec(), b"/tmp", b"/nasty"),
        (b"/tmp", PodSpec(), b"/tmp", b""),
        (b"/home/alice", PodSpec(workdir="/app"), b"/app", b""),
        (b"/data/x", PodSpec(mounts=(Mount("/nas/d", "/data"),)), b"/data/x", b""),
        (b"/home/alice", PodSpec(own_entrypoint=True), b"/tmp", b""),
    ],
)
def test_workdir(workdir: bytes, pod: PodSpec, found: bytes, lost: bytes) -> None:
    """The script's own choice, the submit directory if the pod sees it, else /tmp, which is reported."""
    request = dataclasses.replace(fakes.REQUEST, workdir=workdir, pod=pod)
    assert workdirs.workdir_of(request, SHARED) == found
    assert workdirs.lost_workdir(request, SHARED) == lost


@pytest.mark.parametrize(
    ("home", "expected"),
    [
        ("/nas/home/alice", workdirs.Home("/nas/home/alice", made=False)),
        ("/home/alice", workdirs.Home("/home/alice", made=True)),
        ("/var/lib/service", workdirs.Home("/var/lib/service", made=True)),
        *((home, workdirs.Home(OWN, made=True)) for home in ("", "/", "/root", "/nonexistent", "/usr/games")),
        *((home, workdirs.Home(OWN, made=True)) for home in ("/home/../etc", "/home/a:b", "/home/a\nb")),
        *(
            (home, workdirs.Home(OWN, made=True))
            for home in ("/proc/self", "/penstock/x", "/penstock-run/x", "relative/x")
        ),
    ],
)
def test_home(home: str, expected: workdirs.Home) -> None:
    """The user's own if pods see it, else a volume in the same place, else OWN_HOME."""
    owner = dataclasses.replace(fakes.OWNER, home=home)
    assert workdirs.home_of(owner, PodSpec(), SHARED) == expected


def test_home_does_not_cover_a_shared_mount() -> None:
    """Also if the script mounts something in its home, or the home itself."""
    owner = dataclasses.replace(fakes.OWNER, home="/home/alice")
    assert workdirs.home_of(owner, PodSpec(), ("/home/alice/nas",)).path == OWN
    mounted = PodSpec(mounts=(Mount("/nas/a", "/home/alice"),))
    assert workdirs.home_of(owner, mounted, SHARED) == workdirs.Home("/home/alice", made=False)


def test_pod_and_environment_agree_on_home() -> None:
    """Rank 0 has the volume at HOME; other ranks run nothing and have none."""
    owner = dataclasses.replace(fakes.OWNER, home="/home/alice")
    allocation = fakes.allocation(on=("n1", "n2"))

    def mounts(rank: int) -> dict[str, str]:
        pod = pods.render_pod(allocation, rank, owner=owner, request=fakes.REQUEST, policy=fakes.SETTINGS)
        assert ({"name": "home", "emptyDir": {}} in pod["spec"]["volumes"]) == (rank == 0)
        return {each["name"]: each["mountPath"] for each in pod["spec"]["containers"][0]["volumeMounts"]}

    assert mounts(0)["home"] == "/home/alice"
    assert "home" not in mounts(1)
    home = workdirs.home_of(owner, PodSpec(), fakes.SETTINGS.shared_mounts)
    lines = secrets.secret_files(fakes.REQUEST, fakes.SETTINGS, home)["environment"].split(b"\n")
    assert b"export HOME='/home/alice'" in lines
    assert b"export TMPDIR='/tmp'" in lines


def test_home_exported_by_name_is_the_users() -> None:
    """As for every variable of the host."""
    entries = (b"HOME=/opt/me", b"TMPDIR=/opt/t", b"SLURM_EXPORT_ENV=HOME,TMPDIR")
    request = dataclasses.replace(fakes.REQUEST, environment=entries)
    home = workdirs.Home("/home/alice", made=True)
    lines = secrets.secret_files(request, fakes.SETTINGS, home)["environment"].split(b"\n")
    assert {b"export HOME='/opt/me'", b"export TMPDIR='/opt/t'"} < set(lines)
    assert b"export HOME='/home/alice'" not in lines
