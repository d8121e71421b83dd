"""Any bytes give a verdict, without crash or hang."""

from __future__ import annotations

import time

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from penstock.model.podpolicy import PartitionPolicy, PodPolicy
from penstock.model.siteview import NodeKind, PartitionView, SiteView
from penstock.sbatch import compiler, lexer, options

SITE = SiteView(
    partitions={"gpu": PartitionView(max_time="7-0", default=True)},
    nodes=(NodeKind(count=4, cpus=8, memory_mib=32768, gpus=4, gpu_type="a100"),),
    pods=PodPolicy(allowed_images=("hub.local:5000",), partitions={"gpu": PartitionPolicy()}),
)
STRICT = compiler.Context(site=SITE, lint=True)
NAMES = [option.name for option in options.every_option()]
MIB = 1024 * 1024


@settings(deadline=None)
@given(data=st.binary(max_size=2000))
def test_arbitrary_bytes(data: bytes) -> None:
    done = compiler.compile_script(data, context=STRICT)
    assert done.ok or done.diagnostics


@settings(deadline=None)
@given(text=st.text(max_size=200))
def test_arbitrary_directive(text: str) -> None:
    data = f"#!/bin/sh\n#SBATCH {text}\n#K8S_{text}\n".encode("utf-8", "surrogatepass")
    done = compiler.compile_script(data, context=STRICT)
    assert done.ok == (done.spec is not None)


@settings(deadline=None)
@given(name=st.sampled_from(NAMES), value=st.text(max_size=40), release=st.sampled_from(options.RELEASES))
def test_any_value_of_any_option(name: str, value: str, release: str) -> None:
    """Grammars raise nothing but Problem."""
    context = compiler.Context(release=release, site=SITE, lint=True)
    done = compiler.compile_script(b"#!/bin/sh\n", arguments=[f"--{name}={value}"], context=context)
    assert done.ok == (done.spec is not None)


@given(words=st.lists(st.text("ab'\"\\# :-", min_size=1, max_size=8), max_size=6))
def test_offsets_of_words(words: list[str]) -> None:
    """Words begin at their offset, after a blank, and do not overlap."""
    line = "#SBATCH " + " ".join(words)
    split = lexer.split(line, 7)
    offsets = [word.offset for word in split.words]
    assert offsets == sorted(set(offsets))
    assert all(line[offset - 1] == " " and line[offset] != " " for offset in offsets)


@given(
    words=st.lists(st.text("abc123-=,./", min_size=1, max_size=8).filter(lambda w: w[0] != ":"), max_size=6)
)
def test_plain_words_round_trip(words: list[str]) -> None:
    split = lexer.split("#SBATCH " + " ".join(words), 7)
    assert [word.text for word in split.words] == words


@given(words=st.lists(st.text(" ab#'\"\\", min_size=1, max_size=8), max_size=5))
def test_quoted_words_round_trip(words: list[str]) -> None:
    """Quoted by sbatch's rules."""
    quoted = ['"' + word.replace("\\", "\\\\").replace('"', '\\"') + '"' for word in words]
    split = lexer.split("#SBATCH " + " ".join(quoted), 7)
    assert [word.text for word in split.words] == words


@pytest.mark.parametrize(
    "data",
    [
        b"#!/bin/sh\n" + b"#SBATCH -N2\n" * 300_000,
        b"#!/bin/sh\n#SBATCH " + b"'" * 3 * MIB,
        b"#!/bin/sh\n#SBATCH " + b"\\" * 3 * MIB,
        b"#!/bin/sh\n#SBATCH -J '" + b"a" * 3 * MIB + b"'\n",
        b"#!/bin/sh\n#SBATCH --nodelist=" + b"a[1,2]," * 400_000 + b"\n",
        b"#!/bin/sh\n#SBATCH --array=" + b"1," * MIB + b"\n",
        b"#!/bin/sh\n#SBATCH --array=0-4000000,0-4000000,0-4000000\n",
        b"#!/bin/sh\n#SBATCH --array=" + b",".join(b"%d-4000000:%d" % (n, n + 1) for n in range(60)) + b"\n",
        b"#!/bin/sh\n#SBATCH --array=" + b",".join(b"%d-4000000" % n for n in range(10_000)) + b"\n",
        b"#!/bin/sh\n#SBATCH --dependency=" + b"afterok:1," * 300_000 + b"\n",
        b"#!/bin/sh\n#SBATCH --gres=" + b"gpu:1," * 500_000 + b"\n",
        b"#!/bin/sh\n#SBATCH --begin=" + b"0101" * 500_000 + b"\n",
        b"#!/bin/sh\n#SBATCH --begin=" + b"now " * 500_000 + b"x\n",
        b"#!/bin/sh\n#SBATCH --begin='" + b"now+1  " * 40 + b"x'\n",
        b"#!/bin/sh\n#SBATCH --begin='now+1" + b" " * 100_000 + b"x'\n",
        b"#!/bin/sh\n#SBATCH --begin='" + b"1:00 - 0101 " * 9_000 + b"x'\n",
        b"#!/bin/sh\n#SBATCH --mem-bind='map_mem:" + b"1,,*2," * 15_000 + b"x'\n",
        b"#!/bin/sh\n#SBATCH --gpu-bind='mask_gpu:" + b"0x1,,f*2," * 12_000 + b"x'\n",
        b"#!/bin/sh\n#SBATCH --gpu-freq='" + b",,1" * 30_000 + b"x'\n",
        b"#!/bin/sh\n#SBATCH --export=" + b"A=1," * 700_000 + b"\n",
        b"#!/bin/sh\n#SBATCH --time=" + b"1" * MIB + b"\n",
        b"#!/bin/sh\n#SBATCH --mem=" + b"1" * MIB + b"\n",
        b"#!/bin/sh\n#SBATCH --" + b"n" * MIB + b"\n",
        b"#!/bin/sh\n#K8S_IMAGE=" + b"a-" * MIB + b"\n",
        b"#!/bin/sh\n#K8S_IMAGE=" + b" " * MIB + b"\n",
        b"#!/bin/sh\n#K8S_ENV=" + b"A" * MIB + b"=1\n",
        b"#!/bin/sh\n#" + b" " * 3 * MIB + b"\n",
        b"#!/bin/sh\n#k8s_" + b"_" * 3 * MIB + b"\n",
        b"#!/bin/sh\n#k8s a" + b"-_" * MIB + b" " * MIB + b"\n",
        b"#!/bin/sh\n" + b"# k8s a=\n" * 300_000,
        b"#!/bin/sh\n" + b"\n" * 3 * MIB,
        b"#!/bin/sh\n" + b"#SBATCH -t1\n" * 8000 + b"#SBATCH hetjob\n" * 1500,
        b"#!/bin/sh\n" + b"#SBATCH hetjob\n" * 1500 + b"#PBS -l nodes=1\n" * 150,
        b"#!/bin/sh\n" + b"#SBATCH hetjob\n" * 150 + b"#PBS -l nodes=1\n" * 10,
        b"#!/bin/sh\n" + b"#SBATCH --abcdefghijklmnopqrstu\n" * 9000,
        b"#!/bin/sh\n" + b"#K8S_ABCDEFGHIJ=1\n" * 9000,
        b"#!/bin/sh\nx\n" + b"#SBATCH -N2\n" * 200_000,
        b"\xff\xfe" * 5 * MIB,
        b"\0" * 10 * MIB,
        b"#!/bin/sh\n" + b"\x80" * 10 * MIB,
    ],
    ids=lambda data: f"{data[:24]!r}x{len(data)}",
)
def test_large_inputs_take_under_a_second(data: bytes) -> None:
    """Several tries on a busy machine."""
    assert any(_seconds_to_compile(data) < 1.0 for _ in range(10))


def _seconds_to_compile(data: bytes) -> float:
    start = time.process_time()
    compiler.compile_script(data, context=STRICT)
    return time.process_time() - start


@settings(max_examples=30, deadline=None)
@given(data=st.binary(max_size=300))
def test_result_is_deterministic(data: bytes) -> None:
    assert compiler.compile_script(data) == compiler.compile_script(data)
