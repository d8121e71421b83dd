"""Turns a claimed file into a submission or a refusal: all checks that need no Slurm."""

from __future__ import annotations

import functools
import hashlib
import logging
from collections.abc import Iterator, Sequence

import msgspec

from penstock import errors
from penstock.intake import claims, filenames, inspection, messages, settings
from penstock.model import siteview
from penstock.nas import dropfolder, renames
from penstock.sbatch import compiler, diagnostics, getopt, options, siteviews
from penstock.slurm import submissions

log = logging.getLogger(__name__)
AGAIN = "Correct it and copy it to submit/ again."


class ToSubmit(msgspec.Struct, frozen=True):
    submission: submissions.Submission
    sha256: str
    mode: int


def _no_job(name: str, given: Sequence[getopt.Setting]) -> Iterator[diagnostics.Diagnostic]:
    """--test-only, with which sbatch submits no job; the intake would repeat the submission forever."""
    for place in (setting.provenance for setting in given if setting.option.key == "test-only"):
        message = f"with --test-only ({name}:{place.line}) sbatch only reports when a job could start and"
        hint = "remove --test-only, or run `sbatch --test-only` on a login node"
        yield diagnostics.Diagnostic(
            "error", place.line, place.column, "no-job", f"{message} submits nothing", hint
        )


class Judge:
    def __init__(self, site: settings.Settings) -> None:
        self.site = site
        self.limits = inspection.Limits(site.largest_bytes, site.group_writable)

    def _context(self) -> compiler.Context:
        """Read anew for each file, since `penstock apply` replaces the site's view.

        Without a view Slurm refuses what the site does not allow, with shorter messages.
        """
        view: siteview.SiteView | None = None
        try:
            view = siteviews.read(self.site.site) if self.site.site else None
        except errors.UsageError as error:
            log.warning("scripts are not checked against the site: %s", error.message)
        return compiler.Context(
            release=options.release_of(self.site.slurm_release),
            gres_types=view.gres_types if view else compiler.DEFAULT_CONTEXT.gres_types,
            other_gres=view is None or not view.complete,  # sbatch refuses unknown ones by slurm.conf
            site=view,
            as_root=False,
        )

    def judge(
        self, folder: dropfolder.Folder, claim: claims.Claim
    ) -> ToSubmit | inspection.Refusal | inspection.Unsettled | None:
        """None if the file is gone."""
        spot = renames.Spot(folder.work, claim.work_name)
        found = inspection.inspect(spot, name=claim.name, limits=self.limits, expected=claim.stamp)
        if not isinstance(found, inspection.Script):
            return found
        refuse = functools.partial(inspection.Refusal, uid=found.user.uid, mode=found.mode)
        if claim.folder_uid not in (None, found.user.uid):
            return refuse("it is in another user's folder", "Use your own folder.")
        if claim.cut_short:
            return refuse("it was copied while the NAS was full and may be truncated", "Copy it again.")
        if not found.data:
            return refuse("it is empty", AGAIN)
        name = filenames.for_slurm(claim.name)
        done = compiler.compile_script(found.data, name=name, variables={}, context=self._context())
        all_found = (*done.diagnostics, *_no_job(claim.name, done.given))
        count = sum(one.severity == "error" for one in all_found)
        if not count:
            return self._accept(claim, found)
        reason = "the script has an error" if count == 1 else f"the script has {count} errors"
        return refuse(reason, AGAIN, details=tuple(messages.findings(found.data, all_found)))

    def _accept(self, claim: claims.Claim, script: inspection.Script) -> ToSubmit:
        user = script.user
        own = {
            "HOME": user.home,
            "USER": user.name,
            "LOGNAME": user.name,
            "SHELL": user.shell,
            "PATH": "/usr/local/bin:/usr/bin:/bin",
            "LANG": "C.UTF-8",
        }
        submission = submissions.Submission(
            token=claim.token,
            name=filenames.for_slurm(claim.name),
            data=script.data,
            uid=user.uid,
            gid=user.gid,
            groups=user.groups,
            workdir=self.site.workdir.format(home=user.home, user=user.name, uid=user.uid),
            environment=own | self.site.environment | {"SLURM_CONF": self.site.slurm_conf},
        )
        return ToSubmit(submission, hashlib.sha256(script.data).hexdigest(), script.mode)
