"""Runs Slurm's commands for the pods of the launcher's job, with words and variables from penstockd.

Loaded at a job's first command. The commands are children of the launcher, in the job's batch step. What
they print is kept until the pod has it, so nothing is lost or doubled when penstockd is restarted, and a
command that penstockd asks for again is not run again.
"""

import _signal  # type: ignore[import-not-found]  # typeshed lacks it; `signal` would import enum
import posix
import select

from . import wire

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable

CHUNK = 32 * 1024
WINDOW = 4 * CHUNK  # bytes of a stream that the pod does not have yet
PROGRAMS = (
    *(b"sacct", b"sbatch", b"scancel", b"scontrol", b"sinfo", b"sprio", b"squeue", b"srun", b"sshare"),
    b"sstat",
)
IGNORED_BY_PYTHON = (_signal.SIGPIPE, _signal.SIGXFSZ)
CANNOT_RUN = 126


class Stream:
    """What a command printed on one of its outputs and the pod does not have yet."""

    def __init__(self, fd: int) -> None:
        self.fd = fd  # -1 at its end
        self.kept = b""
        self.at = 0  # offset of the first kept byte


class Command:
    """A command until the pod has all of it."""

    def __init__(self, key: bytes) -> None:
        self.key = key
        self.pid = 0  # 0 when it has ended
        self.end: tuple[str, int] | None = None
        self.streams: dict[int, Stream] = {}
        self.script = b""  # in a folder of its own

    @property
    def is_over(self) -> bool:
        return self.end is not None and all(stream.fd < 0 for stream in self.streams.values())


class Relay:
    """All commands of one launcher."""

    def __init__(self, send: "Callable[[bytes], None]", *, programs: str, slurm_conf: str) -> None:
        self.send = send
        self.programs, self.slurm_conf = programs.encode(), slurm_conf.encode()
        self.commands: dict[bytes, Command] = {}
        self.seen: set[bytes] = set()
        self.poll = select.poll()
        self.readers: dict[int, tuple[Command, int]] = {}
        self.woken, wake = posix.pipe2(posix.O_CLOEXEC | posix.O_NONBLOCK)
        _signal.set_wakeup_fd(wake, warn_on_full_buffer=False)
        _signal.signal(_signal.SIGCHLD, lambda number, frame: None)
        self.poll.register(self.woken, select.POLLIN)

    # -- penstockd's messages --------------------------------------------------------------------------

    def act(self, verb: bytes, fields: "list[bytes]") -> None:
        """Handle a message: run, confirm, again, kill or forget, followed by names and values."""
        values: dict[bytes, list[bytes]] = {}
        for name, value in zip(fields[::2], fields[1::2]):  # noqa: B905  # hooks run on older releases
            values.setdefault(name, []).append(value)
        key = values[b"id"][0]
        if verb == b"run":
            self.run(key, values)
        command = self.commands.get(key)
        if command is None:
            return
        if verb == b"confirm":
            self.confirm(command, int(values[b"stream"][0]), int(values[b"offset"][0]))
        elif verb == b"again":
            self.resume(command)
        elif verb == b"kill" and command.pid:
            posix.kill(command.pid, int(values[b"number"][0]))
        elif verb == b"forget":
            self.forget(command)

    def run(self, key: bytes, values: "dict[bytes, list[bytes]]") -> None:
        """Start a command that was not started before."""
        if key in self.seen:
            return
        self.seen.add(key)
        command = self.commands[key] = Command(key)
        try:
            self.start(command, values)
        except OSError as error:
            command.streams = {2: Stream(-1)}
            words = f"penstock: cannot run {values[b'program'][0].decode()}: {error.strerror}\n"
            self.print(command, 2, words.encode())
            command.end = ("exit", CANNOT_RUN)
            self.tell_end(command)

    def start(self, command: Command, values: "dict[bytes, list[bytes]]") -> None:
        program = values[b"program"][0]
        if program not in PROGRAMS:
            raise PermissionError(1, "not a command of Slurm's for pods")
        words = [program, *values.get(b"word", ())]
        if b"script" in values:
            words.append(self.write_script(command, *values[b"script"]))
        words += values.get(b"argument", ())
        variables = dict(entry.partition(b"=")[::2] for entry in values.get(b"variable", ()))
        variables[b"SLURM_CONF"] = self.slurm_conf
        ends = {stream: posix.pipe2(posix.O_CLOEXEC) for stream in (1, 2)}
        nothing = (posix.POSIX_SPAWN_OPEN, 0, b"/dev/null", posix.O_RDONLY, 0)
        actions: list[tuple[object, ...]] = [nothing]
        actions += [(posix.POSIX_SPAWN_DUP2, write, stream) for stream, (_, write) in ends.items()]
        try:
            with Surroundings(values.get(b"folder"), values.get(b"umask")):
                command.pid = posix.posix_spawn(
                    self.programs + b"/" + program,
                    words,
                    variables,
                    file_actions=actions,
                    setsigdef=IGNORED_BY_PYTHON,
                )
        finally:
            for read, write in ends.values():
                posix.close(write)
                if not command.pid:
                    posix.close(read)
        for stream, (read, _) in ends.items():
            command.streams[stream] = Stream(read)
            self.listen(command, stream)

    def write_script(self, command: Command, name: bytes, content: bytes) -> bytes:
        """The script as a file of its own name, which becomes the job's."""
        folder = b"/tmp/penstock-%d-%s" % (posix.getpid(), command.key)
        posix.mkdir(folder, 0o700)
        command.script = folder + b"/" + (name if name.strip(b".") and b"/" not in name else b"script")
        made = posix.O_WRONLY | posix.O_CREAT | posix.O_EXCL | posix.O_CLOEXEC
        fd = posix.open(command.script, made, 0o600)
        try:
            while content:
                content = content[posix.write(fd, content) :]
        finally:
            posix.close(fd)
        return command.script

    def confirm(self, command: Command, number: int, offset: int) -> None:
        """The pod has everything of this stream before the offset."""
        stream = command.streams[number]
        known = min(max(offset - stream.at, 0), len(stream.kept))
        stream.kept, stream.at = stream.kept[known:], stream.at + known
        if known and stream.fd >= 0 and stream.fd not in self.readers:
            self.listen(command, number)

    def forget(self, command: Command) -> None:
        """The pod has it all, or its caller is gone, which kills the command."""
        if command.pid:
            posix.kill(command.pid, _signal.SIGKILL)
        del self.commands[command.key]
        for stream in command.streams.values():
            self.close(stream)
        self.remove_script(command)

    # -- what commands do --------------------------------------------------------------------------------

    def until(self, sock: int) -> None:
        """Handle what commands do until penstockd has sent something."""
        self.poll.register(sock, select.POLLIN)
        try:
            while True:
                ready = [fd for fd, _ in self.poll.poll()]
                for fd in ready:
                    if fd == self.woken:
                        posix.read(fd, 4096)
                        self.reap()
                    elif fd in self.readers:
                        self.read(*self.readers[fd])
                if sock in ready:
                    return
        finally:
            self.poll.unregister(sock)

    def listen(self, command: Command, number: int) -> None:
        fd = command.streams[number].fd
        self.readers[fd] = (command, number)
        self.poll.register(fd, select.POLLIN)

    def quiet(self, fd: int) -> None:
        if self.readers.pop(fd, None):
            self.poll.unregister(fd)

    def close(self, stream: Stream) -> None:
        if stream.fd >= 0:
            self.quiet(stream.fd)
            posix.close(stream.fd)
            stream.fd = -1

    def read(self, command: Command, number: int) -> None:
        stream = command.streams[number]
        data = posix.read(stream.fd, CHUNK)
        if not data:
            self.close(stream)
            self.tell_end(command)
            return
        self.print(command, number, data)
        if len(stream.kept) >= WINDOW:
            self.quiet(stream.fd)

    def print(self, command: Command, number: int, data: bytes) -> None:
        stream = command.streams[number]
        offset = stream.at + len(stream.kept)
        stream.kept += data
        self.tell_print(command, number, offset, data)

    def reap(self) -> None:
        """Note the ends of processes. Those of forgotten commands are reaped, too."""
        while True:
            try:
                pid, status = posix.waitpid(-1, posix.WNOHANG)
            except ChildProcessError:
                return
            if not pid:
                return
            for command in self.commands.values():
                if command.pid == pid:
                    died = posix.WIFSIGNALED(status)
                    number = posix.WTERMSIG(status) if died else posix.WEXITSTATUS(status)
                    command.pid, command.end = 0, ("signal" if died else "exit", number)
                    self.remove_script(command)
                    self.tell_end(command)

    def remove_script(self, command: Command) -> None:
        if command.script:
            posix.unlink(command.script)
            posix.rmdir(command.script.rpartition(b"/")[0])
            command.script = b""

    # -- messages to penstockd -----------------------------------------------------------------------------

    def known(self) -> "list[bytes | str]":
        """Fields of a request to attach: the commands that penstockd must not ask for again."""
        return [field for key in self.commands for field in ("command", key)]

    def resume(self, command: Command) -> None:
        """Send again what is not confirmed."""
        for number, stream in command.streams.items():
            for start in range(0, len(stream.kept), CHUNK):
                data = stream.kept[start : start + CHUNK]
                self.tell_print(command, number, stream.at + start, data)
        self.tell_end(command)

    def tell_print(self, command: Command, number: int, offset: int, data: bytes) -> None:
        place = ("stream", str(number), "offset", str(offset))
        self.send(wire.pack("printed", "id", command.key, *place, "data", data))

    def tell_end(self, command: Command) -> None:
        if command.is_over and command.end:
            how, number = command.end
            self.send(wire.pack("ended", "id", command.key, "how", how, "number", str(number)))


class Surroundings:
    """Folder and umask of a command that is started within; the launcher's own folder if there is no such."""

    def __init__(self, folder: "list[bytes] | None", umask: "list[bytes] | None") -> None:
        self.folder, self.umask = folder, umask

    def __enter__(self) -> None:
        self.back = posix.open(".", posix.O_RDONLY | posix.O_CLOEXEC)
        self.mask = posix.umask(int(self.umask[0], 8)) if self.umask else None
        if self.folder:
            try:  # noqa: SIM105  # contextlib costs a few milliseconds
                posix.chdir(self.folder[0])
            except OSError:
                pass

    def __exit__(self, *why: object) -> None:
        posix.fchdir(self.back)
        posix.close(self.back)
        if self.mask is not None:
            posix.umask(self.mask)
