"""PrologSlurmctld and Epilog: each asks penstockd one question and retries until an answer or the deadline.

PrologSlurmctld ("may this job start on these nodes?") answers no with a non-zero exit: Slurm requeues the
job, without holding it or draining a node. If penstockd cannot be reached the answer is no. Epilog ("are
this job's pods gone from this node?") exits 0 only when they are; until then Slurm keeps the resources
allocated. At the deadline it asks penstockd to drain the node with a reason that penstockd clears later; if
that fails too, a non-zero exit makes Slurm drain the node, because pods may still run there.

Slurm's own drain reason, "Epilog error", does not say whose Epilog failed. So the Epilog keeps a note next
to penstockd's socket while it runs; penstockd resumes a node only if such a note was left behind.
"""

import posix
import sys
import time

from . import unsafeenv, wire

ATTEMPT_TIMEOUT = 30.0  # per connection; penstockd answers "wait" well before that
GIVE_UP_SECONDS = 5.0
NOTE = "epilog"  # notes are named epilog:NODE:JOB:WHOSE
OURS = "ours"  # the site's Epilog passed, ours did not finish; locked while it runs
SITES = "site"  # the site's Epilog failed


def variable(name: str) -> str:
    """A variable that slurmctld or slurmd set in the hook's environment."""
    return posix.environ.get(name.encode(), b"").decode("utf-8", "replace")


def admit(socket_path: str, *, seconds: float, state: str, scontrol: str, conf: str) -> None:
    """PrologSlurmctld: exit 0 if the job may start. `state` is StateSaveLocation."""
    question = ["admit", "job", variable("SLURM_JOB_ID"), "uid", variable("SLURM_JOB_UID")]
    question += ["restart", variable("SLURM_JOB_RESTART_COUNT") or variable("SLURM_RESTART_COUNT") or "0"]
    question += environment_found(state, variable("SLURM_ARRAY_JOB_ID") or variable("SLURM_JOB_ID"))
    # crash point: prolog.asking
    word = answer(socket_path, question, seconds, overtime=ATTEMPT_TIMEOUT)
    # crash point: prolog.answered
    if word in (b"", b"wait"):
        set_wait_comment(word, scontrol, conf)
    sys.exit(0 if word == b"yes" else 1)


def set_wait_comment(word: bytes, scontrol: str, conf: str) -> None:
    """Tell the job's owner that penstockd does not answer or cannot decide yet; nothing else does."""
    from . import waitcomment

    task = variable("SLURM_ARRAY_TASK_ID")
    job = f"{variable('SLURM_ARRAY_JOB_ID')}_{task}" if task else variable("SLURM_JOB_ID")
    try:
        comment = posix.environ.get(b"SLURM_JOB_COMMENT", b"")
        reason = waitcomment.STARTING if word else waitcomment.SILENT
        waitcomment.tell(job.encode(), reason, comment, scontrol=scontrol, conf=conf)
    except OSError as error:
        sys.stderr.write(f"penstock: {scontrol}: {error.strerror}\n")


def environment_found(state: str, job: str) -> "list[str]":
    """Variables of the job that run code on the node, or why its environment file could not be read.
    slurmctld could not start the job without that file either.
    """
    path = unsafeenv.file_of(state, job)
    try:
        names = unsafeenv.names_in(path)
    except (OSError, unsafeenv.NotUnderstoodError) as error:
        return ["unread", f"{path}: {getattr(error, 'strerror', None) or error}"]
    return [word for name in names for word in ("armed", name)]


def release(socket_path: str, *, bridged: bool, failed: bool, seconds: float) -> None:
    """Epilog: exit 0 when no pod of the job is left on this node. `failed`: the site's own Epilog failed;
    then penstockd must not drain, as its drain would hide Slurm's and be lifted later.
    """
    job, node = variable("SLURM_JOB_ID"), variable("SLURMD_NODENAME")
    note = f"{socket_path.rpartition('/')[0]}/{NOTE}:{node}:{job}:{SITES if failed else OURS}"
    create_note(note)
    if not bridged:
        sys.exit(0)
    question = ["release", "job", job, "node", node]
    # crash point: epilog.asking
    word = answer(socket_path, question, seconds)
    # crash point: epilog.answered
    if failed:
        sys.exit(0 if word == b"gone" else 1)
    if word != b"gone":
        # crash point: epilog.abandoning
        word = answer(socket_path, ["abandon", *question[1:]], GIVE_UP_SECONDS)
    if word not in (b"gone", b"drained"):
        sys.exit(1)
    remove_note(note)
    sys.exit(0)


def create_note(note: str) -> None:
    """Create the note, locked by this process. Without it penstockd never resumes the node."""
    try:
        remove_note(note)
        made = posix.O_CREAT | posix.O_EXCL | posix.O_WRONLY | posix.O_NOFOLLOW | posix.O_CLOEXEC
        descriptor = posix.open(note, made, 0o644)
        posix.fchmod(descriptor, 0o644)
        posix.lockf(descriptor, posix.F_TLOCK, 0)
    except OSError as error:
        posix.write(2, f"penstock: cannot write {note}: {error.strerror}\n".encode())


def remove_note(note: str) -> None:
    """Remove the note. If that fails, penstockd discards it once it sees that the node is not drained."""
    try:  # noqa: SIM105  # contextlib costs every Epilog a few milliseconds
        posix.unlink(note)
    except OSError:
        pass


def answer(socket_path: str, question: "list[str]", seconds: float, *, overtime: float = 0.0) -> bytes:
    """penstockd's final answer. At the deadline: b"wait", or b"" if penstockd did not answer. A request
    that penstockd has already read may take `overtime` longer: a reservation made for a hook that has just
    given up serves nobody.
    """
    end = time.monotonic() + seconds
    delay = 0.05
    while True:
        try:
            left = max(end - time.monotonic(), 0.1) + overtime
            message = wire.ask(socket_path, min(ATTEMPT_TIMEOUT, left), *question)
            word = message[0] if message else b"wait"
        except (OSError, wire.WireError):
            word = b""
        if word not in (b"", b"wait") or time.monotonic() + delay > end:
            return word
        time.sleep(delay)
        delay = min(delay * 2, 2.0)
