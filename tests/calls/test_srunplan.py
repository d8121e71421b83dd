"""What becomes of an srun typed in a pod: the real srun's words and variables, and what the pods do."""

from __future__ import annotations

import msgspec
import pytest

from penstock.calls import outcomes
from tests.calls import calling

LATER = msgspec.structs.replace(calling.JOB, release=(24, 11))


@pytest.mark.parametrize(
    ("text", "options", "program"),
    [
        ("hostname", "--job-name=hostname", "hostname"),
        ("/opt/bin/train -n 4", "--job-name=train", "/opt/bin/train -n 4"),
        ("-n1 --ntasks-per-node=1 ./run", "--job-name=run --ntasks=1 --ntasks-per-node=1", "./run"),
        (
            "-N 1 -n 1 -c 8 --threads-per-core=1 ./run",
            "--job-name=run --nodes=1 --ntasks=1 --cpus-per-task=8 --threads-per-core=1",
            "./run",
        ),
        ("--jobid 17 bash -c x", "--job-name=bash", "bash -c x"),
        ("--jobid=017 x", "--job-name=x", "x"),
        (
            "--nodes=1 --ntasks=1 -w n1 hostname -i",
            "--job-name=hostname --nodes=1 --ntasks=1 --nodelist=n1",
            "hostname -i",
        ),
        ("-w n1 -l -w n2 x", "--job-name=x --label --nodelist=n2", "x"),
        ("-x n2 x", "--job-name=x --exclude=n2", "x"),
        ("-J eval -l -K x", "--job-name=eval --label --kill-on-bad-exit", "x"),
        (
            "-n1 -c7 --gpus-per-task=1 --gpu-bind=closest python3 -u a.py",
            "--job-name=python3 --ntasks=1 --cpus-per-task=7 --gpus-per-task=1 --gpu-bind=closest",
            "python3 -u a.py",
        ),
        ("--exclusive --ntasks 1 a b", "--job-name=a --exclusive --ntasks=1", "a b"),
        ("--gres-flags=allow-task-sharing uv run", "--job-name=uv --gres-flags=allow-task-sharing", "uv run"),
        ("--wait=60 --kill-on-bad-exit=1 x", "--job-name=x --wait=60 --kill-on-bad-exit=1", "x"),
        ("--pty bash", "--job-name=bash --pty", "bash"),
        ("-p gpu -A x --begin=now --nice -H --propagate=ALL x", "--job-name=x", "x"),
        ("--export=ALL,A=1 -D /tmp -i none x", "--job-name=x --input=none", "x"),
        ("--prolog=none -M c x", "--job-name=x", "x"),
        (
            "--nodelist n1 -N 2 -n 2 --input none hydra_pmi_proxy",
            "--job-name=hydra_pmi_proxy --nodes=2 --ntasks=2 --nodelist=n1 --input=none",
            "hydra_pmi_proxy",
        ),
        (
            "--ntasks-per-node=1 --kill-on-bad-exit --mpi=none --nodelist=n2 --ntasks=1 orted -mca a b",
            "--job-name=orted --ntasks-per-node=1 --kill-on-bad-exit --ntasks=1 --nodelist=n2",
            "orted -mca a b",
        ),
        (
            "--unbuffered --output d/%j_%t.out --error d/%j_%t.err python -u",
            "--job-name=python --unbuffered",
            "python -u",
        ),
        (
            "-n 4 --comment c --nodelist n1,n2 --nodes 2 --gpus-per-node 2 --export=ALL,K=V python -u a",
            "--job-name=python --ntasks=4 --nodes=2 --gpus-per-node=2 --nodelist=n1,n2",
            "python -u a",
        ),
        ("-- -n", "--job-name=-n", "-n"),
    ],
)
def test_options_of_the_real_srun(text: str, options: str, program: str) -> None:
    """The calls of real scripts, of mpirun, submitit and DeepSpeed."""
    planned = calling.step(text)
    assert calling.options(planned) == options
    assert planned.program == tuple(program.encode().split())


def test_only_what_srun_reads_of_the_layout_is_in_its_environment() -> None:
    """The job's id is our own, whatever the caller's says."""
    assert calling.step("x").environment == {
        b"SLURM_JOB_ID": b"17",
        b"SLURM_JOB_NAME": b"train",
        b"SLURM_JOB_NODELIST": b"n[1-2]",
        b"SLURM_JOB_NUM_NODES": b"2",
        b"SLURM_NTASKS": b"4",
        b"SLURM_NPROCS": b"4",
        b"SLURM_NTASKS_PER_NODE": b"2",
    }


def test_the_callers_present_values_count() -> None:
    """A script may change or unset them between steps."""
    changes = {"SLURM_NTASKS": "1", "SLURM_NPROCS": None, "SLURM_LABELIO": "1", "SLURM_STEP_GRES": "none"}
    found = calling.step("x", changes).environment
    assert found[b"SLURM_NTASKS"] == b"1"
    assert b"SLURM_NPROCS" not in found
    assert (found[b"SLURM_LABELIO"], found[b"SLURM_STEP_GRES"]) == (b"1", b"none")


@pytest.mark.parametrize(
    ("job", "read", "unread"),
    [
        (calling.JOB, "SRUN_CPUS_PER_TASK", "SLURM_CPUS_PER_TASK"),
        (LATER, "SLURM_CPUS_PER_TASK", "SRUN_CPUS_PER_TASK"),
        (LATER, "SLURM_EXTERNAL_LAUNCHER", "SLURM_POWER"),
    ],
)
def test_variables_are_passed_as_the_release_reads_them(job: outcomes.Job, read: str, unread: str) -> None:
    found = calling.step("x", {read: "2", unread: "3"}, job=job).environment
    assert found[read.encode()] == b"2"
    assert unread.encode() not in found


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("--version", "--version"),
        ("-V --foo", "--version"),
        ("-lh x", "--help"),
        ("--usa", "--usage"),
        ("--mpi=list", "--mpi=list"),
        ("-n4 --mpi=list x", "--mpi=list"),
    ],
)
def test_questions_are_answered_by_the_real_srun(text: str, words: str) -> None:
    """With nothing but the question."""
    assert calling.plan(text) == outcomes.Run(program="srun", words=(words.encode(),))


def test_completion_is_answered_where_the_release_has_it() -> None:
    asked = outcomes.Run(program="srun", words=(b"--autocomplete=--nt",))
    assert calling.plan("--autocomplete=--nt", job=LATER) == asked
    assert calling.answer("--autocomplete=--nt")[1] == 255


@pytest.mark.parametrize(
    ("text", "changes", "words", "code"),
    [
        ("", {}, "srun: fatal: No command given to execute.\n", 1),
        ("-l :", {}, "srun: fatal: No command given to execute.\n", 1),
        ("", {"SLURM_EXIT_ERROR": "7"}, "srun: fatal: No command given to execute.\n", 1),
        ("-g x", {}, "srun: invalid option -- 'g'\nTry \"srun --help\" for more information\n", 255),
        ("--jobid=a x", {}, 'srun: error: Invalid numeric value "a" for --jobid.\n', 1),
        (
            "--jobid=999 x",
            {},
            "srun: error: Unable to confirm allocation for job 999: Invalid job id specified\n"
            "srun: Check SLURM_JOB_ID environment variable. Expired or invalid job 999\n",
            1,
        ),
        (
            "x",
            {"SLURM_JOB_ID": "999", "SLURM_EXIT_ERROR": "7"},
            "srun: error: Unable to confirm allocation for job 999: Invalid job id specified\n"
            "srun: Check SLURM_JOB_ID environment variable. Expired or invalid job 999\n",
            7,
        ),
        (
            "x",
            {"SLURM_JOB_ID": None},
            "srun: error: SLURM_JOB_ID is not set, and srun in a pod cannot ask for a new allocation;"
            " use --jobid=17\n",
            1,
        ),
        ("--mpi=foo x", {}, "srun: error: Invalid MPI type 'foo', --mpi=list for acceptable types\n", 1),
        ("--pty -o f x", {}, "srun: error: --error/--input/--output are incompatible with --pty\n", 1),
        (
            "--pty x",
            {"SLURM_STDINMODE": "none", "SLURM_EXIT_ERROR": "300"},
            "srun: error: --error/--input/--output are incompatible with --pty\n",
            44,
        ),
    ],
)
def test_wrong_calls_end_with_sruns_words(text: str, changes: calling.Text, words: str, code: int) -> None:
    """Only SLURM_EXIT_ERROR changes the code, and not every one."""
    assert calling.answer(text, changes) == (words, code)


def test_an_array_task_may_be_named_by_its_array() -> None:
    """By releases that know this form of --jobid."""
    array = {"SLURM_ARRAY_JOB_ID": "15", "SLURM_ARRAY_TASK_ID": "2"}
    assert calling.step("--jobid=15_2 x", array, job=LATER).program == (b"x",)
    assert calling.answer("--jobid=15_3 x", array, job=LATER)[1] == 1
    assert (
        calling.answer("--jobid=15_2 x", array)[0]
        == 'srun: error: Invalid numeric value "15_2" for --jobid.\n'
    )


@pytest.mark.parametrize(
    ("text", "changes", "streams", "options"),
    [
        ("x", {}, "srun srun srun", ""),
        ("-i none -o none -e none x", {}, "nothing nothing nothing", "--input=none"),
        ("-o f x", {}, "srun file:f file:f", "--error=/dev/stdout"),
        ("-o f -e f x", {}, "srun file:f file:f", "--error=/dev/stdout"),
        ("-o f -e g x", {}, "srun file:f file:g", "--error=/dev/fd/3"),
        ("-e g x", {}, "srun srun file:g", "--error=/dev/fd/3"),
        ("-o f -e all x", {}, "srun file:f srun", ""),
        ("-o all.x x", {}, "srun srun srun", ""),
        ("-o f.%t x", {}, "srun each:f.%t each:f.%t", ""),
        ("-o f.%j -e f.%n x", {}, "srun file:f.%j each:f.%n", ""),
        ("-i f x", {}, "file:f srun srun", ""),
        ("-i f.%t x", {}, "each:f.%t srun srun", "--input=none"),
        ("-i 2 -o 1 x", {}, "number:2 number:1 number:1", "--error=/dev/fd/3"),
        ("x", {"SLURM_STDOUTMODE": "f", "SLURM_STDERRMODE": "none"}, "srun file:f nothing", ""),
        ("-o - x", {"SLURM_STDOUTMODE": "f"}, "srun srun srun", ""),
        ("x", {"SRUN_OUTPUT": "f"}, "srun srun srun", ""),
    ],
)
def test_streams_are_opened_in_the_pods(text: str, changes: calling.Text, streams: str, options: str) -> None:
    """The real srun is never told the name of a file of the user's."""
    planned = calling.step(text, changes)
    found = (planned.stdin, planned.stdout, planned.stderr)
    shown = [f"{stream.kind}:{stream.name.decode()}" if stream.name else stream.kind for stream in found]
    assert " ".join(shown) == streams
    assert calling.options(planned) == f"--job-name=x {options}".rstrip()


def test_later_releases_have_variables_of_their_own_for_streams() -> None:
    """They win over the older ones."""
    changes = {"SRUN_OUTPUT": "new", "SLURM_STDOUTMODE": "old"}
    assert calling.step("x", changes, job=LATER).stdout.name == b"new"


@pytest.mark.parametrize(
    ("text", "changes", "appends", "append"),
    [
        ("-o f x", {}, False, False),
        ("-o f x", {}, True, True),
        ("-o f --open-mode=append x", {}, False, True),
        ("-o f --open-mode=t x", {"SLURM_OPEN_MODE": "a"}, True, False),
        ("-o f x", {"SLURM_OPEN_MODE": "a"}, False, True),
    ],
)
def test_open_mode(text: str, changes: calling.Text, appends: bool, append: bool) -> None:
    """Without one, slurm.conf decides."""
    job = msgspec.structs.replace(calling.JOB, appends=appends)
    assert calling.step(text, changes, job=job).stdout.append is append


@pytest.mark.parametrize(
    ("text", "changes", "chdir", "unbuffered"),
    [
        ("x", {}, "", False),
        ("-D sub -u x", {}, "sub", True),
        ("x", {"SLURM_REMOTE_CWD": "/a", "SLURM_WORKING_DIR": "/b", "SLURM_UNBUFFEREDIO": "yes"}, "/b", True),
        ("--pty x", {"SLURM_UNBUFFEREDIO": "0"}, "", True),
        ("x", {"SLURM_UNBUFFEREDIO": "0"}, "", False),
    ],
)
def test_directory_and_buffering(text: str, changes: calling.Text, chdir: str, unbuffered: bool) -> None:
    planned = calling.step(text, changes)
    assert (planned.chdir.decode(), planned.unbuffered) == (chdir, unbuffered)


def test_a_terminals_descriptor_is_not_passed() -> None:
    """It would be one of the real srun."""
    assert b"--pty" in calling.step("--pty=5 x", job=LATER).argv


@pytest.mark.parametrize(
    ("text", "changes", "note"),
    [
        ("--mpi=pmix x", {}, "--mpi=pmix"),
        ("--mpi=pmi2 x", {}, "--mpi=pmi2"),
        ("x", {"SLURM_MPI_TYPE": "pmix_v4"}, "--mpi=pmix_v4"),
        ("--mpi=none x", {"SLURM_MPI_TYPE": "pmix"}, ""),
        ("--external-launcher x", {"SLURM_MPI_TYPE": "pmix"}, ""),
        ("x", {"SLURM_MPI_TYPE": "pmix", "SLURM_EXTERNAL_LAUNCHER": "1"}, ""),
    ],
)
def test_tasks_have_no_mpi_of_sruns(text: str, changes: calling.Text, note: str) -> None:
    """One line says so, and names the command that starts MPI programs; mpirun's daemons need none."""
    planned = calling.step(text, changes, job=LATER)
    assert len(planned.notes) == bool(note)
    assert all(note.encode() in line and b"mpirun" in line for line in planned.notes)


def test_ignored_options_are_mentioned_where_srun_does() -> None:
    planned = calling.step("--begin=now -S1 -p gpu x")
    assert [line.partition(b" ")[0] for line in planned.notes] == [b"srun:", b"srun:"]
    assert b"--begin is ignored" in planned.notes[0]
    assert b"--core-spec" in planned.notes[1]


@pytest.mark.parametrize(
    ("text", "changes", "name"),
    [
        ("bash -c x", {}, b"train"),
        ("-J mine bash", {}, b"mine"),
        ("/bin/bash", {"SLURM_JOB_NAME": None}, b"bash"),
    ],
)
def test_tasks_keep_the_jobs_name(text: str, changes: calling.Text, name: bytes) -> None:
    """Although the step's is the program's: some programs take a job named bash for an interactive one."""
    assert calling.step(text, changes).task_environment[b"SLURM_JOB_NAME"] == name


def test_tasks_begin_with_the_callers_environment() -> None:
    """Nothing in it is dangerous in a pod."""
    found = calling.step("-v -v -Q x").task_environment
    assert found == {**calling.BATCH, b"SRUN_DEBUG": b"4"}


def test_a_list_of_exported_names_keeps_only_slurms_others() -> None:
    found = calling.step("--export=HOME,A=1 x").task_environment
    assert {name for name in found if not name.startswith(b"SLURM")} == {b"HOME", b"A"}


def test_an_unfinished_quote_in_export_is_mentioned() -> None:
    assert calling.step("--export=A='1 x").notes == (
        b"srun: error: Improperly formed environment variable (A='1)\n",
    )


@pytest.mark.parametrize(("text", "shown"), [("a", "0"), ("-1", "4294967295"), ("999", "999")])
def test_later_releases_take_any_word_for_a_number(text: str, shown: str) -> None:
    words, code = calling.answer(f"--jobid={text} x", job=LATER)
    assert words.endswith(f"Expired or invalid job {shown}\n")
    assert code == 1
