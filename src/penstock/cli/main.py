"""The `penstock` command: a table of sub-commands, each imported only when called.

To keep start-up short nothing else is imported here, not even click, which a plain `validate` does not need.
A PenstockError is printed as one line and a hint; any other exception is a bug and keeps its traceback.
"""

from __future__ import annotations

import gc
import os
import sys

gc.set_threshold(50_000)  # imports leave no garbage; collecting it takes 5 ms at every start

from penstock import errors  # noqa: E402  # after the line above, which speeds it up

COMMANDS: dict[str, tuple[str, str]] = {
    "check": ("penstock.cli.check:check", "Check on the live site that Slurm and Kubernetes agree."),
    "collector": ("penstock.cli.daemons:collector", "Write the results of ended jobs, as their owners."),
    "apply": ("penstock.cli.sites:apply", "Install a site file's settings and objects, atomically."),
    "doctor": ("penstock.cli.doctor:doctor", "Check the live site against its site file."),
    "nodes": ("penstock.cli.nodes:nodes", "Show every node in Slurm and in Kubernetes."),
    "init": ("penstock.cli.sites:init", "Write a first site file from what Slurm and Kubernetes report."),
    "render": ("penstock.cli.sites:render", "Show the files and objects rendered from a site file."),
    "uninstall": ("penstock.cli.sites:uninstall", "Restore the state before the first apply."),
    "daemon": ("penstock.cli.daemons:daemon", "Run penstockd, the daemon between Slurm and Kubernetes."),
    "jobs": ("penstock.cli.jobs:jobs", "List waiting and running jobs with their pods."),
    "inbox": ("penstock.cli.inbox:inbox", "Show the state of each file dropped on the NAS."),
    "intake": ("penstock.cli.daemons:intake", "Submit the files that users drop on the NAS, each once."),
    "explain": ("penstock.cli.explain:explain", "Show what Slurm and Kubernetes will do with a script."),
    "logs": ("penstock.cli.logs:logs", "Show a job's output, while it runs and afterwards."),
    "mkinst": ("penstock.cli.mkinst:mkinst", "Create a pod for a user."),
    "mkyaml": ("penstock.cli.mkinst:mkyaml", "Print the manifest that mkinst would create."),
    "results": ("penstock.cli.results:results", "Show a job's results, and verify their checksums."),
    "validate": ("penstock.cli.validate:validate", "Check batch scripts as sbatch would."),
    "show": ("penstock.cli.jobs:show", "Show one job with its pods and timeline."),
}


def main() -> None:
    """Run the command; exit status 0 on success, 2 on a usage error, 1 on any other error."""
    try:
        if sys.argv[1:2] == ["validate"]:
            _validate()
        from penstock.cli import group

        group.cli(prog_name="penstock")
    except errors.PenstockError as error:
        if sys.stderr is not None:
            hint = f"\n  {error.hint}" if error.hint else ""
            sys.stderr.write(f"penstock: {error.message}{hint}\n")
        sys.exit(error.exit_code)


def _validate() -> None:
    """Editors and hooks call this often: skip click, and Python's finalisation (8 ms). Returns for calls that
    are not plain (--help, a typo), which click handles.
    """
    from penstock.cli import quick

    try:
        code = quick.validate(sys.argv[2:])
    except BrokenPipeError:  # the reader has gone, as in `| head`
        code = 1
    if code is not None:
        os._exit(code)
