"""The interpreter of every bridged batch script: hands the job to penstockd, waits, and ends as its container
ended.

slurmd starts it as the job's owner, with the job's environment, arguments and output files:
argv = [penstock-launch, "/bin/bash" (or "/usr/bin/env bash": one string), <script>, user's arguments …].
It holds no state that matters. When penstockd goes away it connects again, for as long as Slurm lets it live;
once told that the pods were started it only ever attaches to them, so that a job never runs twice. Signals
are passed on as messages. A penstockd that answers with an error is of another version or has a fault: that
may be put right while the job lives, so it is asked again, before the start not for ever, and the output
says so.
"""

import _signal  # type: ignore[import-not-found]  # typeshed lacks it; `signal` would import enum
import _socket
import posix
import sys
import time

from . import wire

PASSED_ON = (
    *(_signal.SIGHUP, _signal.SIGINT, _signal.SIGQUIT, _signal.SIGUSR1, _signal.SIGUSR2),
    *(_signal.SIGTERM, _signal.SIGCONT, _signal.SIGURG, _signal.SIGWINCH, _signal.SIGXCPU, _signal.SIGABRT),
)
TOGETHER = 0.05  # seconds to wait for the signal that may belong to this one
ENDING_SECONDS = 5.0  # a SIGTERM so soon after a SIGCONT is Slurm's way of ending a job
SAME_TROUBLE = 30.0  # seconds within which errors that penstockd tells are one and the same
UNDERSTOOD_SECONDS = 60.0  # how long penstockd may answer with errors before the script has started
SIGNALS = range(1, 65)  # all that there are; a shell's status over 192 is an exit code
CANNOT_RUN = 126  # what a shell answers when a command is there but cannot be run


class Launcher:
    """One job's way through penstockd, over as many connections as it takes."""

    def __init__(self, socket_path: str, request: "list[bytes | str]") -> None:
        self.socket_path = socket_path
        self.request = request
        self.started = False
        self.written = {1: 0, 2: 0}
        self.lost_output = ""
        self.continued = -ENDING_SECONDS
        self.waiting = False  # for our own SIGALRM
        self.signals: list[int] = []
        self.told: list[bytes] = []  # signals that penstockd has not delivered yet, as far as we know
        self.notes: list[bytes] = []
        self.first_error = self.last_error = -SAME_TROUBLE
        self.sock: _socket.socket | None = None

    def on_signal(self, number: int, frame: object) -> None:
        """Remember the signal for a moment: what belongs together arrives together.

        Slurm ends a job with SIGCONT and SIGTERM at once; a SIGTERM that comes alone was for the script.
        """
        if number == _signal.SIGCONT:
            self.continued = time.monotonic()
            return
        self.signals.append(int(number))
        if not self.started and number == _signal.SIGTERM:
            die_of(number)
        self.waiting = True
        _signal.setitimer(_signal.ITIMER_REAL, TOGETHER)

    def on_alarm(self, number: int, frame: object) -> None:
        """The moment is over; a SIGALRM that we did not ask for is the script's."""
        if not self.waiting:
            self.signals.append(int(number))
        self.waiting = False
        self.pass_signals_on()

    def on_suspend(self, number: int, frame: object) -> None:
        """How Slurm announces `scontrol suspend`; it stops this process two seconds later, but no pod."""
        self.write(2, b"penstock: suspending does not reach pods: the job runs on and keeps its room\n")

    def pass_signals_on(self) -> None:
        """Popped before they are sent: the alarm may interrupt this very loop."""
        while self.signals and self.sock is not None:
            number = self.signals.pop(0)
            ending = number == _signal.SIGTERM and time.monotonic() - self.continued < ENDING_SECONDS
            frame = wire.pack("signal", "number", str(number), "everyone", str(int(ending)))
            self.told.append(frame)
            # crash point: launcher.signalled
            try:
                self.sock.sendall(frame)
            except OSError:
                return  # told again after the next connect

    def run(self) -> int:
        """Until the job has ended: its wait status, as `exit code` or minus the signal."""
        delay = 0.05
        while True:
            try:
                end = self.converse()
            except (OSError, wire.WireError):
                end = None
            if end is not None:
                return end
            time.sleep(delay)
            delay = min(delay * 2, 2.0)

    def converse(self) -> "int | None":
        """One connection: ask, then act on what comes; None when it broke off."""
        # crash point: launcher.asking
        sock = wire.connect(self.socket_path, 10.0)
        try:
            far = ("skip", str(self.written[1]), "skip_error", str(self.written[2]))
            ask = wire.pack("launch", "attach", "1" if self.started else "0", *far, *self.request)
            sock.sendall(b"".join((ask, *self.told)))
            # crash point: launcher.asked
            sock.settimeout(None)
            self.sock = sock
            self.pass_signals_on()
            while True:
                message = wire.receive(sock)
                if message is None:
                    return None
                end = self.act(message)
                if end is not None:
                    return end
        finally:
            self.sock = None
            sock.close()

    def act(self, message: "list[bytes]") -> "int | None":
        """What penstockd says: started, output, sync, note, delivered, error, exit or signal."""
        verb, value = message[0], message[1] if len(message) > 1 else b""
        if verb == b"started":
            # crash point: launcher.started
            self.started = True
        elif verb == b"output":
            # crash point: launcher.writing
            stream = 2 if message[2:] == [b"2"] else 1
            self.written[stream] += len(value)
            self.write(stream, value)
        elif verb == b"sync" and self.sock is not None:  # all that came before is written
            self.sock.sendall(wire.pack("synced"))
        elif verb == b"delivered":
            del self.told[:1]
        elif verb == b"note":
            self.note(value)
        elif verb == b"error":
            return self.not_understood(value)
        elif verb == b"exit":
            return int(value)
        elif verb == b"signal":
            number = int(value)
            return -number if number in SIGNALS else 128 + number
        return None

    def note(self, text: bytes) -> None:
        """Once: a penstockd that was killed may have told it before."""
        if text not in self.notes:
            self.notes.append(text)
            self.write(2, b"penstock: " + text + b"\n")

    def not_understood(self, why: bytes) -> "int | None":
        """An error instead of an answer: None to ask again, an exit code when it has lasted too long."""
        now = time.monotonic()
        if now - self.last_error > SAME_TROUBLE:
            self.first_error = now
        self.last_error = now
        self.note(b"penstockd cannot serve this job: " + why + b" (is it of another version? asking again)")
        if self.started or now - self.first_error < UNDERSTOOD_SECONDS:
            return None  # the end of a launcher would be the end of a script that may be well
        self.note(b"penstockd still answers with errors: the job is given up")
        return CANNOT_RUN

    def write(self, fd: int, data: bytes) -> None:
        self.lost_output = write(fd, data) or self.lost_output


def write(fd: int, data: bytes) -> str:
    """Why not all of it could be written, such as a full disk; the job ends as it did in any case."""
    try:
        while data:
            data = data[posix.write(fd, data) :]
    except OSError as error:
        return str(error.strerror)
    return ""


def given_arguments(count: int) -> "list[bytes]":
    """The last words of the command line, byte for byte: Python decodes its copy by the job's own locale."""
    with open("/proc/self/cmdline", "rb") as file:  # noqa: PTH123  # pathlib costs 10 ms at every job
        return file.read().split(b"\0")[:-1][-count:]


def request_of(argv: "list[bytes]") -> "list[bytes | str]":
    """What penstockd has to know of this job: everything the process itself was given."""
    with open(argv[2], "rb") as file:  # noqa: PTH123  # as above
        script = file.read()
    fields: list[bytes | str] = ["interpreter", argv[1], "script", script, "workdir", posix.getcwdb()]
    for fd, name in ((0, "stdin"), (1, "stdout"), (2, "stderr")):
        fields += [name, posix.readlink(b"/proc/self/fd/%d" % fd)]
    fields += ["umask", f"{current_umask():04o}"]
    for argument in argv[3:]:
        fields += ["argument", argument]
    for entry in given_environment():
        fields += ["environment", entry]
    for key in (b"SLURM_JOB_ID", b"SLURM_RESTART_COUNT"):
        if key in posix.environ:
            fields += [key.decode().lower(), posix.environ[key]]
    return fields


def given_environment() -> "list[bytes]":
    """NAME=value entries as slurmd gave them: Python may have added an LC_CTYPE of its own to its copy."""
    with open("/proc/self/environ", "rb") as file:  # noqa: PTH123  # as above
        return [entry for entry in file.read().split(b"\0") if entry]


def current_umask() -> int:
    """The submitter's, which slurmd has set; it can only be read by setting another."""
    mask = posix.umask(0o077)
    posix.umask(mask)
    return mask


def die_of(number: int) -> None:
    """End as the container did: Slurm records the signal, not a number that looks like one."""
    if number not in (
        _signal.SIGKILL,
        _signal.SIGSTOP,
    ):  # Python ignores SIGPIPE and SIGXFSZ, we catch others
        _signal.signal(number, _signal.SIG_DFL)
    posix.kill(posix.getpid(), number)


def main(socket_path: str) -> None:
    """Run the job of this process and leave with its end."""
    if len(sys.argv) < 3 or b"SLURM_JOB_ID" not in posix.environ:
        write(2, b"penstock-launch is started by slurmd for a batch script, not by hand: use sbatch\n")
        sys.exit(CANNOT_RUN)
    try:
        launcher = Launcher(socket_path, request_of(given_arguments(len(sys.argv))))
    except OSError as error:
        write(2, f"penstock: cannot read the job's script: {error}\n".encode())
        sys.exit(CANNOT_RUN)
    for number in PASSED_ON:
        _signal.signal(number, launcher.on_signal)
    _signal.signal(_signal.SIGTSTP, launcher.on_suspend)
    _signal.signal(_signal.SIGALRM, launcher.on_alarm)
    end = launcher.run()
    # crash point: launcher.ending
    if launcher.lost_output:
        write(2, f"penstock: some output was lost: {launcher.lost_output}\n".encode())
    if end < 0:
        die_of(-end)
    sys.exit(end)
