"""Installs what the Makefile's targets need, unless installed: Debian packages, and a virtual environment.

Standard library only: it runs before anything is installed. Services of the packages are neither started
(policy-rc.d) nor left enabled, since trying Penstock must not change a workstation.

usage: bootstrap.py packages | test-packages | k8s-packages | venv | dev-venv
"""

from __future__ import annotations

import contextlib
import fcntl
import hashlib
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import NoReturn

ROOT = Path(__file__).resolve().parent.parent
VENV = ROOT / ".venv"
DISTRIBUTIONS = (ROOT, ROOT / "lab")  # penstock, and penstock-lab for demo and tests
SEARCH = os.environ.get("PATH", "") + ":/usr/sbin:/sbin:/usr/local/sbin"
POLICY = Path("/usr/sbin/policy-rc.d")
POLICY_TEXT = b"#!/bin/sh\n# Penstock's, only while scripts/bootstrap.py installs packages\nexit 101\n"
"""The comment distinguishes it from a host's own: container images have one with the other two lines."""
SECONDS = 900.0

# program → Debian package
PROGRAMS = {
    "slurmctld": "slurmctld",
    "slurmd": "slurmd",
    "slurmdbd": "slurmdbd",
    "sbatch": "slurm-client",
    "munged": "munge",
    "mariadbd": "mariadb-server-core",
    "mariadb": "mariadb-client-core",
    "openssl": "openssl",
    "kubectl": "kubernetes-client",
    "/usr/bin/python3": "python3-minimal",
}
TEST_PROGRAMS = {"busybox": "busybox"}  # the shell of many images, with which the pod's agent is tested
K8S_PROGRAMS = {
    "containerd": "containerd",
    "runc": "runc",
    "/usr/lib/cni/ptp": "containernetworking-plugins",
    "docker-registry": "docker-registry",
    "ip": "iproute2",
}  # for a real Kubernetes on this machine; Go is not installed here
SERVICES = {
    "containerd": "containerd",
    "docker-registry": "docker-registry",
    "munge": "munge",
    "slurmctld": "slurmctld",
    "slurmd": "slurmd",
    "slurmdbd": "slurmdbd",
}  # package → unit


def say(text: str) -> None:
    print(f"penstock: {text}", flush=True)


def fail(text: str) -> NoReturn:
    say(text)
    sys.exit(1)


def missing_packages(programs: dict[str, str]) -> list[str]:
    found = {package for program, package in programs.items() if not shutil.which(program, path=SEARCH)}
    return sorted(found)


def install(packages: list[str]) -> None:
    """Install with apt-get as root, or through sudo; without apt, list the packages and exit."""
    if not packages:
        return
    if not shutil.which("apt-get"):
        fail(f"there is no apt-get here; install what Debian calls: {' '.join(packages)}")
    if os.geteuid() != 0:
        through_sudo(packages)
        return
    began = time.monotonic()
    say(f"installing {' '.join(packages)} (no service is started or enabled)")
    environment = os.environ | {"DEBIAN_FRONTEND": "noninteractive"}
    with no_services_started():
        run(["apt-get", "-qq", "update"], environment)
        run(["apt-get", "-qq", "-y", "--no-install-recommends", "install", *packages], environment)
    for package, unit in SERVICES.items():
        if package in packages:
            leave_disabled(unit)
    say(f"installed in {time.monotonic() - began:.0f} s")


def through_sudo(packages: list[str]) -> None:
    if not shutil.which("sudo"):
        fail(f"installing {' '.join(packages)} needs root or sudo: run it as root, or install them yourself")
    say("installing packages needs root: asking sudo")
    result = subprocess.run(["sudo", sys.executable, __file__, "install", *packages], check=False)
    if result.returncode:
        fail(f"could not install {' '.join(packages)} through sudo: run as root, or install them yourself")


class Starting:
    """Delays signals while a program is being started, since it cannot be waited for yet."""

    under_way = False
    told = 0

    @classmethod
    def is_over(cls) -> None:
        cls.under_way = False
        if cls.told:
            sys.exit(128 + cls.told)


def run(argv: list[str], environment: dict[str, str]) -> None:
    pipe = subprocess.PIPE
    Starting.under_way = True
    try:
        process = subprocess.Popen(argv, env=environment, stdout=pipe, stderr=pipe, text=True)
    except OSError as error:
        Starting.is_over()
        fail(f"{argv[0]} cannot be run: {error.strerror}")
    with process:
        output, complaints = outcome(process)
    if process.returncode:
        sys.stderr.write(output[-2000:] + complaints[-2000:])
        fail(f"{' '.join(argv[:2])} failed: see above")


def outcome(process: subprocess.Popen[str]) -> tuple[str, str]:
    """The program's output. Waits for its end also after a signal: apt-get gives up on SIGHUP while it
    downloads, and ignores it while packages are being set up.
    """
    try:
        Starting.is_over()
        return process.communicate(timeout=SECONDS)
    except SystemExit:
        process.send_signal(signal.SIGHUP)
        process.communicate(timeout=SECONDS)
        raise
    except BaseException:
        process.kill()
        raise


@contextlib.contextmanager
def no_services_started() -> Iterator[None]:
    """Write policy-rc.d, which invoke-rc.d runs before it starts a service; a host's own file is kept. An
    existing one of ours is left from a killed run.
    """
    with alone(POLICY.parent), told_to_stop():
        if POLICY.exists() and POLICY.read_bytes() != POLICY_TEXT:
            yield
            return
        try:
            POLICY.write_bytes(POLICY_TEXT)
            POLICY.chmod(0o755)
            yield
        finally:
            POLICY.unlink(missing_ok=True)


@contextlib.contextmanager
def alone(folder: Path, what: str = "packages are being installed") -> Iterator[None]:
    """One call at a time: another one still needs its policy-rc.d, and two pips in one environment remove
    each other's files.
    """
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            say(f"{what} by another call: waiting for it")
            fcntl.flock(descriptor, fcntl.LOCK_EX)
        yield
    finally:
        os.close(descriptor)


@contextlib.contextmanager
def told_to_stop() -> Iterator[None]:
    """Turn signals into an exception, for cleanup; a SIGHUP ignored by nohup stays ignored. Includes Ctrl-C,
    which apt-get ignores while packages are being set up: killed then, it would leave dpkg half-configured.
    """
    usual = (signal.SIG_DFL, signal.default_int_handler)
    before = {number: signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)}
    chosen = [number for number, handler in before.items() if handler in usual]

    def stop(number: int, frame: object) -> None:
        for each in chosen:
            signal.signal(each, signal.SIG_IGN)
        Starting.told = number
        if not Starting.under_way:
            sys.exit(128 + number)

    for number in chosen:
        signal.signal(number, stop)
    try:
        yield
    finally:
        for number in chosen:
            signal.signal(number, before[number])


def leave_disabled(unit: str) -> None:
    """Disable the unit that the package has enabled for the next boot; deb-systemd-helper needs the package's
    name.
    """
    environment = os.environ | {"DPKG_MAINTSCRIPT_PACKAGE": unit}
    for argv in (["deb-systemd-helper", "disable", f"{unit}.service"], ["update-rc.d", unit, "disable"]):
        if shutil.which(argv[0], path=SEARCH):
            subprocess.run(argv, env=environment, capture_output=True, timeout=60, check=False)


def make_venv(*, requirements: tuple[str, ...]) -> None:
    """Make .venv with the pinned requirements, unless it is up to date."""
    files = [ROOT / "requirements" / f"{name}.txt" for name in requirements]
    described = (*files, *(place / "pyproject.toml" for place in DISTRIBUTIONS))
    content = b"".join(file.read_bytes() for file in described)
    stamp = VENV / f"stamp-{requirements[-1]}"
    wanted = hashlib.sha256(sys.version.encode() + content).hexdigest()
    if stamp.exists() and stamp.read_text(encoding="ascii") == wanted:
        return
    if VENV.exists() and not os.access(VENV, os.W_OK):
        fail(f"{VENV} belongs to another user, who can remove it with `make clean`; or use your own clone")
    with alone(ROOT, "the virtual environment is being made"):
        if not stamp.exists() or stamp.read_text(encoding="ascii") != wanted:
            fill_venv(files, requirements)
            stamp.write_text(wanted, encoding="ascii")


def fill_venv(files: list[Path], requirements: tuple[str, ...]) -> None:
    began = time.monotonic()
    say(f"making the virtual environment .venv ({', '.join(requirements)})")
    if not has_pip():
        create_venv()
    pip = [str(VENV / "bin" / "python"), "-m", "pip", "--quiet", "--disable-pip-version-check"]
    pinned = [part for file in files for part in ("-r", str(file))]
    own = [part for place in DISTRIBUTIONS for part in ("--editable", str(place))]
    # --no-deps: pip before 23.3 resolves a dependency with extras to its newest release, whatever is pinned
    run([*pip, "install", "--no-deps", "--require-hashes", *pinned], dict(os.environ))
    run([*pip, "install", "--no-deps", "--no-build-isolation", *own], dict(os.environ))
    run([*pip, "check"], dict(os.environ))
    say(f"ready in {time.monotonic() - began:.0f} s")


def has_pip() -> bool:
    """Runs pip in the environment: an incomplete one, or one whose Python was upgraded to another release,
    has files but does not work.
    """
    argv = [str(VENV / "bin" / "python"), "-m", "pip", "--version"]
    try:
        return subprocess.run(argv, capture_output=True, timeout=60, check=False).returncode == 0
    except OSError:
        return False


def create_venv() -> None:
    try:
        import ensurepip  # noqa: F401  # Debian has it in a separate package
    except ImportError:
        install(["python3-venv"])
    run([sys.executable, "-m", "venv", "--clear", str(VENV)], dict(os.environ))


def main(arguments: list[str]) -> None:
    if sys.version_info < (3, 11):  # noqa: UP036  # this check is for users of older Pythons
        fail(f"needs Python 3.11 or newer, and this is {sys.version.split()[0]}")
    if arguments[:1] == ["install"]:
        install(arguments[1:])
    elif arguments == ["packages"]:
        install(missing_packages(PROGRAMS))
    elif arguments == ["test-packages"]:
        install(missing_packages(TEST_PROGRAMS))
    elif arguments == ["k8s-packages"]:
        install(missing_packages(K8S_PROGRAMS))
    elif arguments == ["venv"]:
        make_venv(requirements=("build", "lab"))
    elif arguments == ["dev-venv"]:
        make_venv(requirements=("build", "dev"))
    else:
        fail("usage: bootstrap.py packages | test-packages | k8s-packages | venv | dev-venv")


if __name__ == "__main__":
    try:
        main(sys.argv[1:])
    except (OSError, subprocess.TimeoutExpired) as problem:
        fail(str(problem))
