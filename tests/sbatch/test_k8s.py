"""#K8S_ directives and image references."""

from __future__ import annotations

from typing import Any

import pytest

from penstock.model.jobspec import Mount, PodSpec, Toleration
from penstock.sbatch import compiler, images, k8s
from penstock.sbatch.values.problem import Problem

DIGEST = "sha256:" + "0123456789abcdef" * 4


def pod(*lines: str) -> PodSpec:
    """The PodSpec of a script, which must be accepted."""
    done = compiled(*lines)
    assert done.spec is not None, done.diagnostics
    return done.spec.pod


def compiled(*lines: str) -> compiler.Compilation:
    """A script with these #K8S_ lines."""
    return compiler.compile_script(("#!/bin/sh\n" + "".join(f"#K8S_{line}\n" for line in lines)).encode())


@pytest.mark.parametrize(
    ("line", "field", "value"),
    [
        ("IMAGE=a/b:1", "image", "a/b:1"),
        ("IMAGE='a/b:1'", "image", "a/b:1"),
        ('IMAGE="a/b:1" # why', "image", "a/b:1"),
        ("IMAGE=a/b:1   # why", "image", "a/b:1"),
        ("WORKDIR=/nas/x", "workdir", "/nas/x"),
        ("SCRIPT=run.sh", "script", "run.sh"),
        ("COMMAND=python -c 'print(1)'", "command", ("python", "-c", "print(1)")),
        ("COMMAND=@entrypoint", "own_entrypoint", True),
        ("SHM_SIZE=2G", "shm_mib", 2048),
        ("SHM_SIZE=64", "shm_mib", 64),
        ("SHM_SIZE=2Gi", "shm_mib", 2048),
        ("PRIORITY_CLASS=high", "priority_class", "high"),
        ("OUTPUTS=out/*.csv", "outputs", ("out/*.csv",)),
        ("MOUNT=/a", "mounts", (Mount("/a", "/a"),)),
        ("MOUNT=/a:/b:ro", "mounts", (Mount("/a", "/b", True),)),
        ("ENV=A=b=c d", "environment", {"A": "b=c d"}),
        ("PULL_SECRET=hub", "pull_secrets", ("hub",)),
        ("NODE_SELECTOR=disk=ssd", "node_selector", {"disk": "ssd"}),
        ("TOLERATION=gpu", "tolerations", (Toleration("gpu"),)),
        ("TOLERATION=gpu=a:NoSchedule", "tolerations", (Toleration("gpu", "Equal", "a", "NoSchedule"),)),
    ],
)
def test_values(line: str, field: str, value: Any) -> None:
    assert getattr(pod(line), field) == value


@pytest.mark.parametrize(
    ("line", "code", "hint"),
    [
        ("IMGAE=a", "unknown-directive", "#K8S_IMAGE"),
        ("image=a", "unknown-directive", "#K8S_IMAGE"),
        ("NODE-SELECTOR=a=b", "unknown-directive", "#K8S_NODE_SELECTOR"),
        ("XYZZY=1", "unknown-directive", "known:"),
        ("IMAGE", "invalid-k8s-value", "#K8S_IMAGE=value"),
        ("IMAGE a/b", "invalid-k8s-value", "#K8S_IMAGE=a/b"),
        ("IMAGE: a/b", "invalid-k8s-value", "#K8S_IMAGE=a/b"),
        ("IMAGE=", "invalid-k8s-value", "#K8S_IMAGE=value"),
        ("IMAGE = a/b", "invalid-k8s-value", "#K8S_IMAGE=a/b"),
        ("IMAGE= a/b", "invalid-k8s-value", "#K8S_IMAGE=a/b"),
        ("IMAGE =a/b", "invalid-k8s-value", "#K8S_IMAGE=a/b"),
        ("IMAGE=\fa/b", "invalid-k8s-value", "#K8S_IMAGE=a/b"),
        ("IMAGE='a/b", "unmatched-quote", ""),
        ("IMAGE=A/b", "invalid-k8s-value", "lower case"),
        ("WORKDIR=relative", "invalid-k8s-value", "begin with /"),
        ("WORKDIR=/a/../b", "invalid-k8s-value", "leave out .."),
        ("MOUNT=a:/b", "invalid-k8s-value", "begin with /"),
        ("MOUNT=/a:/b:rx", "invalid-k8s-value", "source"),
        ("ENV=1A=2", "invalid-k8s-value", "NAME=value"),
        ("ENV=SLURM_JOB_ID=2", "invalid-k8s-value", "another name"),
        ("SHM_SIZE=many", "invalid-k8s-value", "MiB"),
        ("OUTPUTS=../x", "invalid-k8s-value", "results"),
        ("TOLERATION=a:Never", "invalid-k8s-value", "NoSchedule"),
        ("NODE_SELECTOR=a", "invalid-k8s-value", "key=value"),
        ("PULL_SECRET=Not A Name", "invalid-k8s-value", "lower case"),
        ("PRIORITY_CLASS=system-node-critical", "invalid-k8s-value", "of the site"),
        ("COMMAND=a 'b", "invalid-k8s-value", "shell"),
    ],
)
def test_mistakes(line: str, code: str, hint: str) -> None:
    """With the closest valid directive, or the form."""
    done = compiled(line)
    assert not done.ok
    assert [found.code for found in done.diagnostics] == [code]
    assert hint in done.diagnostics[0].hint
    assert done.diagnostics[0].line == 2


@pytest.mark.parametrize("name", k8s.NAMES)
def test_values_must_be_utf8(name: str) -> None:
    """The place of the first invalid byte is reported."""
    done = compiler.compile_script(b"#!/bin/sh\n#K8S_" + name.encode() + b"=A=Z\xfcrich\n")
    (found,) = done.diagnostics
    assert (found.severity, found.code) == ("error", "invalid-k8s-value")
    assert (found.line, found.column) == (2, len(f"#K8S_{name}=A=Z") + 1)
    assert "byte 0xfc of the value is not UTF-8" in found.message
    assert found.hint == "save the script as UTF-8"


def test_non_ascii_values_are_accepted() -> None:
    assert pod("ENV=CITY=Zürich").environment == {"CITY": "Zürich"}


@pytest.mark.parametrize("name", ["UID", "OPTIND", "SHELLOPTS"])
def test_reserved_shell_variables_are_refused(name: str) -> None:
    """The shell would end; an image with its own entrypoint may have them."""
    (found,) = compiled("ENV=A=1", f"ENV={name}=x").diagnostics
    assert (found.severity, found.line) == ("error", 3)
    assert found.message == f"#K8S_ENV: {name} is reserved for the shell that runs the script"
    assert pod(f"ENV={name}=x", "COMMAND=@entrypoint").environment == {name: "x"}


def test_comment_after_a_value_may_be_any_bytes() -> None:
    """But not within quotes."""
    assert compiler.compile_script(b"#!/bin/sh\n#K8S_IMAGE=a # f\xfcr\n").ok
    (found,) = compiler.compile_script(b"#!/bin/sh\n#K8S_ENV='A=\xfc' # f\xfcr\n").diagnostics
    assert found.column == len("#K8S_ENV='A=") + 1


def test_second_image_is_an_error_second_mount_is_not() -> None:
    done = compiled("IMAGE=a", "IMAGE=b")
    assert [(found.code, found.line) for found in done.diagnostics] == [("duplicate-directive", 3)]
    assert len(pod("MOUNT=/a", "MOUNT=/b").mounts) == 2


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("pytorch", ("", "pytorch", "", "")),
        ("pytorch:2.1", ("", "pytorch", "2.1", "")),
        ("team/app", ("", "team/app", "", "")),
        ("nas-hub.local:5407/pytorch:latest", ("nas-hub.local:5407", "pytorch", "latest", "")),
        ("localhost/app", ("localhost", "app", "", "")),
        ("hub:5000/a/b_c/d--e", ("hub:5000", "a/b_c/d--e", "", "")),
        (f"hub.io/a@{DIGEST}", ("hub.io", "a", "", DIGEST)),
        (f"hub.io/a:1@{DIGEST}", ("hub.io", "a", "1", DIGEST)),
        ("[::1]:5000/a", ("[::1]:5000", "a", "", "")),
    ],
)
def test_image_references(text: str, expected: tuple[str, str, str, str]) -> None:
    """Registry, path, tag and digest by the OCI rules."""
    image = images.parse(text)
    assert (image.registry, image.path, image.tag, image.digest) == expected


@pytest.mark.parametrize(
    "text",
    [
        "",
        "Upper/case",
        "a:",
        "a:b c",
        "a@sha256:12",
        "https://hub/a",
        "hub.io/",
        "a//b",
        "-a",
        "hub:99999/a",
        "a" * 300,
    ],
)
def test_invalid_image_references(text: str) -> None:
    with pytest.raises(Problem):
        images.parse(text)
