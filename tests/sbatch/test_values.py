"""Precedence and values of options: each rule was tested on sbatch 22.05.8."""

from __future__ import annotations

import pytest
from tests.sbatch.compiling import BASH, compiled, found

from penstock.sbatch import compiler, lexer


def test_precedence_of_sources() -> None:
    """Command line, then environment, then script."""
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
def test_hint_is_a_list(text: str, accepted: bool) -> None:
    """sbatch refuses the list for one invalid word."""
    assert compiled(f"{BASH}#SBATCH --hint={text}\nhostname\n").ok == accepted


def test_invalid_value_is_refused_even_if_overridden() -> None:
    """sbatch parses the script before the command line."""
    assert not compiled(f"{BASH}#SBATCH -t x\nhostname\n", "-t", "7").ok


@pytest.mark.parametrize(
    ("value", "requeue"), [("", False), ("yes", False), ("1", False), ("0", None), ("no", None)]
)
def test_flags_in_the_environment(value: str, requeue: bool | None) -> None:
    """A flag is set if its variable is empty, yes or a number other than 0."""
    spec = compiled(f"{BASH}hostname\n", SBATCH_NO_REQUEUE=value).spec
    assert spec is not None
    assert spec.requeue is requeue


def test_memory_in_the_environment_is_overridden_by_the_script() -> None:
    """SBATCH_MEM_PER_CPU does not conflict with --mem of the script; two variables conflict."""
    script = f"{BASH}#SBATCH --mem=1G\nhostname\n"
    spec = compiled(script, SBATCH_MEM_PER_CPU="2G").spec
    assert spec is not None
    assert spec.memory is not None
    assert (spec.memory.scope, spec.memory.mib) == ("node", 1024)
    both = {"SBATCH_MEM_PER_CPU": "1G", "SBATCH_MEM_PER_NODE": "2G"}
    assert not compiled(f"{BASH}hostname\n", **both).ok


def test_mail_types_add_up() -> None:
    """For other options the last one wins."""
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
def test_numbers_overflow_at_32_bits(
    directive: str, tasks: int, cpus_per_task: int, least_nodes: int
) -> None:
    """As `sbatch -v` shows them."""
    spec = compiled(f"{BASH}#SBATCH {directive}\nhostname\n").spec
    assert spec is not None
    assert (spec.tasks, spec.cpus_per_task, spec.nodes.minimum) == (tasks, cpus_per_task, least_nodes)


@pytest.mark.parametrize(
    ("hint", "tasks"), [("nomultithread", 12), ("multithread", 12), ("memory_bound", 4), ("compute_bound", 2)]
)
def test_hint_in_the_environment_keeps_sockets_and_cores(hint: str, tasks: int) -> None:
    """SLURM_HINT is set inside jobs, from which people submit others; counted as by `sbatch -v`."""
    script = f"{BASH}#SBATCH -N2 --sockets-per-node=2 --cores-per-socket=3\nhostname\n".encode()
    spec = compiler.compile_script(script, variables={"SLURM_HINT": hint}).spec
    assert spec is not None
    assert spec.tasks == tasks


@pytest.mark.parametrize("gres", ["craynetwork:0", "craynetwork:0,gpu:1", "fpga:a:0"])
def test_unknown_resource_with_count_0_is_accepted(gres: str) -> None:
    """By sbatch 22.05; scripts of other sites have it."""
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
def test_signal(text: str, number: int, batch: bool) -> None:
    """The colon is optional, and 16 bits of a number are kept."""
    spec = compiled(f"{BASH}#SBATCH --signal={text}\nhostname\n").spec
    assert spec is not None
    assert spec.signal is not None
    assert (spec.signal.number, spec.signal.to_batch) == (number, batch)


@pytest.mark.parametrize(("text", "seconds"), [("USR1", 60), ("USR1@", 0), ("B:USR1@0", 0), ("USR1@10", 10)])
def test_signal_time(text: str, seconds: int) -> None:
    """An empty time after @ is 0, without @ it is a minute."""
    spec = compiled(f"{BASH}#SBATCH --signal={text}\nhostname\n").spec
    assert spec is not None
    assert spec.signal is not None
    assert spec.signal.seconds_before == seconds


def test_mail_type_none_adds_nothing() -> None:
    """Earlier types stay."""
    done = compiler.compile_script(
        f"{BASH}#SBATCH --mail-type=END\n".encode(), arguments=["--mail-type=NONE"]
    )
    assert done.spec is not None
    assert done.spec.mail_types == ("END",)


def test_components_of_a_heterogeneous_job() -> None:
    """hetjob opens a component, which inherits name and time from the first."""
    done = compiled(f"{BASH}#SBATCH -t 5 -J a -N2\n#SBATCH hetjob\n#SBATCH -n3\nhostname\n")
    shapes = [(job.name, job.time_limit, job.nodes.minimum, job.tasks) for job in done.components]
    assert shapes == [("a", 5, 2, 2), ("a", 5, 1, 3)]
    assert found(done, "hetjob").severity == "warning"


def test_hetjob_in_the_middle_of_a_line_is_a_warning() -> None:
    """sbatch ignores the rest of the line."""
    done = compiled(f"{BASH}#SBATCH -N2 hetjob -N3\nhostname\n")
    assert len(done.components) == 1
    assert found(done, "stray-separator").severity == "warning"


def test_provenance_has_source_line_and_option() -> None:
    spec = compiled(f"{BASH}#SBATCH -N2\n#SBATCH  --time=5\n", "--mem=1G", SBATCH_PARTITION="p").spec
    assert spec is not None
    origins = {name: (item.origin, item.name, item.line) for name, item in spec.provenance.items()}
    assert origins["nodes"] == ("script", "-N", 2)
    assert origins["time_limit"] == ("script", "--time", 3)
    assert origins["memory"] == ("command line", "--mem", 0)
    assert origins["partition"] == ("environment", "SBATCH_PARTITION", 0)
    assert origins["output"] == ("default", "", 0)


def test_diagnostics_have_the_column() -> None:
    """For the caret below the word."""
    words = lexer.split("#SBATCH  -N2   'a b'", 7).words
    assert [(word.text, word.offset) for word in words] == [("-N2", 9), ("a b", 15)]


def test_lines_of_other_batch_systems_are_reported() -> None:
    done = compiled(f"{BASH}#PBS -N foo\nhostname\n")
    assert found(done, "foreign-directive").severity == "warning"


@pytest.mark.parametrize(
    ("text", "ids"),
    [("3,1,2", (1, 2, 3)), ("1-3,2-5", (1, 2, 3, 4, 5)), ("0-8:4,1", (0, 1, 4, 8)), ("5%2", (5,))],
)
def test_array_ids_are_sorted_and_unique(text: str, ids: tuple[int, ...]) -> None:
    spec = compiled(f"{BASH}#SBATCH --array={text}\n").spec
    assert spec is not None
    assert spec.array is not None
    assert (spec.array.ids, spec.array.count) == (ids, len(ids))
