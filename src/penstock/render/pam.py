"""PAM's part of Slurm's steps: what /etc/pam.d/slurm says, so that a step of a bridged job never starts.

slurmstepd opens a PAM session as root before it runs anything of the user's; a session that is refused ends
the step there. TaskProlog, the other place to stop a step, runs as the user with the user's environment,
and a task epilog of the user's runs in spite of it.
"""

from __future__ import annotations

from penstock import wellknown

SERVICE = "slurm"  # the name that slurmstepd gives to PAM


def render_service(session_program: str) -> str:
    """The file for slurmds whose nodes only Slurm uses: everybody may, if our program agrees."""
    return (
        f"# {wellknown.WRITTEN}.\n"
        "# Sessions of slurmstepd: a job's steps are refused where the job runs as pods.\n"
        "auth     required  pam_permit.so\n"
        "account  required  pam_permit.so\n"
        f"session  required  pam_exec.so quiet {session_program}\n"
    )
