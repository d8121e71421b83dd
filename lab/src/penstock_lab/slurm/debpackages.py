"""Turns another suite's packages into programs that run beside the installed Slurm.

    bin/      Slurm's daemons and commands, each with the loader below as its interpreter
    lib/      the suite's C library, loader and all other libraries
    plugins/  Slurm's plugins, for PluginDir
    packages  the packages with their checksums

Only these programs use the suite's libraries: hooks and job scripts that they start use the machine's, and
all see the machine's users, files and sockets. docs/decisions explains why this is not a chroot.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Sequence
from pathlib import Path

from penstock import errors
from penstock.model import releases
from penstock_lab import subprocesses

DAEMONS = ("slurmctld", "slurmd", "slurmdbd", "slurmstepd")
CLIENTS = (
    "sacct", "sacctmgr", "salloc", "sattach", "sbatch", "sbcast", "scancel", "scontrol", "sdiag", "sinfo",
    "sprio", "squeue", "sreport", "srun", "sshare", "sstat", "strigger",
)  # fmt: skip
PACKAGE_LIST = "packages"
RUN_PATH = "$ORIGIN/../plugins:$ORIGIN/../lib"
PATCH_SECONDS = 300.0


def unpack(packages: Sequence[Path], target: Path, *, final: Path, scratch: Path) -> None:
    """Fill `target`, which is later renamed to `final`."""
    for package in packages:
        subprocesses.run(("dpkg-deb", "--extract", str(package), str(scratch)), timeout=PATCH_SECONDS)
    plugins = _first(
        scratch.glob("usr/lib/*/slurm-wlm"), missing="Slurm's packages have no plugins in usr/lib/*/slurm-wlm"
    )
    _keep_libraries(scratch, plugins.parent.name, target / "lib")
    plugins.rename(target / "plugins")
    for unusable in (target / "plugins").glob("mpi_pmix*"):
        unusable.unlink()  # its dependencies are missing, and it logs errors at every start
    _keep_programs(scratch, target / "bin")
    _patch(target, patchelf=scratch / "usr/bin/patchelf", final=final)
    (target / PACKAGE_LIST).write_text("".join(map(package_line, packages)))


def _first(found: Iterable[Path], *, missing: str) -> Path:
    for path in found:
        return path
    raise errors.LabError(missing)


def _keep_libraries(root: Path, triplet: str, target: Path) -> None:
    target.mkdir()
    for folder in (root / "usr/lib" / triplet, root / "lib" / triplet):
        for library in sorted(folder.glob("*.so*")):
            library.rename(target / library.name)


def _keep_programs(root: Path, target: Path) -> None:
    """Move the programs; some are named NAME-wlm, since `update-alternatives` has not run."""
    target.mkdir()
    for name in (*DAEMONS, *CLIENTS):
        folder = root / "usr" / ("sbin" if name in DAEMONS else "bin")
        found = (path for path in (folder / name, folder / f"{name}-wlm") if path.is_file())
        _first(found, missing=f"Slurm's packages have no program {name}").rename(target / name)


def loader(programs: Path) -> Path:
    found = sorted((programs / "lib").glob("ld-linux*.so.*"))
    return _first(found, missing="the suite's C library has no dynamic loader")


def _patch(target: Path, *, patchelf: Path, final: Path) -> None:
    """Set the programs' loader and library path; plugins use that of the program that loads them."""
    interpreter = final / "lib" / loader(target).name
    run_patchelf = through_loader(target, patchelf)
    programs = [str(path) for path in sorted((target / "bin").iterdir())]
    plugins = [str(path) for path in sorted((target / "plugins").glob("*.so")) if not path.is_symlink()]
    options = ("--set-interpreter", str(interpreter), "--force-rpath", "--set-rpath", RUN_PATH)
    subprocesses.run((*run_patchelf, *options, *programs), timeout=PATCH_SECONDS)
    subprocesses.run((*run_patchelf, "--remove-rpath", *plugins), timeout=PATCH_SECONDS)


def through_loader(programs: Path, program: Path) -> tuple[str, ...]:
    """The command line of a program before it is at its final path."""
    return (str(loader(programs)), "--library-path", str(programs / "lib"), str(program))


def package_line(package: Path) -> str:
    """A line in sha256sum's format; the file name contains the package's version."""
    with package.open("rb") as stream:
        return f"{hashlib.file_digest(stream, 'sha256').hexdigest()}  {package.name}\n"


def require_release(programs: Path, release: str) -> None:
    """Raises LabError if the suite now has another release."""
    argv = (*through_loader(programs, programs / "bin/slurmctld"), "-V")
    version = subprocesses.run(argv).stdout.strip()
    if releases.text(releases.parse(version)) != release:
        raise errors.LabError(
            f"Debian's archive no longer has Slurm {release}: the suite now has {version}",
            hint="Choose another release with --slurm.",
        )
