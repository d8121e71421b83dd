"""Start program of one container: a private view of this host, the pod's user, then its command.

Run as `python -IS podinit.py STATUS_FD` with a JSON description on stdin; imports nothing of ours. On
STATUS_FD it writes a line `pid N`, then either closes it by a successful exec or writes `error TEXT`.
Stdout and stderr are the container's from the start.

With `isolate` the command is process 1 of its own PID namespace, so that it ignores signals it does not
handle and takes everything it started with it, as in a container. It is cloned as a sibling (CLONE_PARENT),
so that the agent itself reaps it.
"""

# pathlib would cost every container start several milliseconds of import
# ruff: noqa: PTH101, PTH102, PTH103, PTH110, PTH112, PTH114, PTH115, PTH118, PTH119, PTH120, PTH206, PTH211

from __future__ import annotations

import ctypes
import json
import os
import signal
import struct
import sys
from typing import Any

CLONE_NEWNS, CLONE_NEWUTS, CLONE_NEWPID, CLONE_PARENT = 0x00020000, 0x04000000, 0x20000000, 0x00008000
MS_RDONLY, MS_NOSUID, MS_NODEV, MS_NOEXEC, MS_REMOUNT, MS_BIND, MS_REC, MS_PRIVATE = (
    1,
    2,
    4,
    8,
    32,
    4096,
    16384,
    1 << 18,
)
MNT_DETACH = 2
PR_SET_PDEATHSIG, PR_SET_NO_NEW_PRIVS = 1, 38
SYS_CLONE3, SYS_MOUNT_SETATTR = 435, 442  # the same on every architecture
AT_RECURSIVE, AT_FDCWD = 0x8000, -100
HOST_DIRECTORIES = ("usr", "bin", "sbin", "lib", "lib32", "lib64", "libx32", "etc", "opt")
OWN_DIRECTORIES = {"tmp": 0o1777, "var": 0o755, "var/tmp": 0o1777, "run": 0o755, "home": 0o755, "root": 0o700}
DEVICES = ("null", "zero", "full", "random", "urandom", "tty")

SHARED_MEMORY = "/dev/shm"  # noqa: S108  every container has one of its own

libc = ctypes.CDLL(None, use_errno=True)


def check(result: int, what: str) -> int:
    if result < 0:
        number = ctypes.get_errno()
        raise OSError(number, f"{what}: {os.strerror(number)}")
    return result


def mount(source: str, target: str, kind: str = "", flags: int = 0, data: str = "") -> None:
    arguments = (
        source.encode(),
        target.encode(),
        kind.encode() or None,
        ctypes.c_ulong(flags),
        data.encode() or None,
    )
    check(libc.mount(*arguments), f"mount {source} on {target}")


def make_read_only(target: str) -> None:
    """With everything mounted below it where the kernel can do that (5.12), else the top alone."""
    attributes = struct.pack("QQQQ", MS_RDONLY, 0, 0, 0)
    flags = ctypes.c_uint(AT_RECURSIVE)
    if (
        libc.syscall(
            SYS_MOUNT_SETATTR, AT_FDCWD, target.encode(), flags, attributes, ctypes.c_size_t(len(attributes))
        )
        < 0
    ):
        mount("none", target, flags=MS_REMOUNT | MS_BIND | MS_RDONLY)


def bind(source: str, target: str, *, read_only: bool) -> None:
    mount(source, target, flags=MS_BIND | MS_REC)
    if read_only:
        make_read_only(target)


def bind_host(root: str) -> None:
    for name in HOST_DIRECTORIES:
        source, target = f"/{name}", f"{root}/{name}"
        if os.path.islink(source):
            os.symlink(os.readlink(source), target)
        elif os.path.isdir(source):
            os.mkdir(target)
            bind(source, target, read_only=True)


def make_own_directories(root: str) -> None:
    for name, mode in OWN_DIRECTORIES.items():
        os.mkdir(f"{root}/{name}")
        os.chmod(f"{root}/{name}", mode)
    os.symlink("../run", f"{root}/var/run")
    for name in ("proc", "dev", "sys"):
        os.mkdir(f"{root}/{name}")
    mount("proc", f"{root}/proc", "proc", MS_NOSUID | MS_NODEV | MS_NOEXEC)
    make_devices(root)
    bind("/sys", f"{root}/sys", read_only=True)


def make_devices(root: str) -> None:
    """The few devices every container has; the host's own stay out of sight."""
    mount("tmpfs", f"{root}/dev", "tmpfs", MS_NOSUID, "mode=755")
    for name in DEVICES:
        if os.path.exists(f"/dev/{name}"):
            os.close(os.open(f"{root}/dev/{name}", os.O_CREAT | os.O_WRONLY, 0o644))
            bind(f"/dev/{name}", f"{root}/dev/{name}", read_only=False)
    for name, target in (("fd", "fd"), ("stdin", "fd/0"), ("stdout", "fd/1"), ("stderr", "fd/2")):
        os.symlink(f"/proc/self/{target}", f"{root}/dev/{name}")
    os.mkdir(root + SHARED_MEMORY)
    mount("tmpfs", root + SHARED_MEMORY, "tmpfs", MS_NOSUID | MS_NODEV, "mode=1777")


def open_up(root: str, target: str) -> None:
    """Lay a writable overlay, seen by this pod alone, over the host directory of a mount point."""
    top = os.path.join(root, os.path.relpath(target, root).split(os.sep)[0])
    upper, work = f"{root}/.overlay{os.path.basename(top)}", f"{root}/.work{os.path.basename(top)}"
    os.mkdir(upper, 0o755)
    os.mkdir(work, 0o755)
    mount("overlay", top, "overlay", 0, f"lowerdir={top},upperdir={upper},workdir={work}")


def make_mount_point(target: str, *, is_file: bool) -> None:
    os.makedirs(os.path.dirname(target) if is_file else target, exist_ok=True)
    if is_file and not os.path.exists(target):
        os.close(os.open(target, os.O_CREAT | os.O_WRONLY, 0o644))


def mount_volumes(root: str, mounts: list[dict[str, Any]]) -> None:
    for volume in sorted(mounts, key=lambda one: str(one["target"])):
        target = os.path.realpath(root + volume["target"])
        if not target.startswith(root + "/"):
            raise OSError(f"mount path {volume['target']} leads out of the pod")
        is_file = not os.path.isdir(volume["source"])
        try:
            make_mount_point(target, is_file=is_file)
        except OSError:
            open_up(root, target)
            make_mount_point(target, is_file=is_file)
        bind(volume["source"], target, read_only=volume["readonly"])


def enter_root(about: dict[str, Any]) -> None:
    root = os.path.realpath(about["root"])
    mount("none", "/", flags=MS_REC | MS_PRIVATE)
    mount("tmpfs", root, "tmpfs", MS_NOSUID | MS_NODEV, "mode=755")
    bind_host(root)
    make_own_directories(root)
    mount_volumes(root, about["mounts"])
    os.chdir(root)
    check(libc.pivot_root(b".", b"."), "pivot_root")
    check(libc.umount2(b".", MNT_DETACH), "umount the host's root")
    os.chdir("/")
    if not os.path.isdir(about["cwd"]):
        os.makedirs(about["cwd"], exist_ok=True)
    if about["readonly_root"]:
        mount("none", "/", flags=MS_REMOUNT | MS_BIND | MS_RDONLY)


def become_user(about: dict[str, Any]) -> None:
    if os.geteuid() == 0:
        os.setgroups(about["groups"])
        os.setresgid(about["gid"], about["gid"], about["gid"])
        os.setresuid(about["uid"], about["uid"], about["uid"])
    check(libc.prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0), "no_new_privs")
    check(libc.prctl(PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0), "parent death signal")


def start(about: dict[str, Any]) -> None:
    """All that happens in the process that becomes the container's first one."""
    os.setsid()
    members = os.open(about["cgroup"], os.O_WRONLY) if about["cgroup"] else -1
    if about["isolate"]:
        check(libc.sethostname(about["hostname"].encode(), len(about["hostname"])), "sethostname")
        enter_root(about)
    os.chdir(about["cwd"])
    if members >= 0:
        os.write(members, b"0")
        os.close(members)
    become_user(about)
    os.umask(0o022)
    for number in (signal.SIGPIPE, signal.SIGXFSZ, signal.SIGINT):
        signal.signal(number, signal.SIG_DFL)
    execute(about["argv"], about["env"])


def execute(argv: list[str], env: dict[str, str]) -> None:
    try:
        os.execvpe(argv[0], argv, env)  # noqa: S606  an argv list is what a container's command is
    except OSError as error:
        why = str(error.strerror).lower()
        if isinstance(error, FileNotFoundError) and "/" not in argv[0]:
            why = "executable file not found in $PATH"
        raise OSError(f'exec: "{argv[0]}": {why}') from None


def clone_sibling() -> int:
    """A child of our parent, in the namespaces just unshared: 0 in that child, its pid here."""
    arguments = struct.pack("8Q", CLONE_PARENT, 0, 0, 0, 0, 0, 0, 0)
    return check(libc.syscall(SYS_CLONE3, arguments, ctypes.c_size_t(len(arguments))), "clone")


def main() -> None:
    status = int(sys.argv[1])
    os.set_inheritable(status, False)
    about = json.loads(sys.stdin.buffer.read())
    os.dup2(os.open(os.devnull, os.O_RDWR), 0)
    try:
        pid = os.getpid()
        if about["isolate"]:
            check(libc.unshare(CLONE_NEWNS | CLONE_NEWPID | CLONE_NEWUTS), "unshare")
            pid = clone_sibling()
        if pid:
            os.write(status, f"pid {pid}\n".encode())
        if pid and about["isolate"]:
            os._exit(0)
        start(about)
    except Exception as error:  # noqa: BLE001  whatever it is, the agent has to hear of it
        os.write(status, f"error {error}\n".encode())
        os._exit(128)


if __name__ == "__main__":
    main()
