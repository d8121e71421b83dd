"""What could run, read or write something of the user's outside of the pods is refused or does not pass."""

from __future__ import annotations

import hypothesis
import hypothesis.strategies as st
import msgspec
import pytest

from penstock.calls import outcomes, srunoptions, srunplan
from tests.calls import calling

JOBS = [msgspec.structs.replace(calling.JOB, release=release) for release in ((22, 5), (24, 11), (26, 5))]

REFUSED = {
    "--prolog=/x": "SLURM_PROLOG",
    "--epilog=/x": "SLURM_EPILOG",
    "--task-prolog=/x": "SLURM_TASK_PROLOG",
    "--task-epilog=/x": "SLURM_TASK_EPILOG",
    "--bcast": "SLURM_BCAST",
    "--bcast=/x": "SLURM_BCAST",
    "--bcast-exclude=/x": "SLURM_BCAST_EXCLUDE",
    "--send-libs": "SLURM_SEND_LIBS",
    "--compress=lz4": "SLURM_COMPRESS",
    "--container=/x": "SRUN_CONTAINER",
    "--slurmd-debug=5": "",
    "-M other": "SLURM_CLUSTERS",
    "--x11": "",
    "--het-group=0": "",
    "--pack-group=0": "",
    "-Z": "",
    "--interactive": "",
    "--debugger-test": "",
    "--test-only": "",
    "--container-image=a": "PYXIS_CONTAINER_IMAGE",
    "--container-mounts=/a": "PYXIS_CONTAINER_MOUNTS",
}

NEVER = """
    SLURM_CONF SLURM_CONF_SERVER SLURM_WORKING_CLUSTER SLURM_JWT SLURM_SPANK_X SPANK_X
    _SLURM_SPANK_OPTION_a_b SLURM_DEBUG_FLAGS SLURM_UMASK SLURM_TEST_EXEC SLURM_STEPMGR SLURM_TREE_WIDTH
    SLURM_SACK_SOCKET LD_PRELOAD LD_LIBRARY_PATH LD_AUDIT GCONV_PATH TMPDIR PATH HOME IFS PYTHONPATH
    SLURM_REMOTE_CWD SLURM_WORKING_DIR SLURM_EXPORT_ENV SRUN_EXPORT_ENV SLURM_MPI_TYPE SLURM_STDINMODE
    SLURM_STDOUTMODE SLURM_STDERRMODE SRUN_INPUT SRUN_OUTPUT SRUN_ERROR SLURM_PARTITION SLURM_ACCOUNT
    SLURM_NTASKS_HET_GROUP_0 PMI_FD PMIX_RANK SLURM_BURST_BUFFER SLURM_PTY_PORT SLURM_SRUN_CR_SOCKET
    SLURM_TOPO_LEN SLURMD_DEBUG ABORT_ON_FATAL
""".split()  # noqa: SIM905 - a list of forty lines says no more


@pytest.mark.parametrize("job", JOBS, ids=lambda job: f"{job.release}")
@pytest.mark.parametrize(("option", "variable"), REFUSED.items())
def test_refused_as_option_and_as_variable(option: str, variable: str, job: outcomes.Job) -> None:
    """With what it is, why, and what to do instead; also in the form for a component of a job."""
    words, code = calling.answer(f"{option} x", job=job)
    name = option.partition("=")[0]
    assert words.startswith(
        f"srun: error: {name} does not work in pods: " if name.startswith("--") else "srun: error: --"
    )
    assert ("; " in words or "pod" in words, code) == (True, 1)
    for given in filter(None, (variable, variable and f"{variable}_HET_GROUP_0")):
        words, code = calling.answer("x", {given: "/x"}, job=job)
        assert (words.startswith(f"srun: error: {given} does not work in pods: "), code) == (True, 1)


@pytest.mark.parametrize("job", JOBS, ids=lambda job: f"{job.release}")
def test_every_refused_row_is_refused(job: outcomes.Job) -> None:
    """As option, by its whole name and by letter, and by each variable that the release reads."""
    table = srunoptions.table(job.release)
    for option in table.options:
        if option.treatment != "refused":
            continue
        value = "" if option.argument == "none" else "=other"
        if option.name:
            assert isinstance(calling.plan(f"--{option.name}{value} x", job=job), outcomes.Answer), (
                option.name
            )
        if option.short:
            assert isinstance(calling.plan(f"-{option.short}{value[1:]} x", job=job), outcomes.Answer)
        for variable in option.environment:
            if variable.read_by(table.release):
                assert isinstance(calling.plan("x", {variable.name: "other"}, job=job), outcomes.Answer)


def test_all_refusals_are_told_at_once() -> None:
    """Each option once, and SLURM_EXIT_ERROR is the code."""
    words, code = calling.answer(
        "--task-prolog=a --task-prolog=b --x11 x", {"SLURM_EPILOG": "c", "SLURM_EXIT_ERROR": "9"}
    )
    named = [line.split()[2] for line in words.splitlines()]
    assert (named, code) == (["--task-prolog", "--x11", "SLURM_EPILOG"], 9)


@pytest.mark.parametrize("text", ["x : y", "-n1 x a : -n2 y", "x :"])
def test_components_are_refused(text: str) -> None:
    """A lone colon starts one, also among the command's own words."""
    assert "':' does not work in pods" in calling.answer(text)[0]


@pytest.mark.parametrize("text", ["sh -c :", "-J : x", "echo a:b"])
def test_other_colons_are_words(text: str) -> None:
    """As an option's value it is no word of its own; the first of these asks for a component in Slurm too."""
    planned = calling.plan(text)
    assert isinstance(planned, outcomes.Answer if text.endswith(" :") else outcomes.Step)


def test_values_that_ask_for_nothing_pass() -> None:
    """The job's own cluster, and none."""
    changes = {"SLURM_CLUSTERS": "c", "SLURM_PROLOG": "NONE", "SLURM_SEND_LIBS": "no"}
    planned = calling.step("--epilog=none --clusters=c --send-libs=no x", changes)
    assert calling.options(planned) == "--job-name=x"
    assert not {name.encode() for name in changes} & set(planned.environment)


@pytest.mark.parametrize("job", JOBS, ids=lambda job: f"{job.release}")
def test_what_must_never_pass_does_not(job: outcomes.Job) -> None:
    planned = calling.step("x", dict.fromkeys(NEVER, "pmi2"), job=job)
    assert not {name.encode() for name in NEVER} & set(planned.environment)


@pytest.mark.parametrize("job", JOBS, ids=lambda job: f"{job.release}")
def test_only_native_rows_reach_the_real_srun(job: outcomes.Job) -> None:
    """With every other option and variable given at once."""
    table = srunoptions.table(job.release)
    others = [option for option in table.options if option.treatment in ("ignored", "pod") and option.name]
    skipped = ("jobid", "multi-prog", "nodefile", "pty", "mpi")
    words = [
        f"--{option.name}" + ("" if option.argument == "none" else "=/etc/passwd")
        for option in others
        if option.name not in skipped
    ]
    variables = {
        variable.name: "/etc/passwd"
        for option in others
        for variable in option.environment
        if option.name not in skipped
    }
    planned = calling.step(" ".join([*words, "x"]), variables, job=job)
    allowed = (b"--job-name=x", b"--error=/dev/stdout", b"--error=/dev/fd/3")
    assert set(planned.argv[3:]) <= set(allowed)
    assert not {name.encode() for name in variables} & set(planned.environment)


@pytest.mark.parametrize(
    "changes",
    [
        {"SLURM_JOB_NODELIST": "/etc/passwd"},
        {"SLURM_ARBITRARY_NODELIST": "./x", "SLURM_DISTRIBUTION": "arbitrary"},
    ],
)
def test_lists_of_nodes_in_variables_are_no_files(changes: calling.Text) -> None:
    """srun might open one with a slash on its own host."""
    assert not {name.encode() for name in changes if "LIST" in name} & set(
        calling.step("x", changes).environment
    )


_WORDS = st.sampled_from(
    [
        *(f"--{option.name}" for option in srunoptions.every_option() if option.name),
        *(f"-{option.short}" for option in srunoptions.every_option() if option.short),
        *("--output=x", "-w", "n1", "./x", "17", "x", ":", "--"),
    ]
)
_VARIABLES = st.sampled_from(
    [*NEVER, *(found.name for option in srunoptions.every_option() for found in option.environment)]
)


@hypothesis.given(
    st.lists(st.one_of(_WORDS, st.text(max_size=5)), max_size=6),
    st.dictionaries(_VARIABLES, st.sampled_from(["", "0", "1", "none", "./x", "17"]), max_size=5),
    st.sampled_from(JOBS),
)
def test_no_call_tells_the_real_srun_more_than_the_table_allows(
    words: list[str], variables: dict[str, str], job: outcomes.Job
) -> None:
    """Whatever the words and variables: native options without a file, native variables, our own id."""
    texts = [word.encode() for word in words]
    files = {b"./x": b"n1\n", b"x": b"* a\n"}
    planned = srunplan.plan(texts, calling.environment(dict(variables)), job, files)
    if not isinstance(planned, outcomes.Step):
        return
    table = srunoptions.table(job.release)
    for word in planned.argv[3:]:
        name, _, value = word.partition(b"=")
        option = table.by_name[name[2:].decode()]
        ours = value in (b"/dev/stdout", b"/dev/fd/3", b"none") or word == b"--pty"
        assert option.treatment == "native" or ours
        assert ours or b"/" not in value or option.key not in ("nodelist", "exclude")
    native = {
        found.name.encode()
        for option in table.options
        for found in option.environment
        if option.treatment == "native"
    }
    assert set(planned.environment) <= native | {b"SLURM_JOB_ID"}
    assert planned.environment[b"SLURM_JOB_ID"] == b"17"


def test_a_heterogeneous_job_is_refused() -> None:
    assert calling.answer("x", {"SLURM_HET_SIZE": "2"})[1] == 1
