"""The table of srun's options is complete and consistent."""

from __future__ import annotations

import re
import shutil
import string
import subprocess
from pathlib import Path

import pytest

from penstock.calls import getopt, srunoptions
from penstock.model import releases
from tests.calls import calling

RELEASES = ((22, 5), (23, 2), (23, 11), (24, 5), (24, 11), (25, 5), (25, 11), (26, 5))


def of_srun(release: releases.Release) -> list[srunoptions.Option]:
    """Options of srun itself, in its order."""
    return [option for option in srunoptions.table(release).by_name.values() if not option.of_pyxis]


@pytest.mark.parametrize("release", RELEASES)
def test_names_letters_and_variables_are_unique(release: releases.Release) -> None:
    """In every release; and every row has a treatment and a sentence."""
    text = releases.text(release)
    table = srunoptions.table(release)
    names = [option.name for option in table.options if option.name]
    letters = [option.short for option in table.options if option.short]
    variables = [
        variable.name for option in table.options for variable in option.environment if variable.read_by(text)
    ]
    for found in (names, letters, variables):
        assert len(set(found)) == len(found)
    for option in table.options:
        assert option.treatment in ("native", "pod", "refused", "ignored")
        assert option.note
        assert not option.note.endswith(".")


def test_bounds_are_releases() -> None:
    """Of options and of variables."""
    known = {"", *map(releases.text, RELEASES)}
    for option in srunoptions.every_option():
        assert {option.since, option.until} <= known, option
        for variable in option.environment:
            assert {variable.since, variable.until} <= known, variable


@pytest.mark.parametrize(("release", "count"), [((22, 5), 131), ((24, 11), 138), ((26, 5), 147)])
def test_number_of_options(release: releases.Release, count: int) -> None:
    """Counted in the sources of these releases."""
    assert len(of_srun(release)) == count


@pytest.mark.parametrize(
    ("release", "variable"),
    [((22, 5), "SRUN_CPUS_PER_TASK"), ((23, 2), "SRUN_CPUS_PER_TASK"), ((23, 11), "SLURM_CPUS_PER_TASK")],
)
def test_variables_are_those_of_the_release(release: releases.Release, variable: str) -> None:
    """The CPUs of a task were read from another variable for two releases."""
    option = srunoptions.table(release).by_short["c"]
    read = [found.name for found in option.environment if found.read_by(releases.text(release))]
    assert read == [variable]


def installed(folder: Path, *words: str) -> subprocess.CompletedProcess[bytes]:
    srun = shutil.which("srun")
    assert srun
    return subprocess.run(
        ["srun", *words],
        executable=srun,
        env=calling.slurm_conf(folder),
        stdin=subprocess.DEVNULL,
        capture_output=True,
        timeout=30,
        check=False,
    )


@pytest.fixture
def release(tmp_path: Path) -> releases.Release:
    """That of the installed srun."""
    return releases.parse(installed(tmp_path, "--version").stdout.decode())


@pytest.mark.needs("srun", package="slurm-client")
def test_the_installed_srun_has_the_same_options(tmp_path: Path, release: releases.Release) -> None:
    """It lists all of them, in its order, for a prefix without a letter."""
    listed = re.findall(r"'--([\w-]+)'", installed(tmp_path, "--=").stderr.decode())
    assert listed == [option.name for option in of_srun(release)]


@pytest.mark.needs("srun", package="slurm-client")
def test_the_installed_srun_has_the_same_letters(tmp_path: Path, release: releases.Release) -> None:
    """And those that take a value say so when it is missing."""
    by_short = srunoptions.table(release).by_short
    for letter in string.ascii_letters:
        said = installed(tmp_path, f"-{letter}").stderr.decode().partition("\n")[0]
        option = by_short.get(letter)
        assert ("invalid option" in said) == (option is None), letter
        assert ("requires an argument" in said) == bool(option and option.argument == "required"), letter


@pytest.mark.needs("srun", package="slurm-client")
def test_the_installed_srun_takes_values_for_the_same_options(
    tmp_path: Path, release: releases.Release
) -> None:
    """One that takes none refuses it, one that needs it asks for it."""
    for option in of_srun(release):
        words = [f"--{option.name}"] if option.argument == "required" else [f"--{option.name}=", "--wrong"]
        said = installed(tmp_path, *words).stderr.decode().partition("\n")[0]
        assert ("requires an argument" in said) == (option.argument == "required"), option.name
        assert ("doesn't allow an argument" in said) == (option.argument == "none"), option.name


@pytest.mark.needs("srun", package="slurm-client")
@pytest.mark.parametrize("page", ["--help", "--usage"])
def test_every_option_in_the_installed_help_is_known(
    tmp_path: Path, release: releases.Release, page: str
) -> None:
    """Some that the usage names do not exist, and it names one with an underscore."""
    named = set(re.findall(r"--([\w-]+)", installed(tmp_path, page).stdout.decode()))
    gone = {"ctrl-comm-ifhn", "mpi-combine", "slurmd_debug"}
    assert named - gone <= set(srunoptions.table(release).by_name)


@pytest.mark.needs("srun", package="slurm-client")
@pytest.mark.parametrize(
    "text",
    [
        "--foo",
        "--foo=3",
        "-g",
        "-gpus 1",
        "-lfoo",
        "--no",
        "--noda",
        "--n",
        "--cpu x",
        "--con x",
        "--ex=x y",
        "--=3",
        "--cluste",
        "-n",
        "-ln",
        "--ntasks",
        "--ntask",
        "--label=x",
        "--lab=",
        "--jobid",
        "--foo -V",
        "-N 1 -Y",
        "-\xe4",
        "--\xe4=1",
    ],
)
def test_wrong_words_end_as_in_the_installed_srun(
    tmp_path: Path, release: releases.Release, text: str
) -> None:
    """Message and code."""
    words = text.split()
    parsed = getopt.parse([word.encode() for word in words], srunoptions.table(release))
    done = installed(tmp_path, *words)
    expected = b'srun: %b\nTry "srun --help" for more information\n' % parsed.wrong
    assert (done.stderr, done.returncode) == (expected, 255)
