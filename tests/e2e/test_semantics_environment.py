"""What of the submit environment enters the pod, for every form of --export, and SLURM_* as plain Slurm sets
them.
"""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.e2e import semantics

Lab = semantics.Lab
Variables = dict[str, str]

# What the submitter's shell has. The last ones describe the host and are the image's own in the pod.
SUBMITTED = {
    "COLOUR": "it's blue",
    "MANY": "a,b=c d",
    "LINES_2": "one\ntwo",
    "EMPTY": "",
    "UMLAUT": "grün",
    "here": "/the/agent/has/one/of/this/name",
    "child": "and of this",
    "name": "and this",
    "SHELLOPTS": "braceexpand",
    "LD_LIBRARY_PATH": "/opt/of/the/host",
    "TMPDIR": "/var/tmp",  # noqa: S108  # a value to be recognised, never a file
    "CUDA_VISIBLE_DEVICES": "7",
}
HOST_ONLY = {
    *("PATH", "HOME", "LD_LIBRARY_PATH", "TMPDIR", "KUBECONFIG", "SHELL", "MAIL"),
    *("PENSTOCK_LAB", "PENSTOCK_NAS", "PENSTOCK_RESULTS", "PENSTOCK_SITE", "PENSTOCK_SOCKET"),
}
NEVER = {"SLURM_CONF", "CUDA_VISIBLE_DEVICES", "SHELLOPTS"}
SETS_ITSELF = {
    "PWD",
    "HOSTNAME",
    "SLURM_TASK_PID",
    "PENSTOCK_OUTPUT_DIR",
}  # by the shell, the pod, the launch
LOGIN_SHELL = (
    "SLURM_GET_USER_ENV"  # whether plain Slurm starts one on the node, which never happens for pods:
)
# the variable is there all the same, but what such a shell sets is not
PER_JOB = {
    *("SLURM_JOB_ID", "SLURM_JOBID", "SLURM_JOB_SLUID", "SLURM_JOB_PARTITION", "SLURM_ARRAY_JOB_ID"),
    *("SLURM_JOB_START_TIME", "SLURM_JOB_END_TIME", "SLURM_JOB_GPUS"),
}
FORMS: dict[str, tuple[tuple[str, ...], set[str]]] = {
    "none-given": ((), set()),
    "ALL": (("--export=ALL",), set()),
    "NONE": (("--export=NONE",), set()),
    "NIL": (("--export=NIL",), set()),
    "a-name": (("--export=COLOUR",), set()),
    "names": (("--export=COLOUR,LINES_2,NOT_THERE",), set()),
    "a-value": (("--export=COLOUR=red",), set()),
    "all-and-a-value": (("--export=ALL,COLOUR=red,NEW=x y",), set()),
    "a-quoted-comma": (("--export=ALL,LIST='a,PATH,b'",), set()),
    "path-by-name": (("--export=PATH",), {"PATH"}),
    "path-by-value": (("--export=ALL,PATH=/x:/usr/bin:/bin",), {"PATH"}),
    "libraries-and-home": (("--export=LD_LIBRARY_PATH,HOME,COLOUR",), {"LD_LIBRARY_PATH", "HOME"}),
    "gpu-numbers": (("--export=ALL,CUDA_VISIBLE_DEVICES=7",), set()),
}
SHAPES: dict[str, tuple[str, ...]] = {
    "default": (),
    "tasks-and-memory": ("-N1", "-n3", "--mem=300M", "--cpus-per-task=2", "--time=7", "-Jnamed"),
    "gpus": ("--gres=gpu:2", "--mem-per-cpu=100M"),
    "gpus-per-node": ("--gpus-per-node=1", "-N1"),
    "gpus-total": ("--gpus=3", "-N1"),
    "gpus-per-task": ("-n2", "-N1", "--gpus-per-task=1"),
    "two-nodes": ("-N2", "--nodelist=n1,n2", "-n4", "--ntasks-per-node=2"),
    "comment-and-hint": ("--comment=x", "--distribution=cyclic", "--account=research"),
}


def read(file: Path) -> Variables:
    """The output of `env -0`."""
    entries = file.read_bytes().decode().split("\0")
    return dict(entry.split("=", 1) for entry in entries if entry)


def environments(lab: Lab, options: dict[str, tuple[str, ...]]) -> dict[str, tuple[Variables, Variables]]:
    """Per case the script's environment in plain Slurm and in a pod, all jobs run at once on one node."""
    folder = semantics.folder(lab, "env")
    shell = ("env", *(f"{name}={value}" for name, value in SUBMITTED.items()))
    script = folder / "show.sh"
    script.write_text("#!/bin/sh\nexec /usr/bin/env -0\n")
    jobs = []
    for name, words in options.items():
        node = () if any("nodelist" in word for word in words) else ("--nodelist=n1",)
        for partition in (semantics.PLAIN, semantics.PODS):
            output = f"--output={folder}/{name}.{partition}"
            argv = (*shell, "sbatch", "--parsable", f"--partition={partition}", *node, output, *words)
            jobs.append(lab.run_as_user((*argv, str(script))).stdout.strip())
    ended = semantics.records(lab, jobs)
    assert {record.code for record in ended.values()} == {"0:0"}
    return {
        name: (read(folder / f"{name}.{semantics.PLAIN}"), read(folder / f"{name}.{semantics.PODS}"))
        for name in options
    }


@pytest.fixture(scope="module")
def by_form(lab: Lab) -> dict[str, tuple[Variables, Variables]]:
    return environments(lab, {name: options for name, (options, _) in FORMS.items()})


@pytest.fixture(scope="module")
def by_shape(lab: Lab) -> dict[str, tuple[Variables, Variables]]:
    return environments(lab, SHAPES)


def is_slurms(name: str) -> bool:
    return name.startswith("SLURM")


def without(variables: Variables, names: set[str]) -> Variables:
    return {name: value for name, value in variables.items() if name not in names}


@pytest.mark.parametrize("name", FORMS)
def test_every_form_of_export(by_form: dict[str, tuple[Variables, Variables]], name: str) -> None:
    """The pod gets what plain Slurm's script gets, but the host's own variables only when they are named."""
    plain, pod = by_form[name]
    pod = pod | {"PATH": pod["PATH"].removeprefix("/penstock:")}  # Slurm's commands for pods
    named = FORMS[name][1]
    differs = (HOST_ONLY - named) | NEVER | SETS_ITSELF | PER_JOB
    if plain.get(LOGIN_SHELL) == "1":
        differs |= {name for name in plain.keys() - pod.keys() - SUBMITTED.keys() if not is_slurms(name)}
    assert without(pod, differs) == without(plain, differs)
    assert not NEVER & pod.keys()


@pytest.mark.parametrize("name", FORMS)
def test_tmpdir_and_home_are_there_in_every_form(
    by_form: dict[str, tuple[Variables, Variables]], name: str
) -> None:
    """slurmd sets TMPDIR=/tmp where nobody else does, a pod knows no other; HOME is the user's own."""
    plain, pod = by_form[name]
    assert pod["TMPDIR"] == "/tmp"  # noqa: S108  # the pod's
    assert plain["TMPDIR"] in (pod["TMPDIR"], SUBMITTED["TMPDIR"])
    assert pod["HOME"] == plain.get("HOME", pod["HOME"])


def test_the_path_is_the_images(by_form: dict[str, tuple[Variables, Variables]]) -> None:
    """Unless it is named, the image's PATH is there, and the host's libraries are not."""
    plain, pod = by_form["ALL"]
    assert plain["LD_LIBRARY_PATH"] == SUBMITTED["LD_LIBRARY_PATH"]
    assert pod["PATH"] != plain["PATH"]
    assert "/usr/bin" in pod["PATH"].split(":")
    assert pod["HOME"] == plain["HOME"]
    assert not {"LD_LIBRARY_PATH", "KUBECONFIG", "LC_CTYPE"} & pod.keys()


def test_none_leaves_only_slurms_own(by_form: dict[str, tuple[Variables, Variables]]) -> None:
    """--export=NONE means that nothing of the submitter's shell is there, and the script still has a PATH."""
    plain, pod = by_form["NONE"]
    assert SUBMITTED.keys() & pod.keys() == {"TMPDIR"}
    assert pod["PATH"]
    assert pod.keys() - plain.keys() <= {"HOME", "HOSTNAME", "PATH", "PENSTOCK_OUTPUT_DIR", "PWD", "TMPDIR"}


@pytest.mark.parametrize("name", SHAPES)
def test_slurm_variables_are_plain_slurms(
    by_shape: dict[str, tuple[Variables, Variables]], name: str
) -> None:
    """Every SLURM_* of the plain job is in the pod with the same value, and no other."""
    plain, pod = ({k: v for k, v in found.items() if k.startswith("SLURM")} for found in by_shape[name])
    differs = PER_JOB | NEVER | SETS_ITSELF
    assert without(pod, differs) == without(plain, differs)
    assert pod["SLURM_JOB_PARTITION"] == semantics.PODS


@pytest.mark.parametrize(("name", "count"), [("gpus", 2), ("gpus-per-node", 1), ("gpus-total", 3)])
def test_slurm_names_the_gpus_of_a_job(
    lab: Lab, by_shape: dict[str, tuple[Variables, Variables]], name: str, count: int
) -> None:
    """The lab's GPUs are devices, so that Slurm gives them out one by one. In a pod they count from 0."""
    if not (lab.place.gpu_devices / "gpu0").is_char_device():
        pytest.skip("this machine allows no devices in the lab")
    plain, pod = by_shape[name]
    assert plain["CUDA_VISIBLE_DEVICES"] == plain["SLURM_JOB_GPUS"]
    assert [len(each["SLURM_JOB_GPUS"].split(",")) for each in (plain, pod)] == [count, count]
    assert not {"CUDA_VISIBLE_DEVICES", "GPU_DEVICE_ORDINAL", "ROCR_VISIBLE_DEVICES"} & pod.keys()


def test_array_variables(lab: Lab) -> None:
    """Each task knows its number, the range and the array's id; its own id is its own."""
    folder = semantics.folder(lab)
    names = " ".join(f"$SLURM_ARRAY_TASK_{word}" for word in ("ID", "MIN", "MAX", "STEP", "COUNT"))
    job_id = lab.sbatch(
        f"#!/bin/sh\necho {names} $SLURM_ARRAY_JOB_ID\n", "--array=2-6:2", "--output=%a", cwd=folder
    )
    semantics.records(lab, (f"{job_id}_{task}" for task in (2, 4, 6)))
    for task in (2, 4, 6):
        assert (folder / str(task)).read_text() == f"{task} 2 6 2 3 {job_id}\n"


@pytest.mark.parametrize("how", ["directive", "variable", "file"])
def test_other_ways_to_say_export(lab: Lab, how: str) -> None:
    """In the script, in SBATCH_EXPORT and by --export-file: the same as in plain Slurm."""
    folder = semantics.folder(lab)
    directive = "#SBATCH --export=COLOUR=red\n" if how == "directive" else ""
    (folder / "s").write_text(f"#!/bin/sh\n{directive}echo $COLOUR ${{TASTE:-none}}\n")
    (folder / "vars").write_bytes(b"COLOUR=red\0")
    option = (f"--export-file={folder}/vars",) if how == "file" else ()
    variable = ("SBATCH_EXPORT=COLOUR=red",) if how == "variable" else ()
    shell = ("env", "TASTE=sweet", *variable, "sbatch", "--parsable", *option)
    for name in (semantics.PLAIN, semantics.PODS):
        argv = (*shell, f"--partition={name}", f"--output={name}", str(folder / "s"))
        semantics.record(lab, lab.run_as_user(argv, cwd=folder).stdout.strip())
    plain, pod = ((folder / name).read_text() for name in (semantics.PLAIN, semantics.PODS))
    assert pod == plain
    assert how == "file" or pod == "red none\n"  # what the file must look like differs between releases
