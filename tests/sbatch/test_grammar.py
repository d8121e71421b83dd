"""Where directives end, how words are split, what sbatch drops: each rule tried on sbatch 22.05.8 itself."""

from __future__ import annotations

import pytest

from penstock.sbatch import compiler, lexer
from penstock.sbatch.diagnostics import Diagnostic

BASH = "#!/bin/bash\n"


def compiled(text: str | bytes, *arguments: str, **variables: str) -> compiler.Compilation:
    """Compile a script given as text."""
    data = text if isinstance(text, bytes) else text.encode()
    return compiler.compile_script(data, name="job.sh", arguments=arguments, variables=variables)


def nodes(text: str, *arguments: str, **variables: str) -> int:
    """The minimum of nodes a script that must be accepted asks for."""
    done = compiled(text, *arguments, **variables)
    assert done.spec is not None, done.diagnostics
    return done.spec.nodes.minimum


def found(done: compiler.Compilation, code: str) -> Diagnostic:
    """The one finding with that code."""
    matching = [diagnostic for diagnostic in done.diagnostics if diagnostic.code == code]
    assert len(matching) == 1, done.diagnostics
    return matching[0]


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
def test_files_sbatch_refuses_as_a_whole(text: str, code: str) -> None:
    """What makes the file unreadable to sbatch is one named error."""
    done = compiled(text)
    assert not done.ok
    assert found(done, code).severity == "error"


def test_a_script_over_slurmctlds_limit_is_refused() -> None:
    """More than 4 MiB is refused without being read."""
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
    """Every spelling sbatch takes is taken, and nothing else counts."""
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
    """Quotes, escapes and comments work as in sbatch, which is not as in a shell."""
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
def test_mistakes_are_named_with_a_hint(line: str, code: str, hint: str) -> None:
    """A mistake is an error of its own kind, at its line, with what to write instead."""
    done = compiled(f"{BASH}#SBATCH {line}\nhostname\n")
    assert not done.ok
    diagnostic = found(done, code)
    assert diagnostic.line == 2
    assert hint in diagnostic.hint


def test_all_mistakes_come_out_at_once() -> None:
    """sbatch stops at its first complaint; the compiler does not."""
    done = compiled(f"{BASH}#SBATCH --foo -t 10m stray\n#SBATCH --mem=1.5G -Z\nhostname\n")
    codes = [diagnostic.code for diagnostic in done.diagnostics]
    assert codes == ["unknown-option", "invalid-time", "stray-word", "invalid-memory", "unknown-option"]


def test_a_directive_after_the_first_command_is_a_warning_that_names_it() -> None:
    """What sbatch never reads is said, with the line that ended the directives."""
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
def test_a_line_that_is_almost_a_directive_is_a_warning(line: str, severity: str) -> None:
    """What it asks for is lost, and sbatch says nothing; two # are how people switch a line off."""
    done = compiled(f"{BASH}{line}\nhostname\n")
    assert found(done, "almost-directive").severity == severity
    assert done.ok


def test_blanks_before_a_directive_are_named() -> None:
    """The word itself is right: it is said what is wrong."""
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
def test_a_line_that_is_almost_a_k8s_directive_is_a_warning(line: str, severity: str) -> None:
    """Nobody reads them: the right line is shown, and the verdict stays."""
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
def test_a_long_option_with_one_dash_that_sbatch_takes(line: str, meant: str) -> None:
    """It is a letter with a value to sbatch, and a warning."""
    done = compiled(f"{BASH}#SBATCH {line}\nhostname\n")
    said = found(done, "one-dash")
    assert (done.ok, said.severity, said.hint) == (True, "warning", f"did you mean {meant}?")


@pytest.mark.parametrize("line", ["-Jmem=4G", "-Jwrap", "-t10", "-pgpu", "-Hk"])
def test_a_letter_with_its_value_is_none(line: str) -> None:
    """Only what is an option's whole name looks like one."""
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
def test_what_a_shell_would_put_in_is_a_warning(option: str) -> None:
    """sbatch takes the text as it stands; the job fails at its start, or writes elsewhere."""
    done = compiled(f"{BASH}#SBATCH {option}\nhostname\n")
    assert done.ok
    assert found(done, "not-expanded").severity == "warning"


@pytest.mark.parametrize(
    "option", ["-o %x-%j.out", "-o /a/~b", "-J '5$ each'", "-J ~x", "--comment='a $5 job'"]
)
def test_patterns_and_prices_are_no_variables(option: str) -> None:
    """Slurm puts in its own patterns."""
    assert compiled(f"{BASH}#SBATCH {option}\nhostname\n").diagnostics == ()


def test_what_the_shell_has_put_in_is_none_of_it() -> None:
    """On the command line a shell has had its turn."""
    assert compiled(f"{BASH}hostname\n", "--output=$x").diagnostics == ()


@pytest.mark.parametrize("option", ["--uid=1", "--gid=staff"])
def test_another_owner_is_for_root(option: str) -> None:
    """sbatch asks who calls it."""
    script = f"{BASH}#SBATCH {option}\nhostname\n".encode()
    assert compiler.compile_script(script).ok
    done = compiler.compile_script(script, context=compiler.Context(as_root=False))
    assert found(done, "root-only").severity == "error"


def test_words_about_k8s_are_a_comment() -> None:
    """Only what sets something looks like a directive."""
    done = compiled(f"{BASH}# k8s runs this\n# K8S: image a\n#K8S\nhostname\n# K8S_IMAGE=a\n")
    assert not done.diagnostics


def test_command_line_over_environment_over_script() -> None:
    """The three sources win in sbatch's order."""
    script = f"{BASH}#SBATCH -t 5 -J s\nhostname\n"
    assert compiled(script).spec.time_limit == 5  # type: ignore[union-attr]  # accepted, so there is one
    assert compiled(script, SBATCH_TIMELIMIT="6").spec.time_limit == 6  # type: ignore[union-attr]  # same
    assert compiled(script, "-t7", SBATCH_TIMELIMIT="6").spec.time_limit == 7  # type: ignore[union-attr]  # same


@pytest.mark.parametrize(
    ("text", "accepted"),
    [
        ("nomultithread,compute_bound", True),
        ("Memory_Bound,multithread", True),
        ("nomultithread,", False),
        (",nomultithread", False),
        ("nomultithread,x", False),
        ("'compute_bound, memory_bound'", False),
    ],
)
def test_hints_may_be_several(text: str, accepted: bool) -> None:
    """sbatch takes a list, and refuses it for one word."""
    assert compiled(f"{BASH}#SBATCH --hint={text}\nhostname\n").ok == accepted


def test_a_refused_value_is_refused_even_when_it_is_replaced() -> None:
    """sbatch parses the script's value before it looks at the command line's."""
    assert not compiled(f"{BASH}#SBATCH -t x\nhostname\n", "-t", "7").ok


@pytest.mark.parametrize(
    ("value", "requeue"), [("", False), ("yes", False), ("1", False), ("0", None), ("no", None)]
)
def test_flags_in_the_environment(value: str, requeue: bool | None) -> None:
    """A flag's variable counts when it is empty, yes or a number that is not 0."""
    spec = compiled(f"{BASH}hostname\n", SBATCH_NO_REQUEUE=value).spec
    assert spec is not None
    assert spec.requeue is requeue


def test_memory_of_the_environment_gives_way_to_the_scripts() -> None:
    """SBATCH_MEM_PER_CPU does not conflict with --mem of the script; two variables conflict."""
    script = f"{BASH}#SBATCH --mem=1G\nhostname\n"
    spec = compiled(script, SBATCH_MEM_PER_CPU="2G").spec
    assert spec is not None
    assert spec.memory is not None
    assert (spec.memory.scope, spec.memory.mib) == ("node", 1024)
    both = {"SBATCH_MEM_PER_CPU": "1G", "SBATCH_MEM_PER_NODE": "2G"}
    assert not compiled(f"{BASH}hostname\n", **both).ok


def test_mail_types_add_up() -> None:
    """--mail-type is the option where the last one does not win."""
    spec = compiled(f"{BASH}#SBATCH --mail-type=begin --mail-type=end\nhostname\n").spec
    assert spec is not None
    assert spec.mail_types == ("BEGIN", "END")


@pytest.mark.parametrize(
    ("directive", "tasks", "cpus_per_task", "least_nodes"),
    [
        ("-n 5450367696", 1155400400, 1, 1),
        ("-c 4294967300", 1, 4, 1),
        ("-N 2147483648-5 -n5", 5, 1, 1),
        ("-n 0000000000000000000000000000003", 3, 1, 1),
    ],
)
def test_numbers_of_more_than_32_bits(
    directive: str, tasks: int, cpus_per_task: int, least_nodes: int
) -> None:
    """What `sbatch -v` shows of them is what the job asks for, not 1."""
    spec = compiled(f"{BASH}#SBATCH {directive}\nhostname\n").spec
    assert spec is not None
    assert (spec.tasks, spec.cpus_per_task, spec.nodes.minimum) == (tasks, cpus_per_task, least_nodes)


@pytest.mark.parametrize(
    ("hint", "tasks"), [("nomultithread", 12), ("multithread", 12), ("memory_bound", 4), ("compute_bound", 2)]
)
def test_a_hint_of_the_environment_leaves_sockets_and_cores_alone(hint: str, tasks: int) -> None:
    """SLURM_HINT is set inside jobs, from which people submit others: counted as `sbatch -v` says."""
    script = f"{BASH}#SBATCH -N2 --sockets-per-node=2 --cores-per-socket=3\nhostname\n".encode()
    spec = compiler.compile_script(script, variables={"SLURM_HINT": hint}).spec
    assert spec is not None
    assert spec.tasks == tasks


@pytest.mark.parametrize("gres", ["craynetwork:0", "craynetwork:0,gpu:1", "fpga:a:0"])
def test_none_of_a_resource_that_is_not_there(gres: str) -> None:
    """Scripts of other sites say so, and sbatch 22.05 takes them."""
    done = compiled(f"{BASH}#SBATCH --gres={gres}\nhostname\n")
    assert done.ok
    assert done.spec is not None
    assert sum(each.count for each in done.spec.gres.per_node) == gres.count("gpu")


@pytest.mark.parametrize(
    ("text", "number", "batch"),
    [
        ("USR1", 10, False),
        ("BUSR1@60", 10, True),
        ("B10", 10, True),
        ("RBR:TERM", 15, True),
        ("-1", 65535, False),
        ("65546", 10, False),
    ],
)
def test_which_signal_is_sent_and_to_whom(text: str, number: int, batch: bool) -> None:
    """The colon may be left out, and of a number 16 bits are kept."""
    spec = compiled(f"{BASH}#SBATCH --signal={text}\nhostname\n").spec
    assert spec is not None
    assert spec.signal is not None
    assert (spec.signal.number, spec.signal.to_batch) == (number, batch)


@pytest.mark.parametrize(("text", "seconds"), [("USR1", 60), ("USR1@", 0), ("B:USR1@0", 0), ("USR1@10", 10)])
def test_when_a_signal_is_sent(text: str, seconds: int) -> None:
    """A bare sign is 0 to sbatch, nothing at all a minute."""
    spec = compiled(f"{BASH}#SBATCH --signal={text}\nhostname\n").spec
    assert spec is not None
    assert spec.signal is not None
    assert spec.signal.seconds_before == seconds


def test_no_mail_takes_nothing_back() -> None:
    """sbatch adds up bits: NONE adds none, and what was asked for before stays."""
    done = compiler.compile_script(
        f"{BASH}#SBATCH --mail-type=END\n".encode(), arguments=["--mail-type=NONE"]
    )
    assert done.spec is not None
    assert done.spec.mail_types == ("END",)


def test_components_of_a_heterogeneous_job() -> None:
    """hetjob opens a component, which takes name and time over from the first."""
    done = compiled(f"{BASH}#SBATCH -t 5 -J a -N2\n#SBATCH hetjob\n#SBATCH -n3\nhostname\n")
    shapes = [(job.name, job.time_limit, job.nodes.minimum, job.tasks) for job in done.components]
    assert shapes == [("a", 5, 2, 2), ("a", 5, 1, 3)]
    assert found(done, "hetjob").severity == "warning"


def test_hetjob_in_the_middle_of_a_line_drops_the_rest() -> None:
    """sbatch ignores what follows it there; that deserves a warning."""
    done = compiled(f"{BASH}#SBATCH -N2 hetjob -N3\nhostname\n")
    assert len(done.components) == 1
    assert found(done, "stray-separator").severity == "warning"


def test_provenance_names_source_line_and_option() -> None:
    """Every field says where it came from."""
    spec = compiled(f"{BASH}#SBATCH -N2\n#SBATCH  --time=5\n", "--mem=1G", SBATCH_PARTITION="p").spec
    assert spec is not None
    origins = {name: (item.origin, item.name, item.line) for name, item in spec.provenance.items()}
    assert origins["nodes"] == ("script", "-N", 2)
    assert origins["time_limit"] == ("script", "--time", 3)
    assert origins["memory"] == ("command line", "--mem", 0)
    assert origins["partition"] == ("environment", "SBATCH_PARTITION", 0)
    assert origins["output"] == ("default", "", 0)


def test_words_know_their_column() -> None:
    """The caret of a diagnostic stands under the word."""
    words = lexer.split("#SBATCH  -N2   'a b'", 7).words
    assert [(word.text, word.offset) for word in words] == [("-N2", 9), ("a b", 15)]


def test_lines_of_other_batch_systems_are_pointed_out() -> None:
    """sbatch translates #PBS and #BSUB lines; we do not, and say so instead of staying silent."""
    done = compiled(f"{BASH}#PBS -N foo\nhostname\n")
    assert found(done, "foreign-directive").severity == "warning"


@pytest.mark.parametrize(
    ("text", "ids"),
    [("3,1,2", (1, 2, 3)), ("1-3,2-5", (1, 2, 3, 4, 5)), ("0-8:4,1", (0, 1, 4, 8)), ("5%2", (5,))],
)
def test_array_ids_are_a_set_in_order(text: str, ids: tuple[int, ...]) -> None:
    """Overlaps count once, whatever the order they are written in."""
    spec = compiled(f"{BASH}#SBATCH --array={text}\n").spec
    assert spec is not None
    assert spec.array is not None
    assert (spec.array.ids, spec.array.count) == (ids, len(ids))
