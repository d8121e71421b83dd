"""`make test-matrix`: what its cells are, what each is told, and how its results are read."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest
from scripts import matrix, pin_kubernetes, rights

from penstock import errors
from penstock.model import releases
from penstock_lab import testing
from penstock_lab.kubernetes import builds, requirements
from penstock_lab.slurm import programs

REPORT = """<?xml version="1.0"?><testsuites><testsuite name="pytest" errors="{errors}" failures="{failures}"
 skipped="2" tests="41"></testsuite></testsuites>"""


@pytest.fixture
def logs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder for logs; every cell can run on this machine."""
    monkeypatch.setattr(matrix, "LOGS", tmp_path)
    monkeypatch.setattr(matrix, "missing", lambda _: "")
    return tmp_path


def cell_that(
    monkeypatch: pytest.MonkeyPatch, logs: Path, *, code: int, report: str | None
) -> matrix.Outcome:
    """The outcome of a cell whose tests end like that."""
    write = f"open({str(logs / 'slurm-24.11.xml')!r}, 'w').write({report!r});" if report else ""
    monkeypatch.setattr(matrix, "argv", lambda _: [sys.executable, "-c", f"{write}raise SystemExit({code})"])
    return matrix.run_cell("slurm-24.11")


def test_every_tried_release_is_a_cell() -> None:
    """Three of Slurm with the dev cluster, two of Kubernetes with the machine's Slurm."""
    assert matrix.CELLS == ("slurm-22.05", "slurm-24.11", "slurm-26.05", "kubernetes-1.35", "kubernetes-1.36")


def test_a_cell_tells_the_tests_what_to_run_on() -> None:
    """By the variables that labs for tests look at."""
    assert matrix.settings("slurm-24.11") == {
        "PENSTOCK_TEST_SLURM": "24.11",
        "PENSTOCK_TEST_KUBERNETES": "dev",
    }
    assert matrix.settings("kubernetes-1.35") == {"PENSTOCK_TEST_KUBERNETES_VERSION": "1.35"}
    assert "scripts.run_tests" in matrix.argv("slurm-24.11")
    assert "scripts.test_kubernetes" in matrix.argv("kubernetes-1.35")


def test_labs_of_tests_have_those_versions(monkeypatch: pytest.MonkeyPatch) -> None:
    """And the usual ones where nothing is said."""
    monkeypatch.setenv("PENSTOCK_TEST_SLURM", "24.11")
    monkeypatch.setenv("PENSTOCK_TEST_KUBERNETES_VERSION", "1.35")
    assert list(testing.versions()) == ["--slurm", "24.11", "--kubernetes-version", "1.35"]
    monkeypatch.delenv("PENSTOCK_TEST_SLURM")
    monkeypatch.setenv("PENSTOCK_TEST_KUBERNETES_VERSION", "")
    assert list(testing.versions()) == []


@pytest.mark.parametrize(
    ("code", "report", "result", "remark"),
    [
        (0, REPORT.format(errors=0, failures=0), "passed", "39 passed, 2 skipped"),
        (1, REPORT.format(errors=1, failures=3), "FAILED", "35 passed, 3 failures, 1 errors, 2 skipped"),
        (0, None, "FAILED", "exit code 0, no tests run"),
        (4, None, "FAILED", "exit code 4, no tests run"),
    ],
)
def test_results_are_those_of_the_tests(
    monkeypatch: pytest.MonkeyPatch, logs: Path, code: int, report: str | None, result: str, remark: str
) -> None:
    """A run without a report is never a success."""
    outcome = cell_that(monkeypatch, logs, code=code, report=report)
    assert outcome.result == result
    assert outcome.remark == remark
    assert (logs / "slurm-24.11.log").exists()


def test_an_old_report_is_not_believed(monkeypatch: pytest.MonkeyPatch, logs: Path) -> None:
    """It is removed before the tests start."""
    (logs / "slurm-24.11.xml").write_text(REPORT.format(errors=0, failures=0))
    assert cell_that(monkeypatch, logs, code=0, report=None).result == "FAILED"


@pytest.mark.parametrize("cell", ["slurm-26.05", "kubernetes-1.35"])
def test_what_is_missing_is_named_and_skipped(monkeypatch: pytest.MonkeyPatch, cell: str) -> None:
    """Nothing is run, and the table says why."""

    def fail(*_: object, **__: object) -> Path:
        raise errors.LabError("no mirror")

    monkeypatch.setattr(testing, "missing", lambda: "")
    monkeypatch.setattr(programs, "installed", lambda: releases.OLDEST)
    monkeypatch.setattr(programs, "ensure", fail)
    monkeypatch.setattr(requirements, "missing", lambda _: ["Go is not installed", "not root"])
    outcome = matrix.run_cell(cell)
    assert outcome.result == "skipped"
    assert outcome.remark in ("no mirror", "Go is not installed; not root")


@pytest.mark.parametrize(("result", "code"), [("passed", 0), ("skipped", 0), ("FAILED", 1)])
def test_only_a_failure_fails(
    monkeypatch: pytest.MonkeyPatch, logs: Path, capsys: pytest.CaptureFixture[str], result: str, code: int
) -> None:
    """The table has a line for every cell that was asked for."""
    monkeypatch.setattr(rights, "become_root", lambda *_, **__: None)
    monkeypatch.setattr(matrix, "run_cell", lambda cell: matrix.Outcome(cell, result, "5 passed", 7.0))
    with pytest.raises(SystemExit) as ended:
        matrix.main(["slurm-22.05", "kubernetes-1.36"])
    assert int(ended.value.code or 0) == code
    shown = capsys.readouterr().out
    assert "slurm-22.05" in shown
    assert "kubernetes-1.36" in shown
    assert "slurm-24.11" not in shown


def test_a_cell_that_does_not_exist_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    """With those that do."""
    monkeypatch.setattr(rights, "become_root", lambda *_, **__: None)
    with pytest.raises(SystemExit, match=r"unknown cell: slurm-20\.02; cells are slurm-22\.05"):
        matrix.main(["slurm-20.02"])


def test_every_version_of_kubernetes_is_pinned_as_it_is_called() -> None:
    """The directory's go.mod requires that minor version, with staging modules of the same."""
    for minor, module in builds.VERSIONS.items():
        version = builds.version_of(module)
        assert version.startswith(f"v{minor}.")
        text = (module.source / "go.mod").read_text()
        staging = version.replace("v1.", "v0.")
        assert f"k8s.io/api => k8s.io/api {staging}\n" in text
        assert (module.source / "go.sum").stat().st_size > 10_000


def test_a_pinned_module_names_all_staging_modules() -> None:
    """Taken from Kubernetes' own go.mod; etcd and Go are those of the newest."""
    own = "replace (\n\tk8s.io/b => ./staging/src/k8s.io/b\n\tk8s.io/a => ./staging/src/k8s.io/a\n)\n"
    like = "go 1.26.0\n\nrequire (\n\tgo.etcd.io/etcd/server/v3 v3.6.8\n)\n"
    text = pin_kubernetes.go_mod("1.35.4", like=like, own=own)
    assert text == (
        "module penstock/lab/kubernetes/v1.35\n\ngo 1.26.0\n\n"
        "require (\n\tgo.etcd.io/etcd/server/v3 v3.6.8\n\tk8s.io/kubernetes v1.35.4\n)\n\n"
        "replace (\n\tk8s.io/a => k8s.io/a v0.35.4\n\tk8s.io/b => k8s.io/b v0.35.4\n)\n"
    )


def test_a_program_of_another_directory_counts_for_what_is_kept(tmp_path: Path) -> None:
    """A change of the shared file is another thing to build."""
    source = tmp_path / "v1"
    source.mkdir()
    for name, text in {"go.mod": "module x\n", "go.sum": ""}.items():
        (source / name).write_text(text)
    shared = tmp_path / "main.go"
    shared.write_text("package main\n")
    module = builds.Module("x", source, (builds.Program("pause", "../main.go", 1),), "k8s.io/kubernetes")
    before = builds.fingerprint(module, "go1.26")
    shared.write_text("package main // changed\n")
    assert builds.fingerprint(module, "go1.26") != before
