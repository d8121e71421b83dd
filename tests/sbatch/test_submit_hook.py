"""`penstock validate` and job_submit.lua on the same scripts: what slurmctld will refuse is rejected before.

The other way round nothing is asked: the compiler looks closer than the Lua, which only guards the door.
"""

from __future__ import annotations

from collections.abc import Iterator

import msgspec
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from tests import luas

from penstock.model.podpolicy import PartitionPolicy, PodPolicy
from penstock.model.siteview import PartitionView, SiteView
from penstock.sbatch import compiler

SITE = SiteView(
    partitions={"pods": PartitionView(default=True), "more": PartitionView(), "host": PartitionView()},
    pods=PodPolicy(partitions={"pods": PartitionPolicy(), "more": PartitionPolicy()}),
)


@pytest.fixture(scope="module")
def lua() -> Iterator[luas.Lua]:
    """The installed job_submit.lua."""
    lua = luas.Lua()
    lua.run(luas.job_submit("pods", "more"))
    yield lua
    lua.close()


def refused(lua: luas.Lua, script: bytes, *options: str) -> bytes:
    """slurmctld's message for this submission."""
    fields = {"script": script, "name": b"job.sh"}
    for option in options:
        name, _, value = option.removeprefix("--").partition("=")
        fields["name" if name == "job-name" else name] = value.encode()
    return lua.refusal(fields)


def codes(script: bytes, *options: str, site: SiteView | None = SITE) -> list[str]:
    context = compiler.Context(site=site)
    done = compiler.compile_script(script, name="job.sh", arguments=options, context=context)
    return [found.code for found in done.diagnostics if found.severity == "error"]


def script(*lines: str) -> bytes:
    return "".join(f"{line}\n" for line in ("#!/bin/sh", *lines)).encode()


@pytest.mark.parametrize(
    "line",
    [
        *("#K8S_IMAGE = x", "#K8S_IMAGE= x", "#K8S_IMAGE =x", "#K8S_IMAGE:x", "#K8S_IMAGE x", "#K8S_IMAGE="),
        *("#K8S_=x", "#K8S_", "#K8S_image=x", "#K8S_NODE-SELECTOR=a=b", "#K8S_IMAGE=\t", "#K8S_IMAGE=\vx"),
    ],
)
def test_invalid_k8s_lines(lua: luas.Lua, line: str) -> None:
    """Both refuse them."""
    text = script("# a comment", "", line, "true")
    assert b"line 4 of the script" in refused(lua, text)
    assert codes(text)
    assert codes(text, site=None)


@pytest.mark.parametrize(
    ("line", "workdir", "is_refused"),
    [
        ("", "/home/alice", True),
        ("", "/nasty", True),
        ("", "/nas/../home", True),
        ("", "/nas", False),
        ("", "/nas/x", False),
        ("#K8S_WORKDIR=/app", "/home/alice", False),
        ("#K8S_MOUNT=/nas/a:/home/alice", "/home/alice/x", False),
        ("#K8S_COMMAND=@entrypoint", "/home/alice", False),
    ],
)
def test_working_directories_outside_pods(line: str, workdir: str, is_refused: bool) -> None:
    """Both refuse them; for the current folder validate only warns."""
    lua, site = (
        luas.Lua(),
        msgspec.structs.replace(SITE, pods=msgspec.structs.replace(SITE.pods, shared_mounts=("/nas",))),
    )
    lua.run(luas.job_submit("pods", shared=("/nas",), missing_workdir="refuse"))
    try:
        text = script(line, "true")
        assert bool(lua.refusal({"script": text, "name": b"x", "work_dir": workdir.encode()})) == is_refused
        assert codes(text, f"--chdir={workdir}", site=site) == ["missing-workdir"] * is_refused
        assert codes(text, f"--chdir={workdir}", "--partition=host", site=site) == []
        context = compiler.Context(site=site, workdir=workdir)
        done = compiler.compile_script(text, name="job.sh", context=context)
        assert [(each.severity, each.code) for each in done.diagnostics] == [
            ("warning", "missing-workdir")
        ] * is_refused
    finally:
        lua.close()


@pytest.mark.parametrize(
    "lines",
    [
        ("#K8S_IMAGE=x", "true"),
        ("#K8S_ENV=A=b c # why", "true"),
        ("  # K8S_IMAGE = x", "true"),
        ("true", "#K8S_IMAGE = x"),
        ("cat <<END", "#K8S_IMAGE x", "END"),
        ("\t true", "#K8S_"),
    ],
)
def test_valid_k8s_lines(lua: luas.Lua, lines: tuple[str, ...]) -> None:
    """Both accept them, and ignore lines after the first command."""
    assert not refused(lua, script(*lines))
    assert not codes(script(*lines))


@pytest.mark.parametrize(
    ("options", "code"),
    [
        (("--job-name=a\tb",), "control-character"),
        (("--job-name=a\x7f",), "control-character"),
        (("--partition=pods,host",), "partly-bridged"),
        (("--container=/bundle",), "container"),
        (("--partition=more", "--container=/bundle"), "container"),
    ],
)
def test_refused_options(lua: luas.Lua, options: tuple[str, ...], code: str) -> None:
    """By both, in bridged partitions."""
    assert refused(lua, script("true"), *options)
    assert codes(script("true"), *options) == [code]


@pytest.mark.parametrize(
    "options",
    [
        ("--job-name=Zürich 1",),
        ("--partition=host", "--job-name=a\tb"),
        ("--partition=host", "--container=/bundle"),
        ("--partition=pods,more",),
        ("--reservation=maintenance", "--container=/bundle"),
    ],
)
def test_accepted_options(lua: luas.Lua, options: tuple[str, ...]) -> None:
    """By both; only slurmctld knows a reservation's partitions."""
    known = tuple(option for option in options if "reservation" not in option)
    if known == options:
        assert not refused(lua, script("true"), *options)
    assert not codes(script("true"), *options)


def test_without_a_site_only_what_no_partition_needs_is_an_error() -> None:
    """The bridged partitions are unknown."""
    assert codes(script("true"), "--job-name=a\tb", site=None) == ["control-character"]
    assert codes(script("true"), "--container=/bundle", "--partition=pods,host", site=None) == []


def test_file_name_is_the_job_name() -> None:
    """It may contain any character."""
    done = compiler.compile_script(script("true"), name="a\nb.sh")
    assert [found.code for found in done.diagnostics] == ["control-character"]


@pytest.mark.parametrize(
    ("first", "second", "severity"),
    [
        ("pods", "pods", "error"),
        ("host", "pods", "error"),
        ("host", "host", "warning"),
        ("pods", "host", "warning"),
    ],
)
def test_heterogeneous_jobs(lua: luas.Lua, first: str, second: str, severity: str) -> None:
    """slurmctld calls the Lua for every component; later ones have no script."""
    refusals = [
        lua.refusal({"partition": first.encode(), "script": script("true")}),
        lua.refusal({"partition": second.encode()}),
    ]
    assert any(refusals) == (severity == "error")
    text = script(f"#SBATCH -p {first}", "#SBATCH hetjob", f"#SBATCH -p {second}", "true")
    done = compiler.compile_script(text, context=compiler.Context(site=SITE))
    assert [(found.code, found.severity) for found in done.diagnostics] == [("hetjob", severity)]


@pytest.mark.parametrize(
    ("option", "nodes", "is_said"), [("-N2", "2", True), ("-N1", "1", False), ("-t5", "4294967294", False)]
)
def test_idle_pods(lua: luas.Lua, option: str, nodes: str, is_said: bool) -> None:
    """Both warn and accept the job; plain partitions have job steps for other nodes."""
    job = {"script": script("true"), "name": b"x", "min_nodes": nodes.encode()}
    assert (b"stay idle" in lua.hints(job)) is is_said
    assert not lua.hints(job | {"partition": b"host"})
    for partition, expected in (("pods", ["idle-pods"] * is_said), ("host", [])):
        arguments = (option, f"--partition={partition}")
        done = compiler.compile_script(
            script("true"), arguments=arguments, context=compiler.Context(site=SITE)
        )
        assert [(found.severity, found.code) for found in done.diagnostics] == [
            ("warning", code) for code in expected
        ]


LINES = st.sampled_from(["", "true", "# x", " \t", "#K8S_IMAGE=x", "#SBATCH -N1"]) | st.text(
    "AZ_az- =:\t\v\fx#'\"é", max_size=12
).map(lambda text: f"#K8S_{text}")


@settings(max_examples=500, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(lines=st.lists(LINES, max_size=5))
def test_scripts_refused_by_the_lua_are_rejected(lua: luas.Lua, lines: list[str]) -> None:
    text = script(*lines)
    assert not refused(lua, text) or codes(text)
