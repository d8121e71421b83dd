"""Says why a job waits when penstockd, which usually does so, cannot: in the job's comment.

The reason stands before what its owner wrote there, with our name between them: penstockd takes it away again
when the job starts. Imported only then: a hook that is answered need not know how.
"""

import posix
import time

SILENT = b"waits for penstockd, which does not answer"
STARTING = b"waits for penstockd, which is not in touch with Slurm or Kubernetes"
MARK = b" [penstock]"
SECONDS = 5.0


def tell(job: bytes, reason: bytes, comment: bytes, *, scontrol: str, conf: str) -> None:
    """Write the reason into the job's comment, unless it is there; OSError when scontrol cannot be run."""
    if comment.startswith(reason + MARK):
        return
    argv = [scontrol.encode(), b"update", b"JobId=" + job, b"Comment=" + waiting(reason, comment)]
    _run(argv, {b"SLURM_CONF": conf.encode(), b"PATH": b"/usr/bin:/bin"})


def waiting(reason: bytes, comment: bytes) -> bytes:
    """The comment of a job that waits for this reason, and has that comment now."""
    _, mark, own = comment.partition(MARK)
    kept = own.strip() if mark else comment
    clean = bytes(each if each >= 32 and each != 127 else 32 for each in kept)
    return reason + MARK + (b" " + clean if clean and clean != b"(null)" else b"")


def _run(argv: "list[bytes]", environment: "dict[bytes, bytes]") -> None:
    """Bounded: slurmctld keeps the nodes taken meanwhile."""
    quiet = [(posix.POSIX_SPAWN_OPEN, number, "/dev/null", posix.O_RDWR, 0) for number in (0, 1, 2)]
    pid = posix.posix_spawn(argv[0], argv, environment, file_actions=quiet)
    deadline = time.monotonic() + SECONDS
    while posix.waitpid(pid, posix.WNOHANG)[0] == 0:
        if time.monotonic() > deadline:
            posix.kill(pid, 9)
            posix.waitpid(pid, 0)
            return
        time.sleep(0.02)
