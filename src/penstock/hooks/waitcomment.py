"""Sets the comment of a job that waits because penstockd, which normally does this, cannot.

The comment is the reason, MARK, and then what the owner wrote; penstockd removes the reason when the job
starts. Imported only when needed: most hooks get an answer.
"""

import posix
import time

SILENT = b"waits for penstockd, which does not answer"
STARTING = b"waits for penstockd, which is not in touch with Slurm or Kubernetes"
MARK = b" [penstock]"
SECONDS = 5.0


def tell(job: bytes, reason: bytes, comment: bytes, *, scontrol: str, conf: str) -> None:
    """Put the reason into the job's comment unless it is there already. OSError if scontrol cannot be run."""
    if comment.startswith(reason + MARK):
        return
    argv = [scontrol.encode(), b"update", b"JobId=" + job, b"Comment=" + waiting(reason, comment)]
    _run(argv, {b"SLURM_CONF": conf.encode(), b"PATH": b"/usr/bin:/bin"})


def waiting(reason: bytes, comment: bytes) -> bytes:
    """The comment with the reason in front, replacing an earlier reason."""
    _, mark, own = comment.partition(MARK)
    kept = own.strip() if mark else comment
    clean = bytes(each if each >= 32 and each != 127 else 32 for each in kept)
    return reason + MARK + (b" " + clean if clean and clean != b"(null)" else b"")


def _run(argv: "list[bytes]", environment: "dict[bytes, bytes]") -> None:
    """Run with a time limit: slurmctld keeps the nodes allocated meanwhile."""
    quiet = [(posix.POSIX_SPAWN_OPEN, number, "/dev/null", posix.O_RDWR, 0) for number in (0, 1, 2)]
    pid = posix.posix_spawn(argv[0], argv, environment, file_actions=quiet)
    deadline = time.monotonic() + SECONDS
    while posix.waitpid(pid, posix.WNOHANG)[0] == 0:
        if time.monotonic() > deadline:
            posix.kill(pid, 9)
            posix.waitpid(pid, 0)
            return
        time.sleep(0.02)
