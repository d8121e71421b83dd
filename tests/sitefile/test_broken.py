"""Broken site files: every message has the line, what was found and what to do."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock import errors
from penstock.site import loader, yamlreader
from penstock.site.findings import SiteError

GOOD = Path(__file__).with_name("good.yaml").read_text()

CASES: dict[str, tuple[str, str, str, str]] = {
    # name: what is replaced, by what, text of the line that must be reported, part of the message
    "unknown key": ("    mode: check\n", "    mod: check\n", "mod: check", "did you mean `mode`?"),
    "unknown section": ("timeouts:\n", "timeout:\n", "timeout:", "did you mean `timeouts`?"),
    "unknown key far from any": (
        "    default: true\n",
        "    xyzzy: true\n",
        "xyzzy",
        "allowed here: mode, nodes",
    ),
    "unknown choice": ("mode: check", "mode: chek", "mode: chek", "did you mean `check`?"),
    "invalid choice": ("manage: include", "manage: everything", "everything", "allowed: include, whole"),
    "text for a number": (
        "    cpus: 64",
        "    cpus: many",
        "cpus: many",
        "found 'many'; expected: a whole number",
    ),
    "number in quotes": ("    cpus: 64", '    cpus: "64"', 'cpus: "64"', "expected: a whole number"),
    "fraction of a CPU": ("    cpus: 64", "    cpus: 1.5", "cpus: 1.5", "expected: a whole number"),
    "no CPUs": ("    cpus: 64", "    cpus: 0", "cpus: 0", "at least 1 is allowed"),
    "port out of range": ("  port: 6817", "  port: 70000", "port: 70000", "at most 65535 is allowed"),
    "negative weight": ("      age: 1000", "      age: -1", "age: -1", "at least 0 is allowed"),
    "memory without unit": ("memory: 512Gi", "memory: 512", "memory: 512", "such as 32Gi"),
    "memory with a wrong unit": ("memory: 512Gi", "memory: 512GB", "512GB", "a number with Mi, Gi or Ti"),
    "word for yes": ("default: true", "default: yes", "default: yes", "expected: true or false"),
    "list for a word": ("  conf: /etc/slurm/slurm.conf", "  conf: [a]", "conf: [a]", "an absolute path"),
    "word for a list": ("    nodes: [big]\n", "    nodes: big\n", "nodes: big", "expected: a list"),
    "word for a mapping": ("  jobs: {value: 1000}", "  jobs: 1000", "jobs: 1000", "expected: a mapping"),
    "relative path": ("  path: /nas", "  path: nas", "path: nas", "an absolute path"),
    "path with a blank": ("path: /nas", "path: /my nas", "my nas", "plain letters"),
    "folder outside the NAS": (
        "drop: slurm-jobs",
        "drop: ../etc",
        "../etc",
        "below the NAS's path",
    ),
    "release as a number": ('release: "22.05"', "release: 22.05", "release: 22.05", 'such as "22.05"'),
    "time with letters": ("max_time: 1:30:00", "max_time: 90m", "max_time: 90m", "hours:minutes:seconds"),
    "missing key": ("  path: /nas\n", "", "nas:", "`path` is missing"),
    "missing nodes": ("    nodes: [big]\n    default", "    default", "gpu:", "`nodes` is missing"),
    "duplicate partition": (
        "  cpu:\n    mode",
        "  gpu:\n    mode",
        "  gpu:",
        "duplicate key `gpu`, first in line",
    ),
    "duplicate key": ("    gpus: 4\n", "    gpus: 4\n    gpus: 8\n", "gpus: 8", "keep one of them"),
    "unknown node group": ("nodes: [big]", "nodes: [bigg]", "[bigg]", "did you mean `big`?"),
    "node instead of a group": ("nodes: [big]", "nodes: [n1]", "[n1]", "`n1` is a node, not a node group"),
    "node in no group": ("nodes: [big]", "nodes: [n9]", "[n9]", "node group `n9` is not defined"),
    "group in no partition": (
        "nodes: [small, big]",
        "nodes: [big]",
        "  small:",
        "no partition uses node group `small`",
    ),
    "node in two groups": (
        "    selector: {pool: small}",
        "    nodes: n4",
        "nodes: n4",
        "in group `big`, too",
    ),
    "node twice": ("nodes: n[1-4]", "nodes: n[1-4],n2", "n2", "twice in this group"),
    "broken host list": ("nodes: n[1-4]", "nodes: n[1-4", "n[1-4", "brackets do not match"),
    "list and labels": (
        "    nodes: n[1-4]",
        "    nodes: n[1-4]\n    selector: {a: b}",
        "  big:",
        "both `nodes` and `selector`",
    ),
    "no size": ("    cpus: 64\n", "", "  big:", "`cpus` not given"),
    "everything reserved": (
        "reserved: {cpus: 2,",
        "reserved: {cpus: 64,",
        "cpus: 64,",
        "leave at least one CPU",
    ),
    "unknown GPU type": ("gpu_type: a100", "gpu_type: a10", "gpu_type: a10", "did you mean `a100`?"),
    "GPU type without GPUs": ("    gpus: 4\n", "", "gpu_type: a100", "a GPU type without GPUs"),
    "GPU resource nobody serves": (
        "    labels: {gpu: a100}",
        "    resource: kubernetes.io/batch-cpu",
        "kubernetes.io",
        "what a device plugin advertises",
    ),
    "GPU type that is a number": ("  a100:\n", '  "4":\n', '"4":', "use a letter"),
    "two default partitions": (
        "    mode: trust\n",
        "    mode: trust\n    default: true\n",
        "    default: true",
        "already is the default partition",
    ),
    "default above the limit": (
        "default_time: 60",
        "default_time: 2:00:00",
        "2:00:00",
        "more than max_time 1:30:00",
    ),
    "image that is not allowed": (
        "default_image: registry.example.org/base:1",
        "default_image: docker.io/base:1",
        "docker.io",
        "begin with registry.example.org/",
    ),
    "image that only looks allowed": (
        "default_image: registry.example.org/base:1",
        "default_image: registry.example.org.evil/base:1",
        "evil",
        "begin with registry.example.org/",
    ),
    "unknown directive": (
        "  pod_security: privileged",
        "  forbidden_directives: [MOUNTS]",
        "[MOUNTS]",
        "did you mean `MOUNT`?",
    ),
    "unknown PriorityClass": (
        "priority_class: jobs",
        "priority_class: job",
        "priority_class",
        "did you mean `jobs`?",
    ),
    "network that Pod Security refuses": (
        "  pod_security: privileged",
        "  pod_security: baseline",
        "network: host",
        "kubernetes.pod_security: privileged",
    ),
    "unknown account": (
        "allow_accounts: [research]",
        "allow_accounts: [resarch]",
        "resarch",
        "did you mean `research`?",
    ),
    "quota below one node": ("cpus: 128,", "cpus: 8,", "cpus: 8,", "8 CPUs are less than one node (64)"),
    "memory quota below one node": ("memory: 1Ti", "memory: 1Gi", "memory: 1Gi", "less than one node"),
    "same namespace for all": (
        "user-{user}",
        "users",
        "namespace_pattern",
        "put {user} or {uid} in it, or {account}",
    ),
    "unknown word in braces": (
        "user-{user}",
        "user-{usr}",
        "namespace_pattern",
        "only {user}, {uid}, {account} and {cluster}",
    ),
    "namespaces that could collide": (
        "user-{user}",
        "u-{user}-{account}",
        "namespace_pattern",
        "user a-b of account c and user a of account b-c",
    ),
    "reserved namespace": (
        "user-{user}",
        "kube-{user}",
        "alice:",
        "which is reserved",
    ),
    "quota of a user without a namespace": (
        "user-{user}",
        "team-{account}",
        "quota",
        "namespaces are not per user name",
    ),
    "quota of an account without a namespace": (
        "  research:\n",
        "  research:\n    quota: {pods: 9}\n",
        "quota: {pods: 9}",
        "namespaces are per user",
    ),
    "times in the wrong order": (
        "  release: 270",
        "  release: 400",
        "epilog: 300",
        "kill_wait < release < epilog",
    ),
    "socket path too long": ("/run/penstock/penstockd.sock", f"/run/{'p' * 120}", "socket:", "at most 107"),
    "hooks' path too long": ("/usr/libexec/penstock", f"/usr/{'p' * 130}", "libexec:", "`#!` line"),
    "ports that clash": ("first_port: 17001", "first_port: 6815", "first_port", "already used by slurmctld"),
    "ports beyond the last": (
        "first_port: 17001",
        "first_port: 65534",
        "first_port",
        "highest port is 65535",
    ),
    "tab": ("  port: 6817", "\tport: 6817", "\tport", "indent with spaces"),
    "anchor": ("  jobs: {value: 1000}", "  jobs: &a {value: 1000}", "&a", "a site file has no aliases"),
    "tag": ("  port: 6817", "  port: !!int 6817", "!!int", "values need no tags"),
    "second document": ("timeouts:\n", "---\ntimeouts:\n", "---", "keep one document"),
    "bracket that is not closed": ("nodes: [big]", "nodes: [big", "default: true", "check brackets"),
    "two colons": (
        "cluster: hall",
        "cluster: hall: of: fame",
        "cluster: hall",
        "check brackets, quotes, colons",
    ),
    "bad indentation": ("  port: 6817", "   port: 6817", "   port", "indentation"),
    "control character": ("cluster: hall", "cluster: hall\x07", "cluster", "control character 0x07"),
    "cluster name in capitals": ("cluster: hall", "cluster: HALL", "HALL", "small letters"),
    "nothing after a key": ("cluster: hall", "cluster:", "cluster:", "found nothing"),
    "no partitions": (
        GOOD[GOOD.index("partitions:") : GOOD.index("priority_classes:")],
        "partitions: {}\n",
        "partitions: {}",
        "at least one entry is needed",
    ),
    "one folder for drop and results": (
        "drop: slurm-jobs",
        "drop: results",
        "nas:",
        "is also `drop`",
    ),
}


def findings(text: str | bytes) -> SiteError:
    with pytest.raises(SiteError) as caught:
        loader.loads(text if isinstance(text, bytes) else text.encode())
    return caught.value


def test_valid_file_is_accepted() -> None:
    """The broken files differ from it in one place. A time in it stays a time."""
    site = loader.loads(GOOD.encode())
    assert site.partitions["gpu"].max_time == "1:30:00"
    assert site.partitions["gpu"].default_time == "60"


@pytest.mark.parametrize("name", CASES)
def test_broken_file_is_refused_with_line_and_remedy(name: str) -> None:
    old, new, line_text, words = CASES[name]
    assert GOOD.count(old) >= 1, "the test itself is out of date"
    text = GOOD.replace(old, new, 1)
    error = findings(text)
    hits = [each for each in error.findings if words in f"{each.message}; {each.remedy}"]
    assert hits, error.message
    lines = text.split("\n")
    assert any(line_text in lines[each.line - 1] for each in hits), (error.message, line_text)
    assert all(each.remedy for each in error.findings)
    assert "Traceback" not in error.message


def test_invalid_utf8_is_reported_with_its_position() -> None:
    error = findings(GOOD.replace("hall", "h\udcffll").encode(errors="surrogateescape"))
    assert (error.findings[0].line, error.findings[0].column) == (3, 11)
    assert "byte 0xff is not UTF-8; save the file as UTF-8" in error.message


def test_billion_laughs_is_refused() -> None:
    """Ten lines of aliases that would expand to gigabytes are refused at the first."""
    lines = ['a: &a ["x","x","x","x","x","x","x","x","x"]']
    lines += [f"{b}: &{b} [{','.join(['*' + a] * 9)}]" for a, b in zip("abcdefgh", "bcdefghi", strict=True)]
    assert "line" not in findings("\n".join(lines)).findings[0].message
    assert findings("\n".join(lines)).findings[0].line == 1


def test_deep_large_and_empty_files_are_refused() -> None:
    assert "levels" in findings("x: " + "[" * 5000).message
    assert "bytes" in findings("#" * (yamlreader.MAX_BYTES + 1)).message
    assert "the file is empty" in findings("# only a comment\n").message


def test_all_mistakes_are_reported_at_once() -> None:
    """Schema, references and duplicates, each once, in the order of the file."""
    text = GOOD.replace("    cpus: 64", "    cpus: many").replace("[big]", "[bigg]", 1)
    text = text.replace("timeouts:\n", "timeouts:\n  kill_wait: 3\n").replace("cluster: hall", "cluster: 7")
    error = findings(text)
    assert [each.key for each in error.findings] == [
        "cluster", "node_groups.big.cpus", "partitions.gpu.nodes.0", "timeouts.kill_wait",
    ]  # fmt: skip
    assert error.exit_code == 2


def test_missing_file_is_reported_with_a_hint(tmp_path: Path) -> None:
    with pytest.raises(errors.UsageError, match="cannot read the site file") as caught:
        loader.load(tmp_path / "none.yaml")
    assert "penstock init" in caught.value.hint


@given(at=st.integers(0, len(GOOD) - 1), piece=st.text(max_size=6))
def test_any_text_gives_a_site_or_mistakes(at: int, piece: str) -> None:
    try:
        loader.loads((GOOD[:at] + piece + GOOD[at + len(piece) :]).encode(errors="surrogatepass"))
    except SiteError as error:
        assert all(each.line >= 1 and each.remedy for each in error.findings)  # noqa: PT017  # either is right


@given(st.binary(max_size=200))
def test_any_bytes_give_mistakes(content: bytes) -> None:
    with pytest.raises(SiteError):
        loader.loads(content)
