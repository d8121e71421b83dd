"""Plans without Slurm and Kubernetes: install, change, uninstall, with edits in between."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from tests.install.places import CONF, LUA, Place

from penstock import errors


@pytest.fixture
def place(tmp_path: Path) -> Place:
    """An existing Slurm with its own hooks and Lua."""
    if os.geteuid() != 0:
        pytest.skip("files get owners: needs root")
    return Place(tmp_path)


def test_uninstall_restores_files_byte_for_byte(place: Place) -> None:
    """Modes included; the plan lists every file."""
    before = place.seen()
    plan = place.install()
    words = {Path(name).name: word for word, _, name in plan.lines()}
    assert (words["slurm.conf"], words["penstock.conf"], words["slurmctld"]) == ("change", "add", "restart")
    assert words["penstock-slurmd@.service"] == words["gpu1"] == "add"
    assert place.conf.read_text().count("#penstock# ") == 2
    assert (place.etc / "job_submit.site.lua").read_text() == LUA
    place.uninstall()
    assert place.seen() == before
    assert place.restarts == 2


def test_second_plan_is_empty(place: Place) -> None:
    place.install()
    with place.store.locked():
        assert place.planner.install().empty


def test_edits_between_install_and_uninstall_stay(place: Place) -> None:
    """In slurm.conf and in the site's own Lua."""
    place.install()
    place.conf.write_text(place.conf.read_text() + "KillWait=45\n")
    (place.etc / "job_submit.site.lua").write_text(f"-- newer\n{LUA}")
    with place.store.locked():
        assert [Path(change.path).name for change in place.planner.install().files] == ["slurm.conf"]
    place.uninstall()
    assert place.conf.read_text() == f"{CONF}KillWait=45\n"
    assert (place.etc / "job_submit.lua").read_text() == f"-- newer\n{LUA}"


def test_edits_before_a_second_apply_stay(place: Place) -> None:
    place.install()
    place.conf.write_text(place.conf.read_text() + "KillWait=45\n")
    place.install()
    place.uninstall()
    assert place.conf.read_text() == f"{CONF}KillWait=45\n"


def test_slurm_conf_without_a_final_newline_is_restored(place: Place) -> None:
    place.conf.write_text(CONF.rstrip("\n"))
    before = place.seen()
    place.install()
    place.install()
    place.uninstall()
    assert place.seen() == before


def test_lua_that_replaced_ours_becomes_the_sites(place: Place) -> None:
    """Deploying job_submit.lua by other means does not disable the bridge for long."""
    place.install()
    (place.etc / "job_submit.lua").write_text("-- deployed again\n")
    place.install()
    assert (place.etc / "job_submit.site.lua").read_text() == "-- deployed again\n"
    assert "job_submit.penstock.lua" in (place.etc / "job_submit.lua").read_text()


def test_what_is_removed_from_the_site_file_is_removed_from_slurm(place: Place) -> None:
    before = place.seen()
    place.install()
    new = '  new: {nodes: "v[1-2]", cpus: 4, memory: 8Gi, gpus: 2, slurmd: {host: head}}\n'
    assert new in place.text
    place.text = place.text.replace(new, "").replace("[known, new]", "[known]")
    plan = place.install()
    removed = {Path(name).name for word, _, name in plan.lines() if word == "remove"}
    assert {"penstock-gres.conf", "penstock-slurmd.conf", "penstock-slurmd@.service", "gres.conf"} <= removed
    assert "NodeName" not in (place.etc / "penstock.conf").read_text()
    place.uninstall()
    assert place.seen() == before


def test_target_of_a_symlink_is_edited(place: Place) -> None:
    """slurm.conf and gres.conf may be in a shared folder, under other names."""
    shared = place.root / "shared"
    shared.mkdir()
    for name, text in (("slurm.conf", CONF), ("gres.conf", "AutoDetect=off\n")):
        (shared / f"hall-{name}.txt").write_text(text)
        (place.etc / name).unlink(missing_ok=True)
        (place.etc / name).symlink_to(f"../shared/hall-{name}.txt")
    before = place.seen()
    plan = place.install()
    names = {name for word, _, name in plan.lines() if word == "change"}
    assert f"{place.conf} -> {shared}/hall-slurm.conf.txt" in names
    assert plan.files[-1].path == f"{shared}/hall-slurm.conf.txt", "slurm.conf comes last"
    for name in ("slurm.conf", "gres.conf"):
        assert (place.etc / name).is_symlink()
        assert "include " in (shared / f"hall-{name}.txt").read_text()
    with place.store.locked():
        assert place.planner.install().empty
    place.conf.write_text(place.conf.read_text() + "KillWait=45\n")
    place.uninstall()
    assert str(place.conf.readlink()) == "../shared/hall-slurm.conf.txt"
    assert (shared / "hall-slurm.conf.txt").read_text() == f"{CONF}KillWait=45\n"
    (shared / "hall-slurm.conf.txt").write_text(CONF)
    assert place.seen() == before
    assert place.restarts == 2


def test_edited_symlink_target_restarts_slurmctld(place: Place) -> None:
    """Whatever the target's name."""
    target = place.root / "conf"
    target.write_text(CONF)
    place.conf.unlink()
    place.conf.symlink_to(target)
    place.install()
    target.write_text(CONF)
    assert place.install().restart
    assert place.restarts == 2


def test_new_target_of_a_symlink_is_left_alone(place: Place) -> None:
    """The old target is restored."""
    first, second = place.root / "first.conf", place.root / "second.conf"
    first.write_text(CONF)
    second.write_text("ClusterName=other\n")
    place.conf.unlink()
    place.conf.symlink_to(first)
    place.install()
    place.conf.unlink()
    place.conf.symlink_to(second)
    place.uninstall()
    assert (first.read_text(), second.read_text()) == (CONF, "ClusterName=other\n")
    assert place.conf.readlink() == second


def test_replaced_symlink_is_restored(place: Place) -> None:
    """job_submit.lua in a shared folder is never written."""
    lua, shared = place.etc / "job_submit.lua", place.root / "shared.lua"
    lua.rename(shared)
    lua.symlink_to(shared)
    place.install()
    assert (lua.is_symlink(), shared.read_text()) == (False, LUA)
    assert (place.etc / "job_submit.site.lua").read_text() == LUA
    place.uninstall()
    assert lua.readlink() == shared
    assert shared.read_text() == LUA


def test_symlink_loop_is_reported(place: Place) -> None:
    gres = place.etc / "gres.conf"
    gres.symlink_to(gres)
    with pytest.raises(errors.InstallError, match=r"gres\.conf"):
        place.install()


def test_site_without_its_own_lua_gets_only_ours(place: Place) -> None:
    (place.etc / "job_submit.lua").unlink()
    place.install()
    assert not (place.etc / "job_submit.site.lua").exists()
    assert "penstock-launch" in (place.etc / "job_submit.lua").read_text()
    place.uninstall()
    assert not (place.etc / "job_submit.lua").exists()


def test_sites_cli_filter_is_not_replaced(place: Place) -> None:
    """The error names the key to leave out."""
    (place.etc / "cli_filter.lua").write_text("-- the site's own\n")
    place.text = place.text.replace("penstockd:\n", "penstockd:\n  submit_filter: true\n")
    with pytest.raises(errors.InstallError, match="the site has its own") as caught:
        place.install()
    assert "penstockd.submit_filter" in caught.value.hint
    assert (place.etc / "cli_filter.lua").read_text() == "-- the site's own\n"
