"""`penstock validate`, `explain` and `mkyaml` as a person or a program calls them."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import msgspec
import pytest
from click.testing import CliRunner, Result
from tests import goldens

from penstock import errors
from penstock.cli import explain, mkinst, validate
from penstock.model import launches
from penstock.render import clifilter, yamltext

GOOD = "#!/bin/bash\n#SBATCH -N2 -t 5\nhostname\n"
TYPOS = (
    "#!/bin/bash\n#SBATCH --job-name=my job\n#SBATCH --ntaks=4\n#SBATCH --mem=1.5G --time=2h\n"
    "#K8S_IMGAE=nas-hub.local:5407/pytorch:latest\nmodule load x\n#SBATCH --gres=gpu:1\n"
)
TRAIN = (
    "#!/bin/bash\n#SBATCH --job-name=train --nodes=2 --ntasks-per-node=4 -p gpu\n"
    "#SBATCH --cpus-per-task=2 --gres=gpu:4 --mem=16G --time=1-12:00:00 --exclusive\n"
    "#K8S_IMAGE=nas-hub.local:5407/pytorch:latest\n#K8S_SHM_SIZE=2G\n#K8S_OUTPUTS=out/*\n"
    "srun python train.py\n"
)
WORDS = ["gpu1", "std", "2019123456", "--job-id", "12345", "--cpu", "4", "--memory", "8G"]
IMAGE = ["--image", "nas-hub.local:5407/pytorch:latest"]


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty working directory, and a user that is the same everywhere."""
    monkeypatch.chdir(tmp_path)
    owner = launches.Owner(name="alice", uid=1001, gid=1001, groups=(1001, 2000))
    real = explain.owner_named
    monkeypatch.setattr(explain, "owner_named", lambda name="": real(name) if name else owner)
    return tmp_path


def run(command: Any, *words: str, stdin: str = "") -> Result:
    """Call a command as the program does."""
    return CliRunner().invoke(command, words, input=stdin)


def test_a_good_script(folder: Path) -> None:
    """Accepted: status 0 and one line."""
    (folder / "a.sh").write_text(GOOD)
    result = run(validate.validate, "a.sh")
    assert (result.exit_code, result.output) == (0, "1 script accepted\n")


def test_typos_are_shown_as_a_compiler_shows_them(folder: Path) -> None:
    """Every mistake with its place, the line, a caret and what to write; status 1."""
    (folder / "job.sh").write_text(TYPOS)
    result = run(validate.validate, "job.sh")
    assert result.exit_code == 1
    assert result.output == goldens.reviewed("validate_typos.txt", result.output)


def test_json_is_one_array(folder: Path) -> None:
    """Programs read file, ok and the findings."""
    (folder / "a.sh").write_text(GOOD)
    (folder / "b.sh").write_text("#!/bin/sh\n#SBATCH --foo\n")
    result = run(validate.validate, "--format", "json", "a.sh", "b.sh")
    assert result.exit_code == 1
    good, bad = json.loads(result.output)
    assert good == {"file": "a.sh", "ok": True, "diagnostics": []}
    assert (bad["file"], bad["ok"]) == ("b.sh", False)
    assert bad["diagnostics"] == [
        {
            "severity": "error",
            "line": 2,
            "column": 9,
            "code": "unknown-option",
            "message": "sbatch has no option --foo",
            "hint": "see docs/compatibility.md for all options",
        }
    ]


def test_json_of_bytes_that_are_no_text(folder: Path) -> None:
    """Stray bytes in a message do not break the JSON."""
    (folder / "a.sh").write_bytes(b"#!/bin/sh\n#SBATCH --f\xff\xfeo\n")
    result = run(validate.validate, "--format", "json", "a.sh")
    assert json.loads(result.output)[0]["ok"] is False


def test_standard_input_and_directories(folder: Path) -> None:
    """- is standard input; a directory gives its scripts, without hidden and binary ones."""
    assert run(validate.validate, "-", stdin=GOOD).exit_code == 0
    (folder / "jobs" / ".git").mkdir(parents=True)
    for name in ("jobs/a.sh", "jobs/b", "jobs/.git/c.sh"):
        (folder / name).write_text(GOOD)
    (folder / "jobs" / "notes.txt").write_text("nothing\n")
    (folder / "jobs" / "binary").write_bytes(b"\0\n#SBATCH -N2\n")
    found = json.loads(run(validate.validate, "--format", "json", "jobs").output)
    assert [item["file"] for item in found] == ["jobs/a.sh", "jobs/b"]


def test_wrong_calls(folder: Path) -> None:
    """A file that is not there, no file, an unknown format: the call is wrong, not the script."""
    result = run(validate.validate, "nothing.sh")
    assert isinstance(result.exception, errors.UsageError)
    assert result.exception.exit_code == 2
    assert run(validate.validate).exit_code == 2
    assert run(validate.validate, "--format", "xml", "a").exit_code == 2


def test_terminal_codes_in_a_script_are_not_printed(folder: Path) -> None:
    """A script cannot write escape sequences to the reader's terminal."""
    (folder / "a.sh").write_text("#!/bin/sh\n#SBATCH --foo\x1b[31m\n")
    assert "\x1b" not in run(validate.validate, "a.sh").output


def test_a_site_file(folder: Path) -> None:
    """JSON and TOML are read; a mistake in it is one line."""
    (folder / "a.sh").write_text("#!/bin/sh\n#SBATCH -p nope\n")
    (folder / "s.json").write_text('{"partitions": {"gpu": {}}}')
    (folder / "s.toml").write_text("[partitions.gpu]\n")
    for name in ("s.json", "s.toml"):
        assert "unknown-partition" in run(validate.validate, "--site", name, "a.sh").output
    (folder / "s.json").write_text('{"partitoins": {}}')
    result = run(validate.validate, "--site", "s.json", "a.sh")
    assert isinstance(result.exception, errors.UsageError)
    assert "partitoins" in result.exception.message


def test_explain_in_one_screen(folder: Path) -> None:
    """What Slurm is asked, which pods, and what is not as written."""
    (folder / "train.sh").write_text(TRAIN)
    result = run(explain.explain, "train.sh")
    assert result.exit_code == 0
    assert len(result.output.splitlines()) <= 24
    assert result.output == goldens.reviewed("explain_train.txt", result.output)


def test_explain_says_each_warning_once_with_its_lines(folder: Path) -> None:
    """Nine directives too late are one mistake."""
    late = "".join(f"#SBATCH --comment={number}\n" for number in range(6))
    (folder / "late.sh").write_text(f"#!/bin/bash\nhostname\n{late}")
    said = run(explain.explain, "late.sh").output
    assert said.count("#SBATCH after the first command") == 1
    assert "  - lines 3, 4, 5, 6 and 2 more: #SBATCH after the first command (line 2) is ignored\n" in said


def test_explain_takes_sbatchs_arguments(folder: Path) -> None:
    """Options after the file win over the script's."""
    (folder / "train.sh").write_text(TRAIN)
    document = json.loads(run(explain.explain, "--format", "json", "train.sh", "-N1", "--mem=8G").output)
    assert document["job"]["nodes"] == {"minimum": 1, "maximum": 1}
    assert document["job"]["provenance"]["memory"]["origin"] == "command line"
    assert len(document["pods"]) == 1


def test_explain_as_manifests(folder: Path) -> None:
    """The namespace and the pods as YAML."""
    (folder / "train.sh").write_text(TRAIN)
    text = run(explain.explain, "--format", "yaml", "train.sh").output
    assert text == goldens.reviewed("explain_train.yaml", text)


def test_explain_of_a_wrong_script(folder: Path) -> None:
    """It says what is wrong, as validate does."""
    (folder / "a.sh").write_text("#!/bin/sh\n#SBATCH --foo\n")
    result = run(explain.explain, "a.sh")
    assert result.exit_code == 1
    assert "unknown-option" in result.output


def test_mkyaml(folder: Path) -> None:
    """From words to a manifest with the labels and security of a job's pod."""
    text = run(mkinst.mkyaml, *WORDS, *IMAGE).output
    assert text == goldens.reviewed("mkyaml_gpu1.yaml", text)


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["gpu9", *WORDS[1:], *IMAGE], "no flavour is called 'gpu9'"),
        (["gpu1", "big", *WORDS[2:], *IMAGE], "no class is called 'big'"),
        (["gpu1", "std", "no such user", *WORDS[3:], *IMAGE], "neither a user"),
        ([*WORDS, "--image", "Not/Ok"], "--image"),
        (WORDS, "no image is named"),
        ([*WORDS[:-1], "8Q", *IMAGE], "--memory"),
        ([*WORDS[:-1], "0", *IMAGE], "--memory"),
        ([*WORDS[:-1], "9999999T", *IMAGE], "--memory"),
        (["gpu1", "std", "root", *WORDS[3:], *IMAGE], "does not run as root"),
        (["gpu1", "std", "0", *WORDS[3:], *IMAGE], "neither a user"),
    ],
)
def test_mkyaml_checks_its_words(folder: Path, words: list[str], message: str) -> None:
    """Each wrong word is one clear line."""
    result = run(mkinst.mkyaml, *words)
    assert isinstance(result.exception, errors.UsageError)
    assert message in result.exception.message


def test_yaml_reads_back_as_what_was_written() -> None:
    """Strings that look like something else stay strings."""
    yaml = pytest.importorskip("yaml")
    value = {
        "a": ["1:30:00", "no", "0x10", "", "null", "plain", "a: b", "- x", "é\n"],
        "b": {"c": [], "d": {}, "e": [{"f": 1, "g": [True, None]}, [1.5]]},
    }
    assert yaml.safe_load(yamltext.document(value)) == value


def test_cli_filter_refuses_names_that_would_break_it() -> None:
    """A quote in a partition's name must not end the Lua string."""
    with pytest.raises(errors.UsageError):
        clifilter.render_cli_filter(penstock="p", bridged_partitions=('a"b',), default_partition="a")


def test_job_spec_survives_json(folder: Path) -> None:
    """The representation can be stored and read again."""
    from penstock.model.jobspec import JobSpec
    from penstock.sbatch.compiler import compile_script

    spec = compile_script(TRAIN.encode()).spec
    assert msgspec.json.decode(msgspec.json.encode(spec), type=JobSpec) == spec
