"""Another release of Slurm for a lab: found where apt looks, made whole, linked before the machine's own."""

from __future__ import annotations

import os
import subprocess
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

import msgspec
import pytest

from penstock import errors
from penstock.model import releases
from penstock_lab import cache, components, labcheck, paths, spec, subprocesses
from penstock_lab.slurm import debpackages, downloads, firststate, programs, suites
from tests.unit import test_kubernetes_builds as building

LAB = spec.LabSpec(name="x", port_base=21000, user="alice", user_created=False, nodes=1, slurm="24.11")
APT = """\
Other|Other|main|https://packages.example/apt/
Debian|Debian-Security|main|https://mirror.example/debian-security/
Debian|Debian|contrib|https://mirror.example/contrib/
Debian|Debian|main|https://mirror.example/debian/
"""
TRIPLET = "x86_64-linux-gnu"


class Machine:
    """Plays apt-get, dpkg-deb, patchelf and slurmctld; remembers what was run."""

    def __init__(self) -> None:
        self.calls: list[tuple[tuple[str, ...], dict[str, str]]] = []
        self.version = "slurm-wlm 24.11.5"
        self.fails = ""

    def run(
        self,
        argv: Sequence[str],
        *,
        environment: Mapping[str, str] | None = None,
        timeout: float = 60.0,
    ) -> subprocess.CompletedProcess[str]:
        words = tuple(argv)
        self.calls.append((words, dict(environment or {})))
        if self.fails and self.fails in words:
            raise errors.LabError(f"{words[0]} failed: could not connect")
        return subprocess.CompletedProcess(words, 0, self._answer(words, dict(environment or {})), "")

    def _answer(self, words: tuple[str, ...], environment: dict[str, str]) -> str:
        if "indextargets" in words:
            return APT
        if "--download-only" in words:
            folder = Path(environment["APT_CONFIG"]).parent / "cache/archives"
            (folder / "slurmctld_24.11.5-4_amd64.deb").write_text("content")
        if words[0] == "dpkg-deb":
            lay_out(Path(words[-1]))
        return self.version if words[-1] == "-V" else ""

    def called(self, program: str) -> list[tuple[str, ...]]:
        return [words for words, _ in self.calls if any(word.endswith(program) for word in words)]


def lay_out(root: Path) -> None:
    """The tree that Debian's packages unpack to, as far as it matters."""
    libraries = root / "usr/lib" / TRIPLET
    (libraries / "slurm-wlm").mkdir(parents=True)
    for name in ("ld-linux-x86-64.so.2", "libc.so.6", "slurm-wlm/auth_munge.so", "slurm-wlm/mpi_pmix.so"):
        (libraries / name).touch()
    (root / "lib" / TRIPLET).mkdir(parents=True)
    (root / "lib" / TRIPLET / "libold.so.1").touch()
    for folder, names in (("sbin", debpackages.DAEMONS), ("bin", (*debpackages.CLIENTS, "patchelf", "perl"))):
        (root / "usr" / folder).mkdir()
        for name in names:
            (root / "usr" / folder / (f"{name}-wlm" if name == "slurmctld" else name)).touch()


@pytest.fixture
def machine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Machine:
    """A machine with a cache of its own and nothing in it."""
    played = Machine()
    keyring = tmp_path / "keyring.gpg"
    keyring.touch()
    monkeypatch.setattr(subprocesses, "run", played.run)
    monkeypatch.setattr(cache, "SYSTEM_CACHE", tmp_path / "cache")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    monkeypatch.setattr(suites, "KEYRING", keyring)
    return played


@pytest.fixture
def place() -> Iterator[paths.LabPaths]:
    """A lab's directory, short as it must be, with room for programs."""
    with tempfile.TemporaryDirectory(prefix="penstock-") as directory:
        made = paths.LabPaths(Path(directory).resolve())
        made.bin.mkdir()
        yield made


def ensure(tmp_path: Path, listener: building.Listener | None = None) -> Path:
    settings = {"XDG_CACHE_HOME": str(tmp_path), "https_proxy": "http://proxy.example", "SECRET": "x"}
    return programs.ensure("24.11", listener=listener or building.Listener(), environment=settings)


class TestSuites:
    def test_every_tested_release_has_a_suite(self) -> None:
        """All supported releases can be downloaded."""
        assert set(suites.SUITES) == set(releases.TRIED)
        assert suites.CHOICES == ("22.05", "24.11", "26.05")

    def test_the_mirror_is_the_one_that_apt_uses(self) -> None:
        """Debian's main archive: neither its security updates nor anybody else's."""
        assert suites.mirror(APT) == "https://mirror.example/debian/"

    @pytest.mark.parametrize(
        "answer", ["", "Ubuntu|Ubuntu|main|https://mirror.example/ubuntu/\n", "Debian|Debian|main"]
    )
    def test_without_a_mirror_it_says_what_to_do(self, answer: str) -> None:
        """Other distributions have no such suites."""
        with pytest.raises(errors.LabError, match="apt has no mirror") as failure:
            suites.mirror(answer)
        assert "--slurm" in failure.value.hint

    def test_packages_are_verified_or_not_used(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        """A keyring must be there and is named in the source's line."""
        monkeypatch.setattr(suites, "KEYRING", tmp_path / "keys")
        with pytest.raises(errors.LabError, match="cannot be verified"):
            suites.sources_list("24.11", uri="https://m/")
        (tmp_path / "keys").touch()
        line = suites.sources_list("24.11", uri="https://m/")
        assert line == f"deb [signed-by={tmp_path}/keys] https://m/ trixie main\n"

    def test_cache_name_depends_on_the_packages(self, monkeypatch: pytest.MonkeyPatch) -> None:
        """Another list of packages has another name."""
        before = suites.cache_name("24.11")
        assert before.startswith("slurm-24.11-")
        assert before != suites.cache_name("26.05")
        monkeypatch.setattr(suites, "PACKAGES", ("slurmctld",))
        assert suites.cache_name("24.11") != before

    def test_apt_lives_in_its_own_folder(self) -> None:
        """Nothing of the machine's own apt is read for packages or written at all."""
        text = suites.apt_conf(Path("/f"))
        for line in text.splitlines():
            assert not line.startswith("Dir::") or '"/f/' in line


class TestMaking:
    def test_programs_libraries_and_plugins_are_kept_and_nothing_else(
        self, machine: Machine, tmp_path: Path
    ) -> None:
        """All programs under their plain names; the rest of the suite is thrown away."""
        found = ensure(tmp_path)
        assert sorted(path.name for path in found.iterdir()) == ["bin", "lib", "packages", "plugins"]
        assert {path.name for path in (found / "bin").iterdir()} == {
            *debpackages.DAEMONS,
            *debpackages.CLIENTS,
        }
        assert {path.name for path in (found / "lib").iterdir()} == {
            "ld-linux-x86-64.so.2",
            "libc.so.6",
            "libold.so.1",
        }
        assert [path.name for path in (found / "plugins").iterdir()] == ["auth_munge.so"]
        assert (found / "packages").read_text().endswith("  slurmctld_24.11.5-4_amd64.deb\n")

    def test_programs_are_told_where_their_loader_will_be(self, machine: Machine, tmp_path: Path) -> None:
        """Under the final name, and they look for libraries beside themselves."""
        found = ensure(tmp_path)
        patched, stripped = machine.called("patchelf")[-2:]
        assert patched[patched.index("--set-interpreter") + 1] == f"{found}/lib/ld-linux-x86-64.so.2"
        assert patched[patched.index("--set-rpath") + 1] == "$ORIGIN/../plugins:$ORIGIN/../lib"
        assert sum(word.endswith(("/sbatch", "/slurmstepd")) for word in patched) == 2
        assert "--remove-rpath" in stripped

    def test_apt_gets_the_proxy_and_nothing_else_of_the_environment(
        self, machine: Machine, tmp_path: Path
    ) -> None:
        """It must get out, and that is all it must."""
        ensure(tmp_path)
        settings = next(environment for words, environment in machine.calls if "update" in words)
        assert set(settings) == {"APT_CONFIG", "https_proxy"}

    def test_the_second_time_nothing_is_fetched(self, machine: Machine, tmp_path: Path) -> None:
        """Not even a question is asked of apt."""
        listener = building.Listener()
        first = ensure(tmp_path, listener)
        assert [what for _, what in listener.lines] == ["began", "fetched from trixie"]
        machine.calls.clear()
        assert ensure(tmp_path) == first
        assert machine.calls == []

    def test_a_suite_that_moved_on_is_named_and_not_kept(self, machine: Machine, tmp_path: Path) -> None:
        """Debian's unstable suite has another release tomorrow."""
        machine.version = "slurm-wlm 25.11.1"
        with pytest.raises(
            errors.LabError, match=r"no longer has Slurm 24\.11: the suite now has slurm-wlm 25\.11\.1"
        ):
            ensure(tmp_path)
        machine.version = "slurm-wlm 24.11.5"
        assert ensure(tmp_path).is_dir()

    @pytest.mark.parametrize("step", ["update", "--download-only", "dpkg-deb", "--remove-rpath"])
    def test_a_failure_leaves_nothing_behind(self, machine: Machine, tmp_path: Path, step: str) -> None:
        """Whatever fails, the next attempt starts anew and succeeds."""
        machine.fails = step
        with pytest.raises(errors.LabError, match="could not connect"):
            ensure(tmp_path)
        kept = cache.root({"XDG_CACHE_HOME": str(tmp_path)})
        assert [path.suffix for path in kept.iterdir() if path.name.startswith((".slurm", "slurm"))] == [
            ".lock"
        ]
        machine.fails = ""
        assert ensure(tmp_path).is_dir()

    @pytest.mark.parametrize(
        ("lost", "said"),
        [
            (f"usr/lib/{TRIPLET}/slurm-wlm", "no plugins"),
            ("usr/bin/srun", "no program srun"),
            (f"usr/lib/{TRIPLET}/ld-linux-x86-64.so.2", "no dynamic loader"),
        ],
    )
    def test_packages_that_are_laid_out_otherwise_are_named(
        self, machine: Machine, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, lost: str, said: str
    ) -> None:
        """One line that says what was not found."""

        def lay_out_without(root: Path) -> None:
            whole(root)
            (root / lost).rename(root / "lost")

        whole = lay_out
        monkeypatch.setattr(f"{__name__}.lay_out", lay_out_without)
        with pytest.raises(errors.LabError, match=said):
            ensure(tmp_path)

    def test_unreachable_mirror_is_reported(self, machine: Machine, tmp_path: Path) -> None:
        """With apt's message and a hint."""
        machine.fails = "update"
        with pytest.raises(errors.LabError, match="cannot fetch Slurm's packages: apt-get failed") as failure:
            downloads.fetch("24.11", tmp_path / "apt", environment={})
        assert "apt-get update" in failure.value.hint


class TestChoosing:
    def test_the_machines_own_release_is_used_as_it_is(self, machine: Machine) -> None:
        """Asked for by number or not at all: nothing is fetched."""
        unasked = msgspec.structs.replace(LAB, slurm="")
        for lab in (LAB, unasked):
            chosen = programs.with_programs(lab, listener=building.Listener(), environment={})
            assert chosen.slurm_programs == ""
        assert machine.called("indextargets") == []
        assert programs.folders(unasked) == {}
        assert programs.slurmd_options(unasked) == ()

    def test_another_release_is_fetched_and_used(self, machine: Machine, tmp_path: Path) -> None:
        """The lab remembers where it is."""
        wanted = msgspec.structs.replace(LAB, slurm="26.05")
        with pytest.raises(errors.LabError, match=r"the suite now has slurm-wlm 24\.11\.5"):
            programs.with_programs(
                wanted, listener=building.Listener(), environment={"XDG_CACHE_HOME": str(tmp_path)}
            )

    def test_links_put_it_before_the_machines_own(self, place: paths.LabPaths) -> None:
        """Any number of times; slurmd knows its slurmstepd, and every daemon finds the links first."""
        lab = msgspec.structs.replace(LAB, slurm_programs="/cache/slurm")
        for _ in range(2):
            programs.link(place, lab)
        assert (place.bin / "sbatch").readlink() == Path("/cache/slurm/bin/sbatch")
        assert {path.name for path in place.bin.iterdir()} == {*debpackages.DAEMONS, *debpackages.CLIENTS}
        daemons = {part.name: part for part in components.all_components(place, lab)}
        for name in ("slurmctld", "slurmdbd", "slurmd-n1", "penstockd"):
            assert daemons[name].environment["PATH"].startswith(f"{place.bin}:")
        assert daemons["slurmd-n1"].argv[-2:] == ("-d", "/cache/slurm/bin/slurmstepd")
        assert programs.folders(lab) == {
            "plugin_dir": "/cache/slurm/plugins",
            "commands_dir": "/cache/slurm/bin",
        }

    def test_a_lab_without_another_release_links_nothing(self, place: paths.LabPaths) -> None:
        """The machine's own programs are on PATH anyway."""
        programs.link(place, msgspec.structs.replace(LAB, slurm_programs=""))
        assert list(place.bin.iterdir()) == []


class TestFirstState:
    @pytest.fixture
    def asked(self, place: paths.LabPaths, monkeypatch: pytest.MonkeyPatch) -> list[tuple[str, ...]]:
        """What scontrol was asked for; slurmctld 26.05 obeys by writing its files."""
        calls: list[tuple[str, ...]] = []
        place.controller_state.mkdir()

        def run(argv: tuple[str, ...], *, environment: Mapping[str, str]) -> None:
            calls.append(argv)
            (place.controller_state / "assoc_usage").touch()

        monkeypatch.setattr(subprocesses, "run", run)
        monkeypatch.setattr(programs, "release_of", lambda _: (26, 5))
        return calls

    def test_a_new_slurmctld_writes_everything_at_once(
        self, place: paths.LabPaths, asked: list[tuple[str, ...]]
    ) -> None:
        """Killed a moment later, it can start again."""
        assert firststate.save(place, LAB) == "saved"
        assert asked == [("scontrol", "reconfigure")]

    @pytest.mark.parametrize(("complete", "release"), [(True, (26, 5)), (False, (24, 11)), (False, (22, 5))])
    def test_otherwise_it_is_left_alone(
        self,
        place: paths.LabPaths,
        asked: list[tuple[str, ...]],
        monkeypatch: pytest.MonkeyPatch,
        complete: bool,
        release: releases.Release,
    ) -> None:
        """Releases that start without the files, and labs that were up before."""
        monkeypatch.setattr(programs, "release_of", lambda _: release)
        lab = msgspec.structs.replace(LAB, complete=complete)
        assert firststate.save(place, lab) == "nothing to do"
        assert asked == []

    def test_files_that_never_come_are_an_error(
        self, place: paths.LabPaths, asked: list[tuple[str, ...]], monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """Rather now than at the first crash."""
        monkeypatch.setattr(firststate, "SECONDS", 0.1)
        monkeypatch.setattr(firststate, "_LAST_FILE", "never")
        with pytest.raises(errors.LabError, match="did not write never"):
            firststate.save(place, LAB)

    def test_nodes_and_penstockd_wait_for_it(self, place: paths.LabPaths) -> None:
        """A reconfiguration under way would disturb them."""
        waiting = {
            part.name for part in components.all_components(place, LAB) if firststate.STEP in part.after
        }
        assert waiting == {"slurmd-n1", "penstockd", "intake", "collector"}


def test_a_look_at_a_lab_uses_its_commands(monkeypatch: pytest.MonkeyPatch) -> None:
    """Within, the lab's are first on the PATH; afterwards all is as before."""
    monkeypatch.setenv("PATH", "/usr/bin")
    with labcheck.its_programs({"PATH": "/lab/bin:/usr/bin"}):
        assert os.environ["PATH"] == "/lab/bin:/usr/bin"
    assert os.environ["PATH"] == "/usr/bin"
