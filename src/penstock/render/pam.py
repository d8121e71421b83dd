"""/etc/pam.d/slurm, which keeps steps of bridged jobs from starting.

slurmstepd opens a PAM session as root before it runs any user code; if the session is refused, the step
ends. TaskProlog, the other place to stop a step, runs as the user with the user's environment, and a user's
task epilog runs in spite of it.
"""

from __future__ import annotations

from penstock import wellknown

SERVICE = "slurm"  # slurmstepd's PAM service


def render_service(session_program: str) -> str:
    """For nodes where only Slurm uses this service: everybody may, if our program agrees."""
    return (
        f"# {wellknown.WRITTEN}.\n"
        "# Sessions of slurmstepd: a job's steps are refused where the job runs as pods.\n"
        "auth     required  pam_permit.so\n"
        "account  required  pam_permit.so\n"
        f"session  required  pam_exec.so quiet {session_program}\n"
    )
