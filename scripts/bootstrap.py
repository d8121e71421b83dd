"""Installs what the Makefile's targets need and nothing twice: Debian packages, then a virtual environment.

Standard library only: it runs before anything is installed. Trying Penstock on a workstation must change
nothing there, so no service that comes with a package is started (policy-rc.d) or left enabled.

usage: bootstrap.py packages | test-packages | k8s-packages | venv | dev-venv
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
VENV = ROOT / ".venv"
SEARCH = os.environ.get("PATH", "") + ":/usr/sbin:/sbin:/usr/local/sbin"
POLICY = Path("/usr/sbin/policy-rc.d")

# program we run → Debian package that brings it
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
TEST_PROGRAMS = {"busybox": "busybox"}  # the shell of many an image: the pod's agent is tried with it
K8S_PROGRAMS = {
    "containerd": "containerd",
    "runc": "runc",
    "/usr/lib/cni/ptp": "containernetworking-plugins",
    "docker-registry": "docker-registry",
    "ip": "iproute2",
}  # the same for a real Kubernetes on this machine; Go itself is the caller's to bring
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


def fail(text: str) -> None:
    say(text)
    sys.exit(1)


def missing_packages(programs: dict[str, str]) -> list[str]:
    found = {package for program, package in programs.items() if not shutil.which(program, path=SEARCH)}
    return sorted(found)


def install(packages: list[str]) -> None:
    """apt-get as root, or through sudo; where there is no apt, say what is needed and stop."""
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


def run(argv: list[str], environment: dict[str, str]) -> None:
    result = subprocess.run(argv, env=environment, capture_output=True, text=True, timeout=900, check=False)
    if result.returncode:
        sys.stderr.write(result.stdout[-2000:] + result.stderr[-2000:])
        fail(f"{' '.join(argv[:2])} failed: see above")


@contextlib.contextmanager
def no_services_started() -> Iterator[None]:
    """invoke-rc.d asks this file before it starts anything; a host's own file is left as it is."""
    if POLICY.exists():
        yield
        return
    POLICY.write_text("#!/bin/sh\nexit 101\n", encoding="utf-8")
    POLICY.chmod(0o755)
    try:
        yield
    finally:
        POLICY.unlink(missing_ok=True)


def leave_disabled(unit: str) -> None:
    """Undo what the package's own script enabled for the next boot; the helper serves only those who say for
    which package they speak.
    """
    environment = os.environ | {"DPKG_MAINTSCRIPT_PACKAGE": unit}
    for argv in (["deb-systemd-helper", "disable", f"{unit}.service"], ["update-rc.d", unit, "disable"]):
        if shutil.which(argv[0], path=SEARCH):
            subprocess.run(argv, env=environment, capture_output=True, timeout=60, check=False)


def make_venv(*, requirements: tuple[str, ...]) -> None:
    """The environment in .venv, exactly as pinned; nothing to do when it is so already."""
    files = [ROOT / "requirements" / f"{name}.txt" for name in requirements]
    stamp = VENV / f"stamp-{requirements[-1]}"
    wanted = hashlib.sha256(sys.version.encode() + b"".join(file.read_bytes() for file in files)).hexdigest()
    if stamp.exists() and stamp.read_text(encoding="ascii") == wanted:
        return
    if VENV.exists() and not os.access(VENV, os.W_OK):
        fail(f"{VENV} is somebody else's: they can remove it with `make clean`, or use a clone of your own")
    began = time.monotonic()
    say(f"making the virtual environment .venv ({', '.join(requirements)})")
    if not (VENV / "bin" / "pip").exists():
        create_venv()
    pip = [str(VENV / "bin" / "python"), "-m", "pip", "--quiet", "--disable-pip-version-check", "install"]
    run([*pip, "--require-hashes", *(part for file in files for part in ("-r", str(file)))], dict(os.environ))
    run([*pip, "--no-deps", "--no-build-isolation", "--editable", str(ROOT)], dict(os.environ))
    stamp.write_text(wanted, encoding="ascii")
    say(f"ready in {time.monotonic() - began:.0f} s")


def create_venv() -> None:
    try:
        import ensurepip  # noqa: F401  # only to see whether Debian left it out
    except ImportError:
        install(["python3-venv"])
    run([sys.executable, "-m", "venv", "--clear", str(VENV)], dict(os.environ))


def main(arguments: list[str]) -> None:
    if sys.version_info < (3, 11):  # noqa: UP036  # this very check is what tells users of older Pythons
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
        make_venv(requirements=("build", "runtime"))
    elif arguments == ["dev-venv"]:
        make_venv(requirements=("build", "dev"))
    else:
        fail("usage: bootstrap.py packages | test-packages | k8s-packages | venv | dev-venv")


if __name__ == "__main__":
    try:
        main(sys.argv[1:])
    except (OSError, subprocess.TimeoutExpired) as problem:
        fail(str(problem))
