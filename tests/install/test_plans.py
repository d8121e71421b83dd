"""Plans without a Slurm or a Kubernetes: install, change, take back, with somebody editing in between."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from tests.install.places import CONF, LUA, Place

from penstock import errors


@pytest.fixture
def place(tmp_path: Path) -> Place:
    """An existing Slurm with hooks and Lua of its own."""
    if os.geteuid() != 0:
        pytest.skip("files get owners: needs root")
    return Place(tmp_path)


def test_what_was_installed_is_taken_back_byte_for_byte(place: Place) -> None:
    """Modes included; the plan in between names every file."""
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


def test_doing_it_twice_is_doing_it_once(place: Place) -> None:
    """The second plan is empty."""
    place.install()
    with place.store.locked():
        assert place.planner.install().empty


def test_what_the_administrator_edits_in_between_stays(place: Place) -> None:
    """A line in slurm.conf, and the site's own Lua."""
    place.install()
    place.conf.write_text(place.conf.read_text() + "KillWait=45\n")
    (place.etc / "job_submit.site.lua").write_text(f"-- newer\n{LUA}")
    with place.store.locked():
        assert [Path(change.path).name for change in place.planner.install().files] == ["slurm.conf"]
    place.uninstall()
    assert place.conf.read_text() == f"{CONF}KillWait=45\n"
    assert (place.etc / "job_submit.lua").read_text() == f"-- newer\n{LUA}"


def test_what_was_edited_before_a_second_apply_stays(place: Place) -> None:
    """That apply wrote the line, too; it is the administrator's all the same."""
    place.install()
    place.conf.write_text(place.conf.read_text() + "KillWait=45\n")
    place.install()
    place.uninstall()
    assert place.conf.read_text() == f"{CONF}KillWait=45\n"


def test_a_slurm_conf_without_a_last_line_feed_comes_back_so(place: Place) -> None:
    """Our line needs one before it; it goes with the line."""
    place.conf.write_text(CONF.rstrip("\n"))
    before = place.seen()
    place.install()
    place.install()
    place.uninstall()
    assert place.seen() == before


def test_a_lua_that_is_put_over_ours_becomes_the_sites_own(place: Place) -> None:
    """Whoever deploys job_submit.lua again by other means does not switch the bridge off for long."""
    place.install()
    (place.etc / "job_submit.lua").write_text("-- deployed again\n")
    place.install()
    assert (place.etc / "job_submit.site.lua").read_text() == "-- deployed again\n"
    assert "job_submit.penstock.lua" in (place.etc / "job_submit.lua").read_text()


def test_what_leaves_the_site_file_leaves_the_site(place: Place) -> None:
    """The new nodes are gone from Slurm's files; what was there before them is back."""
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


def test_a_link_stays_a_link_and_the_file_behind_it_is_edited(place: Place) -> None:
    """slurm.conf and gres.conf of the whole cluster in a shared folder, under names of their own."""
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


def test_an_edited_link_alone_restarts_slurmctld(place: Place) -> None:
    """Whatever the file behind it is called."""
    target = place.root / "conf"
    target.write_text(CONF)
    place.conf.unlink()
    place.conf.symlink_to(target)
    place.install()
    target.write_text(CONF)
    assert place.install().restart
    assert place.restarts == 2


def test_a_link_that_leads_elsewhere_since_is_left_alone(place: Place) -> None:
    """The file that we edited gets its own text back; the one that the link names now is not ours."""
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


def test_a_link_that_we_replace_comes_back(place: Place) -> None:
    """job_submit.lua of a shared folder: the shared file is never written."""
    lua, shared = place.etc / "job_submit.lua", place.root / "shared.lua"
    lua.rename(shared)
    lua.symlink_to(shared)
    place.install()
    assert (lua.is_symlink(), shared.read_text()) == (False, LUA)
    assert (place.etc / "job_submit.site.lua").read_text() == LUA
    place.uninstall()
    assert lua.readlink() == shared
    assert shared.read_text() == LUA


def test_a_link_to_itself_is_named(place: Place) -> None:
    """Instead of a traceback."""
    gres = place.etc / "gres.conf"
    gres.symlink_to(gres)
    with pytest.raises(errors.InstallError, match=r"gres\.conf"):
        place.install()


def test_a_site_without_lua_of_its_own_gets_ours_alone(place: Place) -> None:
    """And nothing is left of it."""
    (place.etc / "job_submit.lua").unlink()
    place.install()
    assert not (place.etc / "job_submit.site.lua").exists()
    assert "penstock-launch" in (place.etc / "job_submit.lua").read_text()
    place.uninstall()
    assert not (place.etc / "job_submit.lua").exists()


def test_a_file_that_cannot_be_shared_is_not_replaced(place: Place) -> None:
    """The site's own cli_filter.lua stays, and the administrator is told what to leave out."""
    (place.etc / "cli_filter.lua").write_text("-- the site's own\n")
    place.text = place.text.replace("penstockd:\n", "penstockd:\n  submit_filter: true\n")
    with pytest.raises(errors.InstallError, match="the site has its own") as caught:
        place.install()
    assert "penstockd.submit_filter" in caught.value.hint
    assert (place.etc / "cli_filter.lua").read_text() == "-- the site's own\n"
