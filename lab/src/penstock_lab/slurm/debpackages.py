"""Makes programs that run beside the machine's own Slurm out of another suite's packages.

    bin/      Slurm's daemons and commands, each with the loader below as its interpreter
    lib/      that suite's C library, loader and everything else the programs need
    plugins/  Slurm's plugins, for PluginDir
    packages  what it was made of, with checksums

Only these programs use that suite's libraries: what they start (hooks, job scripts) is the machine's own
again, and they see its users, files and sockets. docs/decisions tells why this is no chroot.
"""

from __future__ import annotations

import hashlib
import shutil
from collections.abc import Sequence
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
    """Fill `target`, which will be called `final` when it is used."""
    for package in packages:
        subprocesses.run(("dpkg-deb", "--extract", str(package), str(scratch)), timeout=PATCH_SECONDS)
    plugins = _plugins(scratch)
    _keep_libraries(scratch, plugins.parent.name, target / "lib")
    plugins.rename(target / "plugins")
    for unusable in (target / "plugins").glob("mpi_pmix*"):
        unusable.unlink()  # needs more than its package brings, and complains at every start
    _keep_programs(scratch, target / "bin")
    _patch(target, patchelf=scratch / "usr/bin/patchelf", final=final)
    (target / PACKAGE_LIST).write_text("".join(map(package_line, packages)))


def _plugins(root: Path) -> Path:
    found = next(iter(root.glob("usr/lib/*/slurm-wlm")), None)
    if found is None:
        raise errors.LabError("Slurm's packages have no plugins where Debian keeps them")
    return found


def _keep_libraries(root: Path, triplet: str, target: Path) -> None:
    """All shared libraries of the suite's two library folders, links included."""
    target.mkdir()
    for folder in (root / "usr/lib" / triplet, root / "lib" / triplet):
        for library in sorted(folder.glob("*.so*")):
            library.rename(target / library.name)


def _keep_programs(root: Path, target: Path) -> None:
    """Programs under their plain names: some are called NAME-wlm, and `update-alternatives` never ran."""
    target.mkdir()
    for name in (*DAEMONS, *CLIENTS):
        folder = root / "usr" / ("sbin" if name in DAEMONS else "bin")
        found = next((path for path in (folder / name, folder / f"{name}-wlm") if path.is_file()), None)
        if found is None:
            raise errors.LabError(f"Slurm's packages have no program {name}")
        found.rename(target / name)


def loader(programs: Path) -> Path:
    """The suite's own dynamic loader."""
    found = next(iter(sorted((programs / "lib").glob("ld-linux*.so.*"))), None)
    if found is None:
        raise errors.LabError("the suite's C library has no loader")
    return found


def _patch(target: Path, *, patchelf: Path, final: Path) -> None:
    """Programs find the suite's loader and libraries; plugins look where the program that loads them does."""
    interpreter = final / "lib" / loader(target).name
    run_patchelf = through_loader(target, patchelf)
    programs = [str(path) for path in sorted((target / "bin").iterdir())]
    plugins = [str(path) for path in sorted((target / "plugins").glob("*.so")) if not path.is_symlink()]
    options = ("--set-interpreter", str(interpreter), "--force-rpath", "--set-rpath", RUN_PATH)
    subprocesses.run((*run_patchelf, *options, *programs), timeout=PATCH_SECONDS)
    subprocesses.run((*run_patchelf, "--remove-rpath", *plugins), timeout=PATCH_SECONDS)


def through_loader(programs: Path, program: Path) -> tuple[str, ...]:
    """How to run a program of the suite before it is where it will be used."""
    return (str(loader(programs)), "--library-path", str(programs / "lib"), str(program))


def package_line(package: Path) -> str:
    """As sha256sum writes it; the file's name has the package's version in it."""
    with package.open("rb") as stream:
        return f"{hashlib.file_digest(stream, 'sha256').hexdigest()}  {package.name}\n"


def require_release(programs: Path, release: str) -> None:
    """Complain when the suite has moved on to another release meanwhile."""
    argv = (*through_loader(programs, programs / "bin/slurmctld"), "-V")
    version = subprocesses.run(argv).stdout.strip()
    if releases.text(releases.parse(version)) != release:
        raise errors.LabError(
            f"Debian's archive no longer has Slurm {release} where it was: there is {version} now",
            hint="Choose another release with --slurm.",
        )


def remove(scratch: Path) -> None:
    """What was needed on the way only."""
    shutil.rmtree(scratch)
