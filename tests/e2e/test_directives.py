"""#K8S_ directives end to end: what a script may say about its own pods."""

from __future__ import annotations

from penstock_lab import testing

Lab = testing.RunningLab


def run(lab: Lab, *directives: str, body: str = "true") -> tuple[str, str]:
    """State and output of a script with these directives."""
    head = "".join(f"#K8S_{directive}\n" for directive in directives)
    job_id = lab.sbatch(f"#!/bin/sh\n{head}{body}\n")
    state = lab.accounted(job_id)[0]
    return state, (lab.home / f"slurm-{job_id}.out").read_text()


def test_workdir_and_environment(lab: Lab) -> None:
    """The script starts in that folder with that variable."""
    folder = lab.home / "elsewhere"
    folder.mkdir(exist_ok=True)
    state, text = run(lab, f"WORKDIR={folder}", "ENV=MODE=fast one", body='echo "$MODE in $(pwd)"')
    assert (state, text) == ("COMPLETED", f"fast one in {folder}\n")


def test_script_and_command(lab: Lab) -> None:
    """Another script, or a command, in place of the batch script's own lines."""
    other = lab.home / "other.sh"
    other.write_text("echo the other script\n")
    assert run(lab, f"SCRIPT={other}", body="echo mine") == ("COMPLETED", "the other script\n")
    assert run(lab, "COMMAND=/bin/echo 'as it stands'", body="echo mine") == ("COMPLETED", "as it stands\n")


def test_a_folder_of_the_nas_under_another_name(lab: Lab) -> None:
    """Read-only when asked to be."""
    source = lab.home / "dataset"
    source.mkdir(exist_ok=True)
    (source / "a").write_text("content\n")
    body = "cat /data/a; touch /data/b 2>/dev/null || echo read-only"
    assert run(lab, f"MOUNT={source}:/data:ro", body=body) == ("COMPLETED", "content\nread-only\n")


def test_invalid_directives_fail_with_a_message(lab: Lab) -> None:
    """One line in the output, naming the directive."""
    state, text = run(lab, "MOUNT=/etc:/data")
    assert state == "FAILED"
    assert "#K8S_MOUNT=/etc: only folders under" in text
    state, text = run(lab, "IMAGES=x")
    assert state == "FAILED"
    assert "#K8S_IMAGES is not known" in text
