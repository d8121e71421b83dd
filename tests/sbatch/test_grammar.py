"""End of directives, splitting of words, ignored lines: each rule was tested on sbatch 22.05.8."""

from __future__ import annotations

import pytest
from tests.sbatch.compiling import BASH, compiled, found, nodes

from penstock.sbatch import compiler


@pytest.mark.parametrize(
    ("text", "code"),
    [
        ("", "empty-script"),
        (" \n\t\n", "empty-script"),
        ("hostname\n", "missing-shebang"),
        ("\n#!/bin/bash\n", "missing-shebang"),
        ("\ufeff#!/bin/bash\n", "byte-order-mark"),
        ("#!/bin/bash\r\nhostname\r\n", "dos-line-breaks"),
        ("#!/bin/bash\n#SBATCH -N2\r\n", "dos-line-breaks"),
        ("#!/bin/bash\nhost\0name\n", "nul-byte"),
    ],
)
def test_unreadable_scripts(text: str, code: str) -> None:
    """One error for each reason why sbatch refuses the file."""
    done = compiled(text)
    assert not done.ok
    assert found(done, code).severity == "error"


def test_script_over_slurmctlds_limit_is_refused() -> None:
    """More than 4 MiB, without reading it."""
    done = compiled(b"#!/bin/bash\n" + b"x" * (4 * 1024 * 1024))
    assert [diagnostic.code for diagnostic in done.diagnostics] == ["script-too-large"]


@pytest.mark.parametrize(
    ("lines", "expected"),
    [
        ("#SBATCH -N2\n", 2),
        ("#SBATCH -N 2\n", 2),
        ("#SBATCH --nodes=2\n", 2),
        ("#SBATCH --nodes 2\n", 2),
        ("#SBATCH\t-N2\n", 2),
        ("#SBATCH-N2\n", 2),
        ("#SBATCH\r-N2\n", 2),
        ("#SLURM -N2\n", 2),
        ("#SBATCH -N2", 2),
        ("\n  # comment\n\n#SBATCH -N2\n", 2),
        ("#SBATCH -N2\n   #SBATCH -N3\n# SBATCH -N4\n##SBATCH -N5\n#sbatch -N6\n", 2),
        ("#SBATCH -N2\n: \n#SBATCH -N3\n", 2),
        ("#SBATCH -N2\n#SBATCH -N3\n", 3),
        ("#SBATCH -N2 # -N3\n", 2),
        ("#SBATCH -N2# -N3\n", 2),
        ("#SBATCH -N2 \\\n", 2),
        ("#SBATCH -N2 '' -N3\n", 2),
        ("#SBATCH -OsN 3\n", 3),
        ("#SBATCH -HN3\n", 3),
        ("#SBATCH -n4 --nodes=2 -c1\n", 2),
        ("#SBATCH\n", 1),
    ],
)
def test_forms_of_a_directive(lines: str, expected: int) -> None:
    """All that sbatch accepts, and no others."""
    assert nodes(BASH + lines) == expected


@pytest.mark.parametrize(
    ("line", "name"),
    [
        ("-J a#b", "a"),
        (r"-J a\#b", "a#b"),
        ("-J 'a#b c'", "a#b c"),
        ("""-J 'a"b c'"d 'e" """, "a\"b cd 'e"),
        (r"-J 'a\'b'", "a'b"),
        (r"-J a\\b\c", r"a\bc"),
        ("-J a''b", "ab"),
        (r'-J "a\"b"', 'a"b'),
        ("--job-name=", ""),
        ("--job-name =x", "=x"),
        ("--job x", "x"),
        ("-J\n#SBATCH -N2", "-N2"),
    ],
)
def test_quoting(line: str, name: str) -> None:
    """Quotes, escapes and comments work as in sbatch, not as in a shell."""
    spec = compiled(f"{BASH}#SBATCH {line}\nhostname\n").spec
    assert spec is not None
    assert spec.name == name


@pytest.mark.parametrize(
    ("line", "code", "hint"),
    [
        ("-J 'abc", "unmatched-quote", "close it"),
        (": -N2", "unexpected-colon", "quote"),
        ("-N2 : -n4", "unexpected-colon", "quote"),
        ("-N2 foo", "stray-word", "quote values with blanks"),
        ("--mem=16 G", "stray-word", "no blanks within the value: --mem=16G"),
        ("-J my job", "stray-word", '--job-name="my job"'),
        ("-N 2 4", "stray-word", "quote values with blanks"),
        ("-mem=4G", "invalid-distribution", "did you mean --mem=4G?"),
        ("-time=1:00:00", "invalid-time", "did you mean --time=1:00:00?"),
        ("-J a\\ b", "stray-word", '"a b"'),
        ("--job-name = x", "stray-word", "no blanks around the equals sign"),
        ("\u2014nodes=3", "stray-word", "typographic dash"),
        ("nodes=3", "stray-word", "--nodes=3"),
        ("-- -N2", "stray-word", ""),
        ("-J", "missing-value", "-J VALUE"),
        ("--job-name", "missing-value", "--job-name=VALUE"),
        ("--no 3", "ambiguous-option", "one of them"),
        ("-job-name=x", "unknown-option", "--job-name=x"),
        ("--nodse=3", "unknown-option", "--nodes"),
        ("--ntasks_per_node=3", "unknown-option", "--ntasks-per-node"),
        ("--walltime=3", "unknown-option", "--time"),
        ("--share", "unknown-option", "--oversubscribe"),
        ("--hold=3", "unexpected-value", "only --hold"),
        ("-Z", "unknown-option", "one dash"),
        ("-T 3", "unknown-option", "-t is --time"),
        ("--segment=2", "option-not-in-release", ""),
    ],
)
def test_mistakes_have_code_place_and_hint(line: str, code: str, hint: str) -> None:
    done = compiled(f"{BASH}#SBATCH {line}\nhostname\n")
    assert not done.ok
    diagnostic = found(done, code)
    assert diagnostic.line == 2
    assert hint in diagnostic.hint


def test_all_mistakes_are_reported() -> None:
    """sbatch stops at the first one."""
    done = compiled(f"{BASH}#SBATCH --foo -t 10m stray\n#SBATCH --mem=1.5G -Z\nhostname\n")
    codes = [diagnostic.code for diagnostic in done.diagnostics]
    assert codes == ["unknown-option", "invalid-time", "stray-word", "invalid-memory", "unknown-option"]


def test_directive_after_the_first_command_is_a_warning() -> None:
    """The warning names the command's line."""
    done = compiled(f"{BASH}#SBATCH -N2\nmodule load x\n#SBATCH -n 3\n#K8S_IMAGE=a\n")
    late = [item for item in done.diagnostics if item.code == "directive-after-command"]
    assert [(item.line, item.severity) for item in late] == [(4, "warning"), (5, "warning")]
    assert "line 3" in late[0].message
    assert done.ok


@pytest.mark.parametrize(
    ("line", "severity"),
    [
        ("# SBATCH --gres=gpu:2", "warning"),
        ("#sbatch -N2", "warning"),
        ("  #SBATCH -N2", "warning"),
        ("#SBTACH -N2", "warning"),
        ("##SBATCH -N2", "info"),
        ("# #SBATCH -N2", "info"),
    ],
)
def test_almost_a_directive_is_a_warning(line: str, severity: str) -> None:
    """sbatch ignores it silently; two # disable a line on purpose."""
    done = compiled(f"{BASH}{line}\nhostname\n")
    assert found(done, "almost-directive").severity == severity
    assert done.ok


def test_blanks_before_a_directive_are_reported() -> None:
    done = compiled(f"{BASH}\t#SBATCH -N2\nhostname\n")
    assert found(done, "almost-directive").message.startswith("blanks before the #")


@pytest.mark.parametrize(
    ("line", "severity"),
    [
        ("#k8s_image=a:1", "warning"),
        ("# K8S_IMAGE=a:1", "warning"),
        ("#K8S IMAGE=a:1", "warning"),
        ("  #K8S_IMAGE = a:1", "warning"),
        ("##k8s-image=a:1", "info"),
    ],
)
def test_almost_a_k8s_directive_is_a_warning(line: str, severity: str) -> None:
    """With the correct line; the script stays accepted."""
    done = compiled(f"{BASH}{line}\nhostname\n")
    said = found(done, "almost-directive")
    assert (said.severity, said.hint) == (
        severity,
        "if a directive is meant, write #K8S_IMAGE=a:1 at the start of the line",
    )
    assert done.ok


@pytest.mark.parametrize(
    ("line", "meant"),
    [("-output=x.txt", "--output=x.txt"), ("-partition=gpu", "--partition=gpu"), ("-wrap", "--wrap")],
)
def test_long_option_with_one_dash_is_a_warning(line: str, meant: str) -> None:
    """sbatch reads a letter with a value."""
    done = compiled(f"{BASH}#SBATCH {line}\nhostname\n")
    said = found(done, "one-dash")
    assert (done.ok, said.severity, said.hint) == (True, "warning", f"did you mean {meant}?")


@pytest.mark.parametrize("line", ["-Jmem=4G", "-Jwrap", "-t10", "-pgpu", "-Hk"])
def test_short_option_with_value_is_no_long_option(line: str) -> None:
    """Only the whole name of an option looks like one."""
    assert "one-dash" not in [item.code for item in compiled(f"{BASH}#SBATCH {line}\nhostname\n").diagnostics]


@pytest.mark.parametrize(
    "option",
    [
        "-o $HOME/x.out",
        "--error=~/x",
        "-D ~",
        "--mail-user=${USER}@a.org",
        "-J $(date)",
        "--export=A=$PATH:/b",
    ],
)
def test_unexpanded_variables_are_a_warning(option: str) -> None:
    """sbatch keeps the text; the job fails at start, or writes elsewhere."""
    done = compiled(f"{BASH}#SBATCH {option}\nhostname\n")
    assert done.ok
    assert found(done, "not-expanded").severity == "warning"


@pytest.mark.parametrize(
    "option", ["-o %x-%j.out", "-o /a/~b", "-J '5$ each'", "-J ~x", "--comment='a $5 job'"]
)
def test_patterns_and_dollars_are_not_variables(option: str) -> None:
    assert compiled(f"{BASH}#SBATCH {option}\nhostname\n").diagnostics == ()


def test_command_line_has_no_unexpanded_variables() -> None:
    """The shell has expanded them."""
    assert compiled(f"{BASH}hostname\n", "--output=$x").diagnostics == ()


@pytest.mark.parametrize("option", ["--uid=1", "--gid=staff"])
def test_another_owner_is_for_root_only(option: str) -> None:
    script = f"{BASH}#SBATCH {option}\nhostname\n".encode()
    assert compiler.compile_script(script).ok
    done = compiler.compile_script(script, context=compiler.Context(as_root=False))
    assert found(done, "root-only").severity == "error"


def test_comments_about_k8s_are_ignored() -> None:
    """Only assignments look like a directive."""
    done = compiled(f"{BASH}# k8s runs this\n# K8S: image a\n#K8S\nhostname\n# K8S_IMAGE=a\n")
    assert not done.diagnostics
