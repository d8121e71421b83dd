"""`penstock validate`, `explain` and `mkyaml` for people and programs."""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
from pathlib import Path
from typing import Any

import msgspec
import pytest
from click.testing import CliRunner, Result
from tests import goldens

from penstock import errors
from penstock.cli import explain, group, mkinst, validate
from penstock.model import launches
from penstock.render import clifilter, yamltext
from penstock.views import pods

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
    """An empty working directory and a fixed user."""
    monkeypatch.chdir(tmp_path)
    owner = launches.Owner(name="alice", uid=1001, gid=1001, groups=(1001, 2000), home="/home/alice")
    real = pods.owner_named
    monkeypatch.setattr(pods, "owner_named", lambda name="": real(name) if name else owner)
    return tmp_path


def run(command: Any, *words: str, stdin: str = "") -> Result:
    return CliRunner().invoke(command, words, input=stdin)


def test_valid_script(folder: Path) -> None:
    """Exit code 0 and one line."""
    (folder / "a.sh").write_text(GOOD)
    result = run(validate.validate, "a.sh")
    assert (result.exit_code, result.output) == (0, "1 script accepted\n")


def test_typos_are_shown_like_compiler_errors(folder: Path) -> None:
    """With place, line, caret and hint; exit code 1."""
    (folder / "job.sh").write_text(TYPOS)
    result = run(validate.validate, "job.sh")
    assert result.exit_code == 1
    assert result.output == goldens.reviewed("validate_typos.txt", result.output)


def test_json_is_one_array(folder: Path) -> None:
    """With file, ok and diagnostics."""
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


def test_json_of_invalid_utf8(folder: Path) -> None:
    (folder / "a.sh").write_bytes(b"#!/bin/sh\n#SBATCH --f\xff\xfeo\n")
    result = run(validate.validate, "--format", "json", "a.sh")
    assert json.loads(result.output)[0]["ok"] is False


def test_standard_input_and_directories(folder: Path) -> None:
    """- is standard input; hidden and binary files of a directory are skipped."""
    assert run(validate.validate, "-", stdin=GOOD).exit_code == 0
    (folder / "jobs" / ".git").mkdir(parents=True)
    for name in ("jobs/a.sh", "jobs/b", "jobs/.git/c.sh"):
        (folder / name).write_text(GOOD)
    (folder / "jobs" / "notes.txt").write_text("nothing\n")
    (folder / "jobs" / "binary").write_bytes(b"\0\n#SBATCH -N2\n")
    found = json.loads(run(validate.validate, "--format", "json", "jobs").output)
    assert [item["file"] for item in found] == ["jobs/a.sh", "jobs/b"]


def test_wrong_calls(folder: Path) -> None:
    """A missing file, no file, an unknown format."""
    result = run(validate.validate, "nothing.sh")
    assert (result.exit_code, result.stdout) == (2, "")
    assert result.stderr == "penstock: cannot read nothing.sh: no such file or directory\n"
    assert run(validate.validate).exit_code == 2
    assert run(validate.validate, "--format", "xml", "a").exit_code == 2


def test_unreadable_file_does_not_stop_the_others(folder: Path) -> None:
    """It is reported, also by the exit code; what is not a regular file is skipped."""
    (folder / "a.sh").write_text("#!/bin/sh\n#SBATCH --foo\n")
    (folder / "b.sh").symlink_to("gone")
    (folder / "c.sh").symlink_to("c.sh")
    os.mkfifo(folder / "d.sh")
    (folder / "dev").symlink_to("/dev/zero")
    with socket.socket(socket.AF_UNIX) as listening:
        listening.bind("e.sh")
        result = run(validate.validate, "nothing", ".", "--format", "json")
    assert result.exit_code == 2
    assert [(item["file"], item["ok"]) for item in json.loads(result.stdout)] == [("./a.sh", False)]
    assert [line.partition(":")[2] for line in result.stderr.splitlines()] == [
        " cannot read nothing: no such file or directory",
        " cannot read ./b.sh: no such file or directory",
        " cannot read ./c.sh: too many levels of symbolic links",
    ]


@pytest.mark.skipif(not os.getuid(), reason="root reads everything")
def test_unreadable_files_and_folders_are_reported(folder: Path) -> None:
    (folder / "in").mkdir(mode=0)
    (folder / "a.sh").touch(mode=0)
    result = run(validate.validate, ".")
    assert result.exit_code == 2
    assert result.stderr.count("permission denied") == 2


def test_endless_files_are_read_up_to_sbatchs_limit(folder: Path) -> None:
    """A device, and a file larger than memory."""
    said = json.loads(run(validate.validate, "--format", "json", "/dev/zero").stdout)
    assert "script-too-large" in [found["code"] for found in said[0]["diagnostics"]]
    (folder / "data").mkdir()
    with (folder / "data" / "large.sh").open("wb") as file:
        file.write(b"#!/bin/sh\n" + b"#" * 5000)
        file.truncate(2**40)
    result = run(validate.validate, "data")
    assert result.exit_code == 1
    assert "the script has more than 4 MiB" in result.stdout


def test_named_pipe_is_read(folder: Path) -> None:
    """As in `validate <(make-script)`."""
    reader, writer = os.pipe()
    os.write(writer, GOOD.encode())
    os.close(writer)
    try:
        assert run(validate.validate, f"/dev/fd/{reader}").exit_code == 0
    finally:
        os.close(reader)


def test_escape_sequences_in_a_script_are_not_printed(folder: Path) -> None:
    (folder / "a.sh").write_text("#!/bin/sh\n#SBATCH --foo\x1b[31m\n")
    assert "\x1b" not in run(validate.validate, "a.sh").output


def test_site_file(folder: Path) -> None:
    """JSON and TOML; a mistake is one line."""
    (folder / "a.sh").write_text("#!/bin/sh\n#SBATCH -p nope\n")
    (folder / "s.json").write_text('{"partitions": {"gpu": {}}}')
    (folder / "s.toml").write_text("[partitions.gpu]\n")
    for name in ("s.json", "s.toml"):
        assert "unknown-partition" in run(validate.validate, "--site", name, "a.sh").output
    (folder / "s.json").write_text('{"partitoins": {}}')
    result = run(validate.validate, "--site", "s.json", "a.sh")
    assert isinstance(result.exception, errors.UsageError)
    assert "partitoins" in result.exception.message


@pytest.mark.parametrize("name", ["s.json", "s.toml"])
def test_invalid_time_in_a_site_file(folder: Path, name: str) -> None:
    """Reported when the file is read."""
    (folder / "a.sh").write_text(GOOD)
    (folder / "s.json").write_text('{"partitions": {"gpu": {"max_time": "2h"}}}')
    (folder / "s.toml").write_text('[partitions.gpu]\nmax_time = "2h"\n')
    result = run(validate.validate, "--site", name, "a.sh")
    assert isinstance(result.exception, errors.UsageError)
    assert result.exception.message == f"{name}: max_time of partition gpu: '2h' is not a valid time limit"
    assert "2:00:00" in result.exception.hint


def test_explain_in_one_screen(folder: Path) -> None:
    """The request to Slurm, the pods, and what differs from the script."""
    (folder / "train.sh").write_text(TRAIN)
    result = run(explain.explain, "train.sh")
    assert result.exit_code == 0
    assert len(result.output.splitlines()) <= 24
    assert result.output == goldens.reviewed("explain_train.txt", result.output)


def test_explain_merges_equal_warnings(folder: Path) -> None:
    """With all line numbers."""
    late = "".join(f"#SBATCH --comment={number}\n" for number in range(6))
    (folder / "late.sh").write_text(f"#!/bin/bash\nhostname\n{late}")
    said = run(explain.explain, "late.sh").output
    assert said.count("#SBATCH after the first command") == 1
    assert "  - lines 3, 4, 5, 6 and 2 more: #SBATCH after the first command (line 2) is ignored\n" in said


def test_explain_reports_idle_pods_once(folder: Path) -> None:
    """As a warning if the site is known, else as a remark."""
    (folder / "two.sh").write_text("#!/bin/sh\n#SBATCH -N2\nhostname\n")
    (folder / "view.json").write_text('{"partitions": {"gpu": {"default": true}}}')
    for site, words in (("view.json", "the others stay idle"), ("", "the others only hold resources")):
        said = run(explain.explain, "--site", site, "two.sh").output
        assert (said.count("the first"), words in said) == (1, True)


def test_explain_accepts_sbatchs_arguments(folder: Path) -> None:
    """Options after the file override the script's."""
    (folder / "train.sh").write_text(TRAIN)
    document = json.loads(run(explain.explain, "--format", "json", "train.sh", "-N1", "--mem=8G").output)
    assert document["job"]["nodes"] == {"minimum": 1, "maximum": 1}
    assert document["job"]["provenance"]["memory"]["origin"] == "command line"
    assert len(document["pods"]) == 1


def test_explain_of_very_many_pods(folder: Path) -> None:
    """Slurm accepts such a job; its pods are not shown one by one."""
    (folder / "train.sh").write_text(TRAIN)
    told = run(explain.explain, "train.sh", "-N", "2147483647", "-n", "2147483647")
    assert "Kubernetes will run 2147483647 pods" in told.output
    refused = run(explain.explain, "--format", "yaml", "train.sh", "-N", "2147483647", "-n", "2147483647")
    assert isinstance(refused.exception, errors.UsageError)


def test_explain_as_manifests(folder: Path) -> None:
    """Namespace and pods as YAML."""
    (folder / "train.sh").write_text(TRAIN)
    text = run(explain.explain, "--format", "yaml", "train.sh").output
    assert text == goldens.reviewed("explain_train.yaml", text)


def test_explain_of_an_invalid_script(folder: Path) -> None:
    """Shows the errors like validate."""
    (folder / "a.sh").write_text("#!/bin/sh\n#SBATCH --foo\n")
    result = run(explain.explain, "a.sh")
    assert result.exit_code == 1
    assert "unknown-option" in result.output


def test_explain_of_an_invalid_script_for_programs(folder: Path) -> None:
    """JSON keeps its shape; with YAML the diagnostics go to standard error."""
    (folder / "a.sh").write_bytes(b"#!/bin/sh\n#SBATCH --f\xffoo\n")
    result = run(explain.explain, "--format", "json", "a.sh")
    document = json.loads(result.stdout)
    assert (result.exit_code, document["job"], document["pods"]) == (1, None, [])
    assert [found["code"] for found in document["diagnostics"]] == ["unknown-option"]
    result = run(explain.explain, "a.sh", "--format=yaml")
    assert (result.exit_code, result.stdout) == (1, "")
    assert "unknown-option" in result.stderr


@pytest.mark.parametrize("style", ["text", "json", "yaml"])
def test_explain_prints_on_any_terminal(folder: Path, style: str) -> None:
    """Invalid bytes in the script, and characters that the terminal lacks."""
    (folder / "a.sh").write_bytes(
        b"#!/bin/sh\n#SBATCH -J Z\xfcrich --comment=caf\xc3\xa9\n#K8S_COMMAND=@entrypoint\n"
        b"#K8S_IMAGE=a\n#K8S_ENV=A=caf\xc3\xa9\n"
    )
    argv = [sys.executable, "-m", "penstock", "explain", "--format", style, "a.sh"]
    environment = {**os.environ, "PYTHONIOENCODING": "ascii"}
    done = subprocess.run(argv, capture_output=True, env=environment, timeout=60, check=False)
    assert (done.returncode, done.stderr) == (0, b"")
    expected = {"text": b"Z?rich", "json": b"caf\xc3\xa9", "yaml": rb'"caf\u00e9"'}
    assert expected[style] in done.stdout


def test_explain_of_a_folder(folder: Path) -> None:
    """Only one script at a time is accepted."""
    (folder / "jobs").mkdir()
    for _ in range(2):
        result = run(explain.explain, "jobs")
        assert isinstance(result.exception, errors.UsageError)
        assert result.exception.message == "jobs is a folder"
        (folder / "jobs" / "a.sh").write_text(GOOD)


@pytest.mark.parametrize(
    ("words", "name"),
    [
        (["a.sh", "-Jhello"], "hello"),
        (["a.sh", "-J", "hello"], "hello"),
        (["--", "a.sh", "-Jhello"], "hello"),
        (["--slurm=24.11", "a.sh", "--job-name=hello"], "hello"),
        (["a.sh", "--slurm", "24.11"], "a.sh"),
    ],
)
def test_explain_leaves_sbatchs_options_to_sbatch(folder: Path, words: list[str], name: str) -> None:
    """An h in a name is not a request for help; our options may be on both sides of the script."""
    (folder / "a.sh").write_text(GOOD)
    result = run(group.cli, "explain", "--format", "json", *words)
    assert json.loads(result.stdout)["job"]["name"] == name


def test_explain_needs_the_script_first(folder: Path) -> None:
    """Otherwise only sbatch could tell values from the script."""
    (folder / "a.sh").write_text(GOOD)
    result = run(explain.explain, "-N4", "a.sh")
    assert isinstance(result.exception, errors.UsageError)
    assert result.exception.message == "penstock explain has no option -N4"
    assert "after the script" in result.exception.hint
    assert "Usage:" in run(explain.explain, "a.sh", "--help").output
    assert "Missing argument" in run(explain.explain).output
    assert "requires an argument" in run(explain.explain, "a.sh", "--format").output


def test_explain_shows_the_partitions_image(folder: Path) -> None:
    """It overrides the site's default, and the script's overrides it; of several partitions Slurm chooses."""
    (folder / "a.sh").write_text(GOOD)
    (folder / "s.json").write_text(
        '{"default_image": "site:1", "partitions": {"a": {"default": true, "image": "own:1"}, "b": {}}}'
    )
    images = {}
    for words in ((), ("-p", "b"), ("-p", "a,b")):
        said = run(explain.explain, "--site", "s.json", "a.sh", *words).stdout
        (images[words],) = (line.split(None, 1)[1] for line in said.splitlines() if " image " in line)
    assert images == {(): "own:1", ("-p", "b"): "site:1", ("-p", "a,b"): "own:1, in b site:1"}
    (folder / "a.sh").write_text(GOOD.replace("hostname", "#K8S_IMAGE=mine:1"))
    assert "mine:1\n" in run(explain.explain, "--site", "s.json", "a.sh", "-p", "a,b").stdout


def test_mkyaml(folder: Path) -> None:
    """A manifest with the labels and security of a job's pod."""
    text = run(mkinst.mkyaml, *WORDS, *IMAGE).output
    assert text == goldens.reviewed("mkyaml_gpu1.yaml", text)


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["gpu9", *WORDS[1:], *IMAGE], "unknown flavour 'gpu9'"),
        (["gpu1", "big", *WORDS[2:], *IMAGE], "unknown class 'big'"),
        (["gpu1", "std", "no such user", *WORDS[3:], *IMAGE], "neither a user"),
        ([*WORDS, "--image", "Not/Ok"], "--image"),
        (WORDS, "the image is empty"),
        ([*WORDS[:-1], "8Q", *IMAGE], "--memory"),
        ([*WORDS[:-1], "0", *IMAGE], "--memory"),
        ([*WORDS[:-1], "9999999T", *IMAGE], "--memory"),
        (["gpu1", "std", "root", *WORDS[3:], *IMAGE], "must not run as root"),
        (["gpu1", "std", "0", *WORDS[3:], *IMAGE], "neither a user"),
    ],
)
def test_mkyaml_checks_its_arguments(folder: Path, words: list[str], message: str) -> None:
    """One clear line for each."""
    result = run(mkinst.mkyaml, *words)
    assert isinstance(result.exception, errors.UsageError)
    assert message in result.exception.message


def test_yaml_round_trip() -> None:
    """Strings that look like other types stay strings."""
    yaml = pytest.importorskip("yaml")
    value = {
        "a": ["1:30:00", "no", "0x10", "", "null", "plain", "a: b", "- x", "é\n"],
        "b": {"c": [], "d": {}, "e": [{"f": 1, "g": [True, None]}, [1.5]]},
    }
    assert yaml.safe_load(yamltext.document(value)) == value


def test_cli_filter_refuses_names_with_quotes() -> None:
    """A quote in a partition's name must not end the Lua string."""
    with pytest.raises(errors.UsageError):
        clifilter.render_cli_filter(penstock="p", bridged_partitions=('a"b',), default_partition="a")


def test_job_spec_json_round_trip(folder: Path) -> None:
    from penstock.model.jobspec import JobSpec
    from penstock.sbatch.compiler import compile_script

    spec = compile_script(TRAIN.encode()).spec
    assert msgspec.json.decode(msgspec.json.encode(spec), type=JobSpec) == spec
