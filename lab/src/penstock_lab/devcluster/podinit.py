"""Starts a container: sets up its root file system and user, then executes its command.

Imported, so that it is compiled once, and run as `main` by a new interpreter with the argument STATUS_FD and
a marshalled description on stdin. It imports as little as possible, since every container start pays for it.
It writes `pid N` to STATUS_FD, then either closes it by a successful exec or writes `error TEXT`. Stdout and
stderr are the container's.

With `isolate` the command is process 1 of its own PID namespace: it ignores signals that it does not handle,
and its end kills all its children, as in a container. It is cloned as a sibling (CLONE_PARENT), so the agent
reaps it.
"""

# pathlib would cost every container start several milliseconds of import
# ruff: noqa: PTH101, PTH102, PTH103, PTH110, PTH112, PTH114, PTH115, PTH120, PTH206, PTH211

from __future__ import annotations

import _signal  # type: ignore[import-not-found]  # signal itself would cost milliseconds
import ctypes
import marshal
import os
import sys
import warnings  # noqa: F401  imported by os.execvpe, when its file may no longer be visible

TYPE_CHECKING = False
if TYPE_CHECKING:  # importing typing would double the cost of a start
    from typing import Any

CLONE_NEWNS, CLONE_NEWUTS, CLONE_NEWPID, CLONE_PARENT = 0x00020000, 0x04000000, 0x20000000, 0x00008000
MS_RDONLY, MS_NOSUID, MS_NODEV, MS_NOEXEC, MS_REMOUNT, MS_BIND, MS_REC = 1, 2, 4, 8, 32, 4096, 16384
MS_PRIVATE, MNT_DETACH = 1 << 18, 2
PR_SET_PDEATHSIG, PR_SET_NO_NEW_PRIVS = 1, 38
SYS_CLONE3, SYS_MOUNT_SETATTR = 435, 442  # the same on every architecture
AT_RECURSIVE, AT_FDCWD = 0x8000, -100
HOST_DIRECTORIES = ("usr", "bin", "sbin", "lib", "lib32", "lib64", "libx32", "etc", "opt")
OWN_DIRECTORIES = {"tmp": 0o1777, "var": 0o755, "var/tmp": 0o1777, "run": 0o755, "home": 0o755, "root": 0o700}
DEVICES = ("null", "zero", "full", "random", "urandom", "tty")
LINKS = {"fd": "fd", "stdin": "fd/0", "stdout": "fd/1", "stderr": "fd/2"}

libc = ctypes.CDLL(None, use_errno=True)


def call(name: str, *arguments: str | bytes | int | None) -> int:
    """Call a function of the C library; raises OSError with the name and arguments."""
    raw = [os.fsencode(one) if isinstance(one, str) else one for one in arguments]
    result: int = getattr(libc, name)(*(ctypes.c_long(one) if isinstance(one, int) else one for one in raw))
    if result < 0:
        number = ctypes.get_errno()
        words = " ".join(one for one in arguments if isinstance(one, str))
        raise OSError(number, f"{name} {words}: {os.strerror(number)}")
    return result


def words(*numbers: int) -> bytes:
    """A C structure of unsigned 64-bit numbers."""
    return b"".join(number.to_bytes(8, sys.byteorder) for number in numbers)


def bind(source: str, target: str, *, read_only: bool) -> None:
    """Bind-mount recursively; read-only is recursive too from Linux 5.12."""
    call("mount", source, target, None, MS_BIND | MS_REC, None)
    if read_only:
        try:
            call("syscall", SYS_MOUNT_SETATTR, AT_FDCWD, target, AT_RECURSIVE, words(MS_RDONLY, 0, 0, 0), 32)
        except OSError:
            call("mount", "none", target, None, MS_REMOUNT | MS_BIND | MS_RDONLY, None)


def make_root(root: str) -> None:
    """Mount the host's programs read-only, and make empty directories for the pod."""
    call("mount", "tmpfs", root, "tmpfs", MS_NOSUID | MS_NODEV, "mode=755")
    for name in HOST_DIRECTORIES:
        if os.path.islink(f"/{name}"):
            os.symlink(os.readlink(f"/{name}"), f"{root}/{name}")
        elif os.path.isdir(f"/{name}"):
            os.mkdir(f"{root}/{name}")
            bind(f"/{name}", f"{root}/{name}", read_only=True)
    for name, mode in OWN_DIRECTORIES.items():
        os.mkdir(f"{root}/{name}")
        os.chmod(f"{root}/{name}", mode)
    os.symlink("../run", f"{root}/var/run")
    for name in ("proc", "dev", "sys"):
        os.mkdir(f"{root}/{name}")
    call("mount", "proc", f"{root}/proc", "proc", MS_NOSUID | MS_NODEV | MS_NOEXEC, None)
    bind("/sys", f"{root}/sys", read_only=True)


def make_devices(place: str) -> None:
    """Make the standard devices of a container; the host's others are not visible."""
    call("mount", "tmpfs", place, "tmpfs", MS_NOSUID, "mode=755")
    for name in DEVICES:
        if os.path.exists(f"/dev/{name}"):
            make_mount_point(f"{place}/{name}", is_file=True)
            bind(f"/dev/{name}", f"{place}/{name}", read_only=False)
    for name, target in LINKS.items():
        os.symlink(f"/proc/self/{target}", f"{place}/{name}")
    os.mkdir(f"{place}/shm")
    call("mount", "tmpfs", f"{place}/shm", "tmpfs", MS_NOSUID | MS_NODEV, "mode=1777")


def make_mount_point(target: str, *, is_file: bool) -> None:
    os.makedirs(os.path.dirname(target) if is_file else target, exist_ok=True)
    if is_file and not os.path.exists(target):
        os.close(os.open(target, os.O_CREAT | os.O_WRONLY, 0o644))


def open_up(root: str, target: str) -> None:
    """Mount a writable overlay over the host directory of a mount point, visible only in this pod."""
    top = os.path.relpath(target, root).split(os.sep)[0]
    upper, work = f"{root}/.overlay{top}", f"{root}/.work{top}"
    os.mkdir(upper, 0o755)
    os.mkdir(work, 0o755)
    place = f"{root}/{top}"
    call("mount", "overlay", place, "overlay", 0, f"lowerdir={place},upperdir={upper},workdir={work}")


def mount_volumes(root: str, mounts: list[tuple[str, str, bool]]) -> None:
    for source, path, read_only in sorted(mounts, key=lambda one: one[1]):
        target = os.path.realpath(root + path)
        if not target.startswith(root + "/"):
            raise OSError(f"mount path {path} leads out of the pod")
        is_file = not os.path.isdir(source)
        try:
            make_mount_point(target, is_file=is_file)
        except OSError:
            open_up(root, target)
            make_mount_point(target, is_file=is_file)
        bind(source, target, read_only=read_only)


def enter_root(about: dict[str, Any]) -> None:
    root = os.path.realpath(about["root"])
    call("sethostname", about["hostname"], len(os.fsencode(about["hostname"])))
    call("mount", "none", "/", None, MS_REC | MS_PRIVATE, None)
    make_root(root)
    make_devices(f"{root}/dev")
    mount_volumes(root, about["mounts"])
    os.chdir(root)
    call("pivot_root", ".", ".")
    call("umount2", ".", MNT_DETACH)
    os.chdir("/")
    os.makedirs(about["cwd"], exist_ok=True)
    if about["readonly_root"]:
        call("mount", "none", "/", None, MS_REMOUNT | MS_BIND | MS_RDONLY, None)


def check_mounts(mounts: list[tuple[str, str, bool]]) -> None:
    """Without root nothing can be mounted: a volume works only at its own host path."""
    for source, target, _ in mounts:
        if os.path.realpath(source) != os.path.realpath(target):
            raise OSError(f"volume at {target} needs a mount, and the dev cluster does not run as root")


def start(about: dict[str, Any], status: int) -> None:
    """Runs in the process that becomes the container's first one."""
    os.setsid()
    members = os.open(about["cgroup"], os.O_WRONLY) if about["cgroup"] else -1
    if about["isolate"]:
        enter_root(about)
    else:
        check_mounts(about["mounts"])
    os.chdir(about["cwd"])
    if members >= 0:
        os.write(members, b"0")
        os.close(members)
    if os.geteuid() == 0:
        os.setgroups(about["groups"])
        os.setresgid(about["gid"], about["gid"], about["gid"])
        os.setresuid(about["uid"], about["uid"], about["uid"])
    call("prctl", PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0)
    call("prctl", PR_SET_PDEATHSIG, _signal.SIGKILL, 0, 0, 0)
    os.write(status, b"ready\n")  # fails if the agent died before PDEATHSIG was set
    os.umask(0o022)
    for number in (_signal.SIGPIPE, _signal.SIGXFSZ, _signal.SIGHUP, _signal.SIGINT, _signal.SIGQUIT):
        _signal.signal(number, _signal.SIG_DFL)
    execute(about["argv"], about["env"])


def execute(argv: list[str], env: dict[str, str]) -> None:
    try:
        os.execvpe(argv[0], argv, env)  # noqa: S606  an argv list is what a container's command is
    except OSError as error:
        why = str(error.strerror).lower()
        if isinstance(error, FileNotFoundError) and "/" not in argv[0]:
            why = "executable file not found in $PATH"
        raise OSError(f'exec: "{argv[0]}": {why}') from None


def main() -> None:
    status = int(sys.argv[1])
    os.set_inheritable(status, False)
    about = marshal.loads(sys.stdin.buffer.read())  # noqa: S302  from the agent alone; json costs 9 ms
    os.dup2(os.open(os.devnull, os.O_RDWR), 0)
    try:
        pid = os.getpid()
        if about["isolate"]:
            call("unshare", CLONE_NEWNS | CLONE_NEWPID | CLONE_NEWUTS)
            pid = call("syscall", SYS_CLONE3, words(CLONE_PARENT, 0, 0, 0, 0, 0, 0, 0), 64)
        if pid:
            os.write(status, f"pid {pid}\n".encode())
        if pid and about["isolate"]:
            os._exit(0)
        start(about, status)
    except Exception as error:  # noqa: BLE001  every error is reported to the agent
        os.write(status, f"error {error}\n".encode())
        os._exit(128)
