"""PrologSlurmctld and Epilog: one question to penstockd each, asked until it is answered or the time is over.

PrologSlurmctld ("may this job start on these nodes?") answers no by a non-zero exit: Slurm then requeues the
job, without holding it or draining a node. When penstockd cannot be asked the answer is no: nothing is
promised that nobody checked. Epilog ("are this job's pods gone from this node?") answers only when they are:
until then Slurm keeps the resources taken. When that cannot be known in time penstockd is asked to drain the
node with a reason of ours, which it lifts by itself later; when not even that can be done a non-zero exit
makes Slurm drain it. Somebody may still be running there.

Slurm's own reason, "Epilog error", does not say whose Epilog failed. So the Epilog keeps a note beside
penstockd's socket while it runs, and penstockd frees a node only for a note that was left behind.
"""

import posix
import sys
import time

from . import unsafeenv, wire

ATTEMPT_TIMEOUT = 30.0  # one connection; penstockd answers "wait" well before, to show that it is alive
GIVE_UP_SECONDS = 5.0
NOTE = "epilog"  # notes are called epilog:NODE:JOB:WHOSE
OURS = "ours"  # the site's own Epilog passed, ours began and did not end well; locked while it runs
SITES = "site"  # the site's own Epilog failed


def variable(name: str) -> str:
    """A variable of the hook's environment, which slurmctld or slurmd set."""
    return posix.environ.get(name.encode(), b"").decode("utf-8", "replace")


def admit(socket_path: str, *, seconds: float, state: str, scontrol: str, conf: str) -> None:
    """PrologSlurmctld: exit 0 when the job may start; `state` is slurmctld's folder."""
    question = ["admit", "job", variable("SLURM_JOB_ID"), "uid", variable("SLURM_JOB_UID")]
    question += ["restart", variable("SLURM_JOB_RESTART_COUNT") or variable("SLURM_RESTART_COUNT") or "0"]
    question += environment_found(state, variable("SLURM_ARRAY_JOB_ID") or variable("SLURM_JOB_ID"))
    # crash point: prolog.asking
    word = answer(socket_path, question, seconds, overtime=ATTEMPT_TIMEOUT)
    # crash point: prolog.answered
    if word in (b"", b"wait"):
        say_why(word, scontrol, conf)
    sys.exit(0 if word == b"yes" else 1)


def say_why(word: bytes, scontrol: str, conf: str) -> None:
    """Nobody else tells the job's owner that penstockd does not answer, or only that it cannot say yet."""
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
    """What penstockd should know of the job's environment: variables that run code on the node, or that it
    could not be read. slurmctld could not start the job without that file either.
    """
    path = unsafeenv.file_of(state, job)
    try:
        names = unsafeenv.names_in(path)
    except (OSError, unsafeenv.NotUnderstoodError) as error:
        return ["unread", f"{path}: {getattr(error, 'strerror', None) or error}"]
    return [word for name in names for word in ("armed", name)]


def release(socket_path: str, *, bridged: bool, failed: bool, seconds: float) -> None:
    """Epilog: exit 0 when none of the job's pods is left on this node; `failed` says that the site's own
    Epilog has failed before. A drain of ours would then hide Slurm's, and be lifted.
    """
    job, node = variable("SLURM_JOB_ID"), variable("SLURMD_NODENAME")
    note = f"{socket_path.rpartition('/')[0]}/{NOTE}:{node}:{job}:{SITES if failed else OURS}"
    keep(note)
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
    remove(note)
    sys.exit(0)


def keep(note: str) -> None:
    """Make the note, locked as long as this program runs. Without it penstockd frees the node for nobody."""
    try:
        remove(note)
        made = posix.O_CREAT | posix.O_EXCL | posix.O_WRONLY | posix.O_NOFOLLOW | posix.O_CLOEXEC
        descriptor = posix.open(note, made, 0o644)
        posix.fchmod(descriptor, 0o644)
        posix.lockf(descriptor, posix.F_TLOCK, 0)
    except OSError as error:
        posix.write(2, f"penstock: cannot write {note}: {error.strerror}\n".encode())


def remove(note: str) -> None:
    """Take the note away; penstockd forgets one that stays although its node is not drained."""
    try:  # noqa: SIM105  # contextlib costs every Epilog a few milliseconds
        posix.unlink(note)
    except OSError:
        pass


def answer(socket_path: str, question: "list[str]", seconds: float, *, overtime: float = 0.0) -> bytes:
    """penstockd's final word; when the time is over "wait", or nothing if it did not answer. A question that
    was heard may take the overtime: room that is held for a job whose hook has just left is held for nobody.
    """
    end = time.monotonic() + seconds
    delay = 0.05
    while True:
        try:
            left = max(end - time.monotonic(), 0.1) + overtime
            word = ask_once(socket_path, question, min(ATTEMPT_TIMEOUT, left))
        except (OSError, wire.WireError):
            word = b""
        if word not in (b"", b"wait") or time.monotonic() + delay > end:
            return word
        time.sleep(delay)
        delay = min(delay * 2, 2.0)


def ask_once(socket_path: str, question: "list[str]", timeout: float) -> bytes:
    message = wire.ask(socket_path, timeout, *question)
    return message[0] if message else b"wait"
