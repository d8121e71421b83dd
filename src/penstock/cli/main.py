"""The `penstock` command: a table of sub-commands, each imported only when it is called.

Start-up time is what a person feels at every call, so nothing is imported here, not even click: a plain call
of `validate` does without it. An error of ours is printed as one line (and a hint); anything else is a defect
and keeps its traceback.
"""

from __future__ import annotations

import gc
import os
import sys

gc.set_threshold(50_000)  # nothing that is imported is garbage: looking for it costs 5 ms at every start

from penstock import errors  # noqa: E402  # after the line above, which is about this import

COMMANDS: dict[str, tuple[str, str]] = {
    "check": ("penstock.cli.check:check", "Prove on the live site that Slurm and Kubernetes agree."),
    "collector": ("penstock.cli.daemons:collector", "Write the results of ended jobs, as their owners."),
    "apply": ("penstock.cli.sites:apply", "Install what a site file says; all or nothing."),
    "doctor": ("penstock.cli.doctor:doctor", "Check the live site against its site file."),
    "nodes": ("penstock.cli.nodes:nodes", "Show every node as Slurm and as Kubernetes see it."),
    "init": ("penstock.cli.sites:init", "Write a first site file by looking at Slurm and Kubernetes."),
    "render": ("penstock.cli.sites:render", "Show every file and object that a site file stands for."),
    "uninstall": ("penstock.cli.sites:uninstall", "Return to the state before the first apply."),
    "daemon": ("penstock.cli.daemons:daemon", "Run penstockd, the process between Slurm and Kubernetes."),
    "jobs": ("penstock.cli.jobs:jobs", "List jobs that wait or run, with their pods."),
    "inbox": ("penstock.cli.inbox:inbox", "Show where each file dropped on the NAS is."),
    "intake": ("penstock.cli.daemons:intake", "Submit the files that users drop on the NAS, each once."),
    "explain": ("penstock.cli.explain:explain", "Say what Slurm and Kubernetes will do with a script."),
    "logs": ("penstock.cli.logs:logs", "Show a job's output, while it runs and afterwards."),
    "mkinst": ("penstock.cli.mkinst:mkinst", "Create a pod for a user from command-line words."),
    "mkyaml": ("penstock.cli.mkinst:mkyaml", "Print the manifest that mkinst would create."),
    "results": ("penstock.cli.results:results", "Show what is left of a job, and whether it is unchanged."),
    "validate": ("penstock.cli.validate:validate", "Check batch scripts as sbatch would."),
    "show": ("penstock.cli.jobs:show", "Show one job on both sides, and what happened when."),
}


def main() -> None:
    """Run the command; exit 0 on success, 2 on a wrong call, 1 on anything else that went wrong."""
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
    """Called by editors and hooks at every keystroke: without click, and without Python's own tidying up,
    which takes 8 ms. A call that is not plain (--help, a typo) comes back from here and is click's.
    """
    from penstock.cli import quick

    try:
        code = quick.validate(sys.argv[2:])
    except BrokenPipeError:  # the reader has gone, as in `| head`: what is left to say is for nobody
        code = 1
    if code is not None:
        os._exit(code)
