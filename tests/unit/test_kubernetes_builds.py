"""The programs of a real Kubernetes: found by content, built whole or not at all, one builder at a time."""

from __future__ import annotations

import dataclasses
import os
import stat
import threading
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock import errors
from penstock_lab import cache
from penstock_lab.kubernetes import builds

FAKE_GO = """#!/bin/sh
if [ "$1" = env ]; then printf '%s\\nlinux\\namd64\\n' "${FAKE_VERSION:-go1.26.8}"; exit; fi
echo "$@ | $GOFLAGS $CGO_ENABLED" >>"$FAKE_LOG"
if [ "$1" = list ]; then [ -z "$FAKE_NETWORK" ] || { echo "$FAKE_NETWORK" >&2; exit 1; }; exit; fi
if [ -n "$FAKE_FAILURE" ]; then echo "go: downloading x"; echo "main.go:1: $FAKE_FAILURE" >&2; exit 1; fi
while [ "$1" != -o ]; do shift; done
echo "built $3" >"$2"
"""


class Listener:
    """Remembers what it was told."""

    def __init__(self) -> None:
        self.lines: list[tuple[str, str]] = []

    def began(self, name: str) -> None:
        self.lines.append((name, "began"))

    def ended(self, name: str, what: str, seconds: float) -> None:
        self.lines.append((name, what))


@pytest.fixture
def module(tmp_path: Path) -> builds.Module:
    """A small module with two programs."""
    source = tmp_path / "source"
    source.mkdir()
    (source / "go.mod").write_text("module lab\n\nrequire (\n\tk8s.io/kubernetes v1.36.3\n)\n")
    (source / "go.sum").write_text("k8s.io/kubernetes v1.36.3 h1:abc=\n")
    (source / "tools.go").write_text("package tools\n")
    programs = (builds.Program("one", "./one", 90), builds.Program("two", "./two", 30))
    return builds.Module("lab", source, programs, "k8s.io/kubernetes")


@pytest.fixture
def environment(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> dict[str, str]:
    """A Go that only pretends, and a cache of its own."""
    folder = tmp_path / "bin"
    folder.mkdir()
    program = folder / "go"
    program.write_text(FAKE_GO)
    program.chmod(0o755)
    monkeypatch.setattr(cache, "SYSTEM_CACHE", tmp_path / "cache")
    monkeypatch.setattr(builds, "USUAL_GO_PLACES", ())
    path = f"{folder}:{os.environ['PATH']}"
    return {"PATH": path, "FAKE_LOG": str(tmp_path / "log"), "HOME": str(tmp_path)}


def test_what_was_built_is_whole_and_executable_by_all(
    module: builds.Module, environment: dict[str, str]
) -> None:
    """Every program is there under its name, and nothing else in the cache but the lock."""
    found = builds.ensure(module, listener=Listener(), environment=environment)
    assert sorted(path.name for path in found.iterdir()) == ["one", "two"]
    assert stat.S_IMODE(found.stat().st_mode) == 0o755
    others = [path.name for path in found.parent.iterdir() if path != found]
    assert others == [f".{found.name}.lock"]


def test_modules_are_read_only_and_versions_are_told(
    module: builds.Module, environment: dict[str, str]
) -> None:
    """go.sum is never changed by a build, and the programs know their version."""
    builds.ensure(module, listener=Listener(), environment=environment)
    fetched, *built = Path(environment["FAKE_LOG"]).read_text().splitlines()
    assert fetched.startswith("list -deps ")
    for line in (fetched, *built):
        assert line.endswith("| -mod=readonly -buildvcs=false 0")
    for line in built:
        assert "-X k8s.io/component-base/version.gitVersion=v1.36.3" in line
        assert "-X k8s.io/client-go/pkg/version.gitMinor=36" in line


def test_a_file_of_another_module_is_not_listed_with_packages(
    module: builds.Module, environment: dict[str, str]
) -> None:
    """Go takes either files or packages; the file is built all the same."""
    (module.source.parent / "main.go").write_text("package main\n")
    shared = builds.Program("three", "../main.go", 1)
    with_file = dataclasses.replace(module, programs=(shared, *module.programs))
    builds.ensure(with_file, listener=Listener(), environment=environment)
    fetched, first, *_ = Path(environment["FAKE_LOG"]).read_text().splitlines()
    assert "./one ./two |" in fetched
    assert "main.go" not in fetched
    assert "../main.go |" in first


def test_progress_says_how_long_it_takes(module: builds.Module, environment: dict[str, str]) -> None:
    """A line when a program is begun and one when it is built, with an estimate of the rest."""
    listener = Listener()
    builds.ensure(module, listener=listener, environment=environment)
    assert listener.lines == [
        ("Go modules", "began"),
        ("Go modules", "fetched"),
        ("build one", "began"),
        ("build one", "built, less than a minute left"),
        ("build two", "began"),
        ("build two", "built"),
    ]


def test_the_second_time_nothing_is_built(module: builds.Module, environment: dict[str, str]) -> None:
    """What is there is found, without a word."""
    first = builds.ensure(module, listener=Listener(), environment=environment)
    listener = Listener()
    assert builds.ensure(module, listener=listener, environment=environment) == first
    assert listener.lines == []


def test_failed_build_leaves_nothing_and_has_gos_message(
    module: builds.Module, environment: dict[str, str]
) -> None:
    """The next attempt starts over."""
    with pytest.raises(errors.LabError, match="cannot build one") as failure:
        builds.ensure(module, listener=Listener(), environment=environment | {"FAKE_FAILURE": "no such word"})
    assert "main.go:1: no such word" in failure.value.hint
    assert "downloading" not in failure.value.hint
    assert [path.suffix for path in cache.SYSTEM_CACHE.iterdir()] == [".lock"]
    assert builds.ensure(module, listener=Listener(), environment=environment).is_dir()


@pytest.mark.parametrize(
    ("said", "unreachable"),
    [
        ("k8s.io/kubernetes@v1.36.3: dial tcp: connection refused", True),
        ("verifying k8s.io/kubernetes@v1.36.3: checksum mismatch\nSECURITY ERROR", False),
        ("module lookup disabled by GOPROXY=off", True),
        ("missing go.sum entry for module", False),
        ("named files must be .go files: go.etcd.io/etcd/server/v3", False),
    ],
)
def test_modules_out_of_reach_are_no_fault_of_the_sources(
    module: builds.Module, environment: dict[str, str], said: str, unreachable: bool
) -> None:
    """Tests are skipped for the one, with Go's words, and never for the other."""
    with pytest.raises(errors.LabError) as failure:
        builds.ensure(module, listener=Listener(), environment=environment | {"FAKE_NETWORK": said})
    assert isinstance(failure.value, builds.ModulesUnreachableError) == unreachable
    assert said.splitlines()[-1] in failure.value.hint


def test_a_cache_may_be_named_from_where_one_is(
    module: builds.Module, environment: dict[str, str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Go runs elsewhere, and so does whatever is started from there later."""
    monkeypatch.chdir(tmp_path)
    found = builds.ensure(module, listener=Listener(), environment=environment | {"PENSTOCK_CACHE": "mine"})
    assert found.parent == tmp_path / "mine"
    assert sorted(path.name for path in found.iterdir()) == ["one", "two"]


def test_cached_files_are_readable_by_all(module: builds.Module, environment: dict[str, str]) -> None:
    """A restrictive umask must not lock out users of later labs."""
    before = os.umask(0o077)
    try:
        found = builds.ensure(module, listener=Listener(), environment=environment)
        assert os.umask(0o077) == 0o077
    finally:
        os.umask(before)
    assert stat.S_IMODE(found.parent.stat().st_mode) == 0o755
    assert (found / "one").stat().st_mode & stat.S_IROTH


def test_leftovers_of_a_killed_build_are_removed(module: builds.Module, environment: dict[str, str]) -> None:
    """Hundreds of megabytes, under a name that is never used again."""
    name = f"lab-{builds.fingerprint(module, builds.go_version(builds.find_go(environment)))}"
    (cache.SYSTEM_CACHE / f".{name}.x7_").mkdir(parents=True)
    (cache.SYSTEM_CACHE / f".{name}.x7_" / "one").touch()
    found = builds.ensure(module, listener=Listener(), environment=environment)
    assert sorted(path.name for path in found.parent.iterdir()) == [f".{name}.lock", name]


def test_go_writes_only_into_the_cache(
    module: builds.Module, environment: dict[str, str], tmp_path: Path
) -> None:
    """A killed Go does not clean up: its temporary files are removed with the entry."""
    go = tmp_path / "bin/go"
    go.write_text(
        FAKE_GO.replace("#!/bin/sh\n", '#!/bin/sh\n[ "$1" = env ] || touch "${GOTMPDIR:-$HOME}/go-build7"\n')
    )
    found = builds.ensure(module, listener=Listener(), environment=environment)
    assert sorted(path.name for path in found.iterdir()) == ["one", "two"]
    with pytest.raises(errors.LabError, match="cannot build"):
        builds.ensure(
            dataclasses.replace(module, name="other"),
            listener=Listener(),
            environment=environment | {"FAKE_FAILURE": "x"},
        )
    assert list(tmp_path.rglob("go-build7")) == []


def test_two_builders_build_once(module: builds.Module, environment: dict[str, str]) -> None:
    """The second waits for the first and finds its work."""
    listeners = [Listener(), Listener()]
    threads = [
        threading.Thread(
            target=builds.ensure, args=(module,), kwargs={"listener": one, "environment": environment}
        )
        for one in listeners
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(30)
    assert sorted(len(one.lines) for one in listeners) == [0, 6]


@pytest.mark.parametrize("name", ["go.mod", "go.sum", "tools.go"])
def test_every_source_counts(module: builds.Module, name: str) -> None:
    """Another content of any file is another build."""
    before = builds.fingerprint(module, "go1.26.8")
    path = module.source / name
    path.write_text(path.read_text() + "// more\n")
    assert builds.fingerprint(module, "go1.26.8") != before


def test_gos_version_counts_and_dates_do_not(module: builds.Module) -> None:
    """The same content at another time is the same build; another Go makes another one."""
    before = builds.fingerprint(module, "go1.26.8 linux amd64")
    os.utime(module.source / "go.mod", (1, 1))
    assert builds.fingerprint(module, "go1.26.8 linux amd64") == before
    assert builds.fingerprint(module, "go1.26.9 linux amd64") != before


def test_a_module_below_is_not_part_of_the_one_above(module: builds.Module) -> None:
    """Each go.mod has a build of its own."""
    before = builds.fingerprint(module, "go")
    (module.source / "below").mkdir()
    (module.source / "below" / "go.mod").write_text("module below\n")
    (module.source / "below" / "main.go").write_text("package main\n")
    assert builds.fingerprint(module, "go") == before


def test_without_go_the_way_out_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    """One line on what is missing, and that a cluster of one's own will do."""
    monkeypatch.setattr(builds, "USUAL_GO_PLACES", ())
    with pytest.raises(errors.LabError, match="Go is not installed") as failure:
        builds.find_go({"PATH": "/nonexistent"})
    assert "--kubernetes KUBECONFIG" in failure.value.hint


def test_an_old_go_is_too_old(environment: dict[str, str], monkeypatch: pytest.MonkeyPatch) -> None:
    """Told with its version."""
    monkeypatch.setenv("FAKE_VERSION", "go1.21.0")
    with pytest.raises(errors.LabError, match=r"go1\.21\.0 linux amd64, which is too old"):
        builds.find_go(environment)


def test_only_a_checkout_can_build(module: builds.Module) -> None:
    """An installed Penstock has no go.mod, and says so."""
    nowhere = dataclasses.replace(module, source=module.source / "nowhere")
    with pytest.raises(errors.LabError, match=r"cannot build: .*nowhere/go\.mod does not exist"):
        builds.fingerprint(nowhere, "go")


@given(st.integers(0, 99), st.integers(0, 99), st.sampled_from(["", ".8", "rc1", "-custom"]))
def test_versions_of_go_are_read(major: int, minor: int, rest: str) -> None:
    """Whatever follows the first two numbers does not matter."""
    assert builds.parse_go_version(f"go{major}.{minor}{rest} linux amd64") == (major, minor)


@given(st.text(alphabet=st.characters(exclude_characters="0123456789")))
def test_unknown_go_version_is_too_old(text: str) -> None:
    """A development tree has no release."""
    assert builds.parse_go_version(text) == (0, 0)


@pytest.mark.parametrize(
    ("seconds", "words"),
    [
        (0, "built"),
        (59, "built, less than a minute left"),
        (60, "built, about 1 min left"),
        (290, "built, about 5 min left"),
    ],
)
def test_estimates_are_for_people(seconds: int, words: str) -> None:
    """Minutes, not seconds."""
    assert builds.estimate(seconds) == words


def test_the_projects_own_modules_name_their_version() -> None:
    """go.mod is the one place where the release of Kubernetes is chosen."""
    assert builds.version_of(builds.KUBERNETES).startswith("v1.")
    assert all((builds.SOURCE / name).is_file() for name in ("go.mod", "go.sum", "tools.go"))


def test_every_program_is_pinned_by_the_tools_file() -> None:
    """What is built is imported by tools.go, so that go.sum vouches for it."""
    text = (builds.SOURCE / "tools.go").read_text()
    for program in builds.KUBERNETES.programs:
        assert program.package.startswith("./") or f'"{program.package}"' in text
