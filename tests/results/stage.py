"""A results folder, a state directory and a user's home for tests of the collector's parts."""

from __future__ import annotations

import dataclasses
import errno
import os
import pwd
import subprocess
import time
from pathlib import Path
from typing import Any, NoReturn

import msgspec

from penstock.model import attempts, jobs
from penstock.nas import asuser
from penstock.results import collection, settings, summary

IS_ROOT = os.geteuid() == 0
USER = asuser.User.of(pwd.getpwnam("games").pw_uid if IS_ROOT else os.geteuid())
OTHER = asuser.User.of(pwd.getpwnam("nobody").pw_uid)


@dataclasses.dataclass(frozen=True)
class Stage:
    """Everything under one folder."""

    base: Path
    settings: settings.Settings

    @property
    def home(self) -> Path:
        return self.base / "home"

    @property
    def results(self) -> Path:
        return self.base / "results"

    def own(self, path: Path, user: asuser.User = USER) -> Path:
        """Change the owner."""
        os.chown(path, user.uid, user.gid, follow_symlinks=False)
        return path

    def file(self, name: str, content: str = "content\n") -> Path:
        """A file in the user's home."""
        path = self.home / name
        for parent in reversed(path.relative_to(self.home).parents[:-1]):
            if not (self.home / parent).exists():
                (self.home / parent).mkdir()
                self.own(self.home / parent)
        path.write_text(content)
        return self.own(path)

    def attempt(
        self, job_id: int = 17, *, restart: int = 0, out: str = "hello\n", **more: Any
    ) -> attempts.Attempt:
        """An ended attempt with an output file."""
        self.file(f"slurm-{job_id}.out", out)
        path = os.fsencode(self.home / f"slurm-{job_id}.out")
        token = more.pop("token", f"{job_id:016x}{restart:016x}"[::-1])
        found = attempts.Attempt(
            job_id=job_id,
            restart=restart,
            uid=more.pop("uid", USER.uid),
            token=token,
            launched=1000.0 + 100 * restart,
            partition="gpu",
            submission=more.pop("submission", "990"),
            shares=(attempts.Share(node="n1", millicpus=2000, memory=2**30, gpus=1),),
            image="site/image:1",
            workdir=more.pop("workdir", os.fsencode(self.home)),
            workdir_is_shared=more.pop("workdir_is_shared", True),
            stdout=more.pop("stdout", path),
            stderr=more.pop("stderr", path),
            output_dir=str(self.results / ".outputs" / f"{job_id}-{restart}-{token}"),
            end=more.pop("end", attempts.End(at=1050.0, exit_code=0)),
            closed=more.pop("closed", time.time()),
        )
        return msgspec.structs.replace(found, **more)

    def output_folder(self, attempt: attempts.Attempt, **files: str) -> Path:
        """The folder that the agent creates in the pod, with files."""
        folder = Path(attempt.output_dir)
        folder.parent.mkdir(exist_ok=True)
        folder.mkdir(mode=0o700)
        for name, content in files.items():
            (folder / name).write_text(content)
            self.own(folder / name)
        return self.own(folder)

    def leave(self, attempt: attempts.Attempt) -> Path:
        """Write penstockd's record."""
        path = self.settings.state / "ended" / attempt.name
        path.write_bytes(msgspec.json.encode(attempt))
        return path

    def collect(self, attempt: attempts.Attempt, *, shown: str = "") -> bool:
        """Write the record unless it exists, and collect once."""
        path = self.settings.state / "ended" / attempt.name
        if not path.exists():
            self.leave(attempt)
        return collection.collect(self.settings, path, record_of(attempt, shown=shown))

    def summary(self, name: str = "17") -> summary.Summary:
        return msgspec.json.decode(
            (self.results / name / summary.JSON_NAME).read_bytes(), type=summary.Summary
        )

    def names(self) -> list[str]:
        """Entries of the results folder, without those that always exist."""
        always = (".outputs", ".penstock-results")
        return sorted(path.name for path in self.results.iterdir() if path.name not in always)


def record_of(attempt: attempts.Attempt, *, shown: str = "") -> jobs.JobRecord:
    return jobs.JobRecord(
        job_id=attempt.job_id,
        shown_id=shown or str(attempt.job_id),
        uid=attempt.uid,
        state="COMPLETED",
        end="0:0",
        submitted=990.0,
        started=attempt.launched,
        ended=attempt.launched + 50,
        account="research",
        name="train",
    )


def make(base: Path, **changes: Any) -> Stage:
    base.chmod(0o755)
    for name in ("state", "state/ended", "state/running", "state/telling", "results", "home"):
        (base / name).mkdir()
    (base / "results").chmod(0o755)
    os.chown(base / "home", USER.uid, USER.gid)
    chosen = settings.Settings(
        state_dir=str(base / "state"), results=str(base / "results"), slurm_conf="/nonexistent", **changes
    )
    return Stage(base, chosen)


def full(*arguments: object, **options: object) -> NoReturn:
    """Replaces a function that writes, on a storage without space."""
    raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))


def sha256sum(folder: Path) -> str:
    """Output of the real program; empty if all checksums match."""
    argv = ["sha256sum", "--check", "--strict", "--quiet", "checksums.txt"]
    result = subprocess.run(argv, cwd=folder, capture_output=True, text=True, timeout=60, check=False)
    return result.stdout + result.stderr


def uncovered(folder: Path) -> set[str]:
    """Regular files missing in checksums.txt."""
    listed = {line[66:] for line in (folder / "checksums.txt").read_text().splitlines()}
    there = {
        str(path.relative_to(folder))
        for path in folder.rglob("*")
        if path.is_file() and not path.is_symlink()
    }
    return there - listed - {"checksums.txt"}
