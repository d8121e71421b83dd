"""The list of `make smoke-k8s`, and which tests `make test-k8s` runs."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest
from scripts import test_kubernetes

from tests import smoke

ROOT = Path(smoke.__file__).resolve().parent.parent


def functions(path: Path) -> set[str]:
    tree = ast.parse(path.read_text(encoding="utf-8"))
    return {node.name for node in ast.walk(tree) if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)}


@pytest.mark.parametrize("name", smoke.TESTS)
def test_every_promise_names_a_test_that_is_there(name: str) -> None:
    """A test that was renamed must not drop out of the list."""
    file, _, test = name.partition("::")
    assert test.partition("[")[0] in functions(ROOT / file)


def test_the_list_stays_short() -> None:
    """About forty, each once."""
    assert len(set(smoke.TESTS)) == len(smoke.TESTS)
    assert 35 <= len(smoke.TESTS) <= 50


def test_options_go_with_any_choice(monkeypatch: pytest.MonkeyPatch) -> None:
    """All tests, the short list, or those that are named."""
    monkeypatch.setattr(test_kubernetes, "workers", lambda best=3: best)
    monkeypatch.chdir(ROOT)
    whole = test_kubernetes.chosen(["--junitxml=x", "--strict"])
    assert whole[:4] == ["--numprocesses=3", "--dist=loadfile", "--junitxml=x", "tests/conformance"]
    short = test_kubernetes.chosen(["--smoke", "-o", "key=value"])
    assert short == ["--numprocesses=2", "--dist=loadfile", "-o", "key=value", *smoke.TESTS]
    named = ["-x", "tests/e2e/test_gang.py::test_quota_fails_the_job_with_the_reason"]
    assert test_kubernetes.chosen([*named, "--strict"]) == named
