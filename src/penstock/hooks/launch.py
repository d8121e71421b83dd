"""Interpreter of every bridged batch script: hands the job to penstockd, waits, and ends as the container
ended.

slurmd starts it as the job's owner, with the job's environment, arguments and output files: argv =
[penstock-launch, "/bin/bash" (or "/usr/bin/env bash" as one string), <script>, user's arguments …]. It
keeps no essential state. If the connection breaks it reconnects for as long as Slurm lets it live; after
`started` it only attaches to the existing pods, so a job never runs twice. Signals are forwarded as
messages. A penstockd that answers with an error is of another version or has a bug. It may be fixed while
the job lives, so the launcher asks again (before the start for a limited time) and says so in the job's
output.
"""

import _signal  # type: ignore[import-not-found]  # typeshed lacks it; `signal` would import enum
import _socket
import posix
import sys
import time

from . import wire

TYPE_CHECKING = False
if TYPE_CHECKING:
    from . import relay  # loaded at the first command

FORWARDED = (
    *(_signal.SIGHUP, _signal.SIGINT, _signal.SIGQUIT, _signal.SIGUSR1, _signal.SIGUSR2),
    *(_signal.SIGTERM, _signal.SIGCONT, _signal.SIGURG, _signal.SIGWINCH, _signal.SIGXCPU, _signal.SIGABRT),
)
SIGNAL_WINDOW = 0.05  # seconds to wait for another signal that belongs to this one
ENDING_SECONDS = 5.0  # a SIGTERM within this time after a SIGCONT is Slurm ending the job
SAME_PROBLEM = 30.0  # errors from penstockd within this many seconds count as one problem
ERROR_SECONDS = 60.0  # how long to retry on errors from penstockd before the script has started
SIGNALS = range(1, 65)  # a shell's status over 192 is an exit code
CANNOT_RUN = 126  # a shell's status for a command that exists but cannot be run


class Launcher:
    """One job's session with penstockd, over as many connections as it takes."""

    def __init__(
        self, socket_path: str, request: "list[bytes | str]", *, commands: str, slurm_conf: str
    ) -> None:
        self.socket_path = socket_path
        self.request = request
        self.commands, self.slurm_conf = commands, slurm_conf
        self.relay: relay.Relay | None = None
        self.sending = False
        self.started = False
        self.written = {1: 0, 2: 0}
        self.lost_output = ""
        self.continued = -ENDING_SECONDS
        self.waiting = False  # for our own SIGALRM
        self.signals: list[int] = []
        self.undelivered: list[bytes] = []  # signal frames that penstockd has not confirmed
        self.notes: list[bytes] = []
        self.first_error = self.last_error = -SAME_PROBLEM
        self.sock: _socket.socket | None = None

    def on_signal(self, number: int, frame: object) -> None:
        """Collect for a moment: SIGCONT with SIGTERM ends the job, a lone SIGTERM is for the script."""
        if number == _signal.SIGCONT:
            self.continued = time.monotonic()
            return
        self.signals.append(int(number))
        if not self.started and number == _signal.SIGTERM:
            die_of(number)
        self.waiting = True
        _signal.setitimer(_signal.ITIMER_REAL, SIGNAL_WINDOW)

    def on_alarm(self, number: int, frame: object) -> None:
        """The window is over. A SIGALRM that we did not schedule is for the script."""
        if not self.waiting:
            self.signals.append(int(number))
        self.waiting = False
        self.forward_signals()

    def on_suspend(self, number: int, frame: object) -> None:
        """SIGTSTP announces `scontrol suspend`, which stops this process two seconds later, but no pod."""
        self.write(2, b"penstock: suspending does not reach pods: the job runs on and keeps its room\n")

    def forward_signals(self) -> None:
        """Each signal is popped before it is sent: the alarm may interrupt this loop, but no other frame."""
        while self.signals and self.sock is not None and not self.sending:
            number = self.signals.pop(0)
            ending = number == _signal.SIGTERM and time.monotonic() - self.continued < ENDING_SECONDS
            frame = wire.pack("signal", "number", str(number), "everyone", str(int(ending)))
            self.undelivered.append(frame)
            # crash point: launcher.signalled
            try:
                self.sock.sendall(frame)
            except OSError:
                return  # sent again after the next connect

    def run(self) -> int:
        """Wait until the job has ended. Returns the exit code, or minus the signal."""
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
        """One connection: send the request, then handle messages. None if the connection broke."""
        # crash point: launcher.asking
        sock = wire.connect(self.socket_path, 10.0)
        try:
            far = ("skip", str(self.written[1]), "skip_error", str(self.written[2]))
            known = self.relay.known() if self.relay is not None else ()
            ask = wire.pack("launch", "attach", "1" if self.started else "0", *far, *known, *self.request)
            sock.sendall(b"".join((ask, *self.undelivered)))
            # crash point: launcher.asked
            sock.settimeout(None)
            self.sock = sock
            self.forward_signals()
            while True:
                if self.relay is not None:
                    self.relay.until(sock.fileno())
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
        """Handle one message: started, output, sync, note, delivered, error, command, exit or signal."""
        verb, value = message[0], message[1] if len(message) > 1 else b""
        if verb == b"started":
            # crash point: launcher.started
            self.started = True
        elif verb == b"output":
            # crash point: launcher.writing
            stream = 2 if message[2:] == [b"2"] else 1
            self.written[stream] += len(value)
            self.write(stream, value)
        elif verb == b"sync":  # all earlier output is written
            self.send(wire.pack("synced"))
        elif verb == b"delivered":
            del self.undelivered[:1]
        elif verb == b"note":
            self.write_note(value)
        elif verb == b"error":
            return self.on_error(value)
        elif verb == b"command":
            self.act_on_command(message[1:])
        elif verb == b"exit":
            return int(value)
        elif verb == b"signal":
            number = int(value)
            return -number if number in SIGNALS else 128 + number
        return None

    def act_on_command(self, message: "list[bytes]") -> None:
        """A message about a command of Slurm's that a pod runs."""
        if self.relay is None:
            from . import relay

            self.relay = relay.Relay(self.send, programs=self.commands, slurm_conf=self.slurm_conf)
        self.relay.act(message[0], message[1:])

    def send(self, frame: bytes) -> None:
        """Send a frame as a whole: a signal that comes meanwhile is sent after it."""
        if self.sock is None:
            return  # told again by the next connection
        self.sending = True
        try:
            self.sock.sendall(frame)
        finally:
            self.sending = False
        self.forward_signals()

    def write_note(self, text: bytes) -> None:
        """Write each note once: a restarted penstockd may send it again."""
        if text not in self.notes:
            self.notes.append(text)
            self.write(2, b"penstock: " + text + b"\n")

    def on_error(self, why: bytes) -> "int | None":
        """penstockd answered with an error: None to ask again, an exit code if it has lasted too long."""
        now = time.monotonic()
        if now - self.last_error > SAME_PROBLEM:
            self.first_error = now
        self.last_error = now
        self.write_note(
            b"penstockd cannot serve this job: " + why + b" (is it of another version? asking again)"
        )
        if self.started or now - self.first_error < ERROR_SECONDS:
            return None  # ending here would end a script that may be running well
        self.write_note(b"penstockd still answers with errors: the job is given up")
        return CANNOT_RUN

    def write(self, fd: int, data: bytes) -> None:
        self.lost_output = write(fd, data) or self.lost_output


def write(fd: int, data: bytes) -> str:
    """Returns why not everything could be written, such as a full disk. The job's end stays the same."""
    try:
        while data:
            data = data[posix.write(fd, data) :]
    except OSError as error:
        return str(error.strerror)
    return ""


def given_arguments(count: int) -> "list[bytes]":
    """The last `count` words of the command line as bytes: Python decodes its copy by the job's locale."""
    with open("/proc/self/cmdline", "rb") as file:  # noqa: PTH123  # pathlib costs 10 ms at every job
        return file.read().split(b"\0")[:-1][-count:]


def request_of(argv: "list[bytes]") -> "list[bytes | str]":
    """Fields of the launch request: all that this process was given."""
    with open(argv[2], "rb") as file:  # noqa: PTH123  # as above
        script = file.read()
    fields: list[bytes | str] = [
        "relays",
        "1",
        "interpreter",
        argv[1],
        "script",
        script,
        "workdir",
        posix.getcwdb(),
    ]
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
    """NAME=value entries as slurmd passed them: Python may have added LC_CTYPE to its own copy."""
    with open("/proc/self/environ", "rb") as file:  # noqa: PTH123  # as above
        return [entry for entry in file.read().split(b"\0") if entry]


def current_umask() -> int:
    """The submitter's umask, which slurmd has set; it can only be read by setting another."""
    mask = posix.umask(0o077)
    posix.umask(mask)
    return mask


def die_of(number: int) -> None:
    """End by the same signal as the container, so that Slurm records a signal and not an exit code."""
    if number not in (_signal.SIGKILL, _signal.SIGSTOP):
        _signal.signal(number, _signal.SIG_DFL)  # Python ignores SIGPIPE and SIGXFSZ, we catch others
    posix.kill(posix.getpid(), number)


def main(socket_path: str, *, commands: str, slurm_conf: str) -> None:
    """`commands` is the folder of Slurm's own programs."""
    if len(sys.argv) < 3 or b"SLURM_JOB_ID" not in posix.environ:
        write(2, b"penstock-launch is started by slurmd for a batch script, not by hand: use sbatch\n")
        sys.exit(CANNOT_RUN)
    try:
        request = request_of(given_arguments(len(sys.argv)))
        launcher = Launcher(socket_path, request, commands=commands, slurm_conf=slurm_conf)
    except OSError as error:
        write(2, f"penstock: cannot read the job's script: {error}\n".encode())
        sys.exit(CANNOT_RUN)
    for number in FORWARDED:
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
