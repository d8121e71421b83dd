"""The compiler against the real sbatch, live.

Two questions are put for every script of the corpus and every directive of tests/sbatch/cases.json:

* **Is it accepted?** sbatch reads the script and its options, checks them, and only then calls slurmctld.
  With a slurm.conf that names a dead port, "Unable to contact slurm controller" means that sbatch had
  nothing to object to; anything else is a refusal. No name of a partition, account or node matters here,
  so nothing is overridden.
* **What will Slurm be asked?** The script is submitted held to the lab's unbridged partition and JobSpec
  is compared with `scontrol show job`. The corpus names partitions, accounts, features and nodes the lab
  has not: those options are overridden on the command line, for sbatch and the compiler alike, only where
  the script sets them. Amounts are never overridden: slurmctld accepts a held job of any size.

A difference fails the test; only scripts that sbatch refuses have no second question. The compiler is given
the release of the lab's Slurm: `make test-matrix` asks every one of them.
"""

from __future__ import annotations

import functools
import json
import os
import re
import string
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from tests.sbatch import oracle

from penstock.sbatch import compiler, options
from penstock_lab import testing as lab_testing

PROJECT = Path(__file__).parents[2]
CORPUS = PROJECT.parent / "shared" / "corpus"
CASES = json.loads((PROJECT / "tests" / "sbatch" / "cases.json").read_text(encoding="utf-8"))
DIRECTIVES = [case["directive"] for case in CASES]
SCRIPTS = json.loads((PROJECT / "tests" / "sbatch" / "scripts.json").read_text(encoding="utf-8"))
DEFAULT_TIME = 60  # minutes, DefaultTime of the lab's partitions

# What names something of another site, and what is said instead.
ELSEWHERE = {
    "qos": "--qos=normal",
    "constraint": "--constraint=",
    "nodelist": "--nodelist=n1",
    "exclude": "--exclude=n4",
    "licenses": "--licenses=",
    "reservation": "--reservation=",
    "dependency": "--dependency=singleton",
}
# Lines that make little sense, which later releases take in a way of their own: what they make of it is not
# followed, and that they still do is checked.
BOTH_LATER = ("--gres=gpu:1:2:3", "--gpus-per-task=2x -n1")
NOT_FOLLOWED = {
    "24.11": {
        *BOTH_LATER,
        "--gpus-per-node=a100:4,v100:2 --gpus-per-task=a100:2,v100:1 -n3 -c3",
        "--gpus-per-node=a100:4,v100:2 --gpus-per-task=a100:1,v100:1 -n3 -c3",
    },
    "26.05": {*BOTH_LATER},
}
ALWAYS = ("--hold", "--partition=host", "--account=research")


def corpus() -> list[Path]:
    """The real scripts, or nothing where they are not there."""
    return sorted(path for path in CORPUS.rglob("*") if path.is_file() and path.name != "SOURCES.csv")


@pytest.fixture(scope="module")
def deaf_conf(lab: lab_testing.RunningLab, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The lab's slurm.conf with a port nobody listens on, and without our own advice: sbatch decides."""
    changed = {"SlurmctldPort": "9", "MessageTimeout": "0"}
    lines = []
    for line in lab.place.slurm_conf.read_text(encoding="utf-8").splitlines():
        name = line.partition("=")[0]
        if name != "CliFilterPlugins":
            lines.append(f"{name}={changed[name]}" if name in changed else line)
    folder = tmp_path_factory.mktemp("deaf")
    conf = folder / "slurm.conf"
    conf.write_text("\n".join(lines) + "\n", encoding="utf-8")
    (folder / "gres.conf").write_bytes(lab.place.gres_conf.read_bytes())
    return conf


def sbatch_accepts(lab: lab_testing.RunningLab, conf: Path, script: Path) -> tuple[bool, str]:
    """sbatch's own verdict on a script, and what it said."""
    argv = ("env", f"SLURM_CONF={conf}", "sbatch", str(script))
    said = lab.run(argv, check=False).stderr
    return "Unable to contact slurm controller" in said, said


def slurmctld_accepts(lab: lab_testing.RunningLab, script: Path) -> tuple[bool, str]:
    """The whole verdict: arrays, dependencies and types of GPUs are read by slurmctld alone."""
    said = lab.run(("sbatch", "--parsable", *ALWAYS, str(script)), check=False)
    if said.returncode == 0:
        lab.run(("scancel", said.stdout.strip().partition(";")[0]))
    return said.returncode == 0, said.stderr


def shown(lab: lab_testing.RunningLab, script: Path, arguments: tuple[str, ...]) -> dict[str, str]:
    """Submit held, read what slurmctld keeps, cancel."""
    job_id = lab.run(("sbatch", "--parsable", *arguments, str(script))).stdout.strip().partition(";")[0]
    try:
        said = lab.run(("scontrol", "show", "job", "--oneliner", job_id)).stdout
    finally:
        lab.run(("scancel", job_id))
    return oracle.fields(said.splitlines()[0])


def overrides(done: compiler.Compilation) -> tuple[str, ...]:
    """What must be said otherwise so that this site can take the job."""
    given = {setting.option.key for setting in done.given}
    return (*ALWAYS, *(text for name, text in ELSEWHERE.items() if name in given))


@functools.lru_cache(maxsize=1)
def context(lab: lab_testing.RunningLab) -> compiler.Context:
    """Whose rules the compiler is to have."""
    version = lab.run(("sbatch", "--version")).stdout.split()[-1]
    return compiler.Context(release=options.release_of(version))


def check(lab: lab_testing.RunningLab, conf: Path, script: Path) -> str:
    """Both questions for one script; what differs, or nothing."""
    data = script.read_bytes()
    ours = context(lab)
    done = compiler.compile_script(data, name=script.name, context=ours)
    accepted, said = sbatch_accepts(lab, conf, script)
    if accepted and not done.ok:
        accepted, said = slurmctld_accepts(lab, script)
    if done.ok != accepted:
        errors = [found.message for found in done.diagnostics if found.severity == "error"]
        return f"{script}: sbatch {'accepts' if accepted else 'refuses'} ({said.strip()}), we say {errors}"
    if not accepted:
        return ""
    arguments = overrides(done)
    spec = compiler.compile_script(data, name=script.name, arguments=arguments, context=ours).spec
    if spec is None:
        return f"{script}: refused with {arguments}"
    found = shown(lab, script, arguments)
    different = oracle.differences(spec, found, default_time=DEFAULT_TIME, release=ours.release)
    return f"{script}: {different}" if different else ""


def test_every_corpus_script(lab: lab_testing.RunningLab, deaf_conf: Path) -> None:
    """Verdict and job agree for 100 % of the real scripts."""
    scripts = corpus()
    if not scripts:
        pytest.skip("the corpus of real scripts is not beside the project")
    assert [problem for script in scripts if (problem := check(lab, deaf_conf, script))] == []


def test_the_table_has_the_options_of_this_sbatch(lab: lab_testing.RunningLab) -> None:
    """For every first letter sbatch names its options: they are those of the table, no more and no less."""
    names: set[str] = set()
    for letter in string.ascii_lowercase:
        said = lab.run(("sbatch", f"--{letter}"), check=False, stdin="").stderr
        names.update(re.findall(r"'--([a-z0-9-]+)'", said.partition("possibilities:")[2]))
        names.update(re.findall(r"option '--([a-z0-9-]+)' requires", said))
    assert names == set(options.table(context(lab).release).by_name)


def not_followed(lab: lab_testing.RunningLab, line: str) -> bool:
    """Whether a script has nothing but a line that this release takes otherwise."""
    return line.strip() in NOT_FOLLOWED.get(context(lab).release, ())


def test_every_directive_of_ours(lab: lab_testing.RunningLab, deaf_conf: Path, tmp_path: Path) -> None:
    """Verdict and job agree for every recorded directive, so the recording is still true."""
    problems = []
    script = tmp_path / "s.sh"
    for directive in DIRECTIVES:
        script.write_text(f"#!/bin/bash\n#SBATCH {directive}\nhostname\n", encoding="utf-8")
        problem = check(lab, deaf_conf, script)
        if not_followed(lab, directive):
            problem = "" if problem else f"{directive}: sbatch and we agree by now"
        problems.append(problem)
    assert [problem for problem in problems if problem] == []


def test_every_dependency_of_ours(lab: lab_testing.RunningLab, tmp_path: Path) -> None:
    """Only slurmctld reads them. Later releases refuse those on jobs that are not there: 1 and 2 are made."""
    script = tmp_path / "s.sh"
    array = ("sbatch", "--parsable", "--array=1-3", "--wrap=true", *ALWAYS)
    there = {number: lab.run(array).stdout.strip() for number in "12"}
    problems = []
    for directive in (each for each in DIRECTIVES if each.startswith("--dependency")):
        named = re.sub(r"(?<![\d_+])[12](?!\d)", lambda number: there[number[0]], directive)
        script.write_text(f"#!/bin/bash\n#SBATCH {named}\nhostname\n", encoding="utf-8")
        ours = compiler.compile_script(script.read_bytes(), context=context(lab)).ok
        accepted, said = slurmctld_accepts(lab, script)
        problems.append("" if accepted == ours else f"{named}: we say {ours}, slurmctld {said.strip()!r}")
    lab.run(("scancel", *there.values()))
    assert [problem for problem in problems if problem] == []


def test_every_script_of_ours(lab: lab_testing.RunningLab, deaf_conf: Path, tmp_path: Path) -> None:
    """The same for whole scripts: #PBS and #BSUB lines, quotes, line ends, bytes that are no text."""
    script = tmp_path / "s.sh"
    problems = []
    for case in SCRIPTS:
        script.write_bytes(case["script"].encode("latin-1"))
        if not not_followed(lab, case["script"].partition("#SBATCH ")[2].partition("\n")[0]):
            problems.append(check(lab, deaf_conf, script))
    assert [problem for problem in problems if problem] == []


COUNT = st.sampled_from(["1", "2", "3", "4", "6", "8"])
TYPED = st.builds(lambda kind, count: f"{kind}{count}", st.sampled_from(["", "", "a100:"]), COUNT)
OPTION = st.one_of(
    st.builds("--nodes={}".format, st.one_of(COUNT, st.builds("{}-{}".format, COUNT, COUNT))),
    st.builds("--ntasks={}".format, COUNT),
    st.builds("--cpus-per-task={}".format, COUNT),
    st.builds("--ntasks-per-node={}".format, COUNT),
    st.builds("--gpus={}".format, TYPED),
    st.builds("--gpus-per-node={}".format, TYPED),
    st.builds("--gpus-per-task={}".format, TYPED),
    st.builds("--gres=gpu:{}".format, TYPED),
    st.builds("--ntasks-per-gpu={}".format, COUNT),
    st.builds("--cpus-per-gpu={}".format, COUNT),
    st.builds("--mem={}".format, st.sampled_from(["0", "500", "1G", "1500K", "1.5G"])),
    st.builds("--mem-per-cpu={}".format, st.sampled_from(["0", "500", "1G"])),
    st.builds(
        "--time={}".format, st.from_regex(r"[0-9]{1,3}(-[0-9]{0,2})?(:[0-9]{0,2}){0,3}", fullmatch=True)
    ),
    st.builds("-J {}".format, st.text("ab \"'\\#", max_size=6)),
    st.sampled_from(["--exclusive", "-s", "-O", "--requeue", "--no-requeue", "--hint=nomultithread"]),
)


@settings(
    max_examples=int(os.environ.get("PENSTOCK_EXPLORE", "150")),
    derandomize="PENSTOCK_EXPLORE" not in os.environ,
    deadline=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture],
)
@given(chosen=st.lists(OPTION, min_size=1, max_size=4))
def test_generated_directives(
    lab: lab_testing.RunningLab, deaf_conf: Path, tmp_path: Path, chosen: list[str]
) -> None:
    """Whatever is put together, sbatch and the compiler understand the same.

    The same 150 every time, so that a change is judged by itself; PENSTOCK_EXPLORE=1000 tries new ones.
    """
    script = tmp_path / "s.sh"
    text = "".join(f"#SBATCH {option}\n" for option in chosen)
    script.write_text(f"#!/bin/bash\n{text}hostname\n", encoding="utf-8")
    assert check(lab, deaf_conf, script) == ""
