"""Turns a claimed file into a submission or a refusal: all checks that need no Slurm."""

from __future__ import annotations

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


class Refused(msgspec.Struct, frozen=True):
    """`words` is the reason in short, `letter` the text of <name>.error.txt."""

    words: str
    letter: str
    uid: int
    mode: int
    temporary: bool = False
    """Refused only after a grace period."""


class ToSubmit(msgspec.Struct, frozen=True):
    submission: submissions.Submission
    sha256: str
    mode: int


def _no_jobs(name: str, given: Sequence[getopt.Setting]) -> Iterator[diagnostics.Diagnostic]:
    """Options with which sbatch submits no job; the intake would repeat the submission forever."""
    for setting in given:
        if setting.option.key == "test-only":
            place = setting.provenance
            yield diagnostics.Diagnostic(
                "error",
                place.line,
                place.column,
                "no-job",
                f"with --test-only ({name}:{place.line}) sbatch only reports when a job could start "
                "and submits nothing",
                "remove --test-only, or run `sbatch --test-only` on a login node",
            )


class Judge:
    """Checks claimed files by the site's rules."""

    def __init__(self, site: settings.Settings) -> None:
        self.site = site
        self.limits = inspection.Limits(site.largest_bytes, site.group_writable)

    def _context(self) -> compiler.Context:
        """Read anew for each file, since `penstock apply` replaces the site's view."""
        view = self._view()
        return compiler.Context(
            release=options.release_of(self.site.slurm_release),
            gres_types=view.gres_types if view else compiler.DEFAULT_CONTEXT.gres_types,
            other_gres=view is None or not view.complete,  # sbatch refuses unknown ones by slurm.conf
            site=view,
            as_root=False,
        )

    def _view(self) -> siteview.SiteView | None:
        """None if there is none; then Slurm refuses what the site does not allow, in fewer words."""
        try:
            return siteviews.read(self.site.site) if self.site.site else None
        except errors.UsageError as error:
            log.warning("scripts are not checked against the site: %s", error.message)
            return None

    def judge(
        self, folder: dropfolder.Folder, claim: claims.Claim
    ) -> ToSubmit | Refused | inspection.Unsettled | None:
        """None if the file is gone."""
        spot = renames.Spot(folder.work, claim.work_name)
        found = inspection.inspect(spot, name=claim.name, limits=self.limits, expected=claim.stamp)
        if found is None or isinstance(found, inspection.Unsettled):
            return found
        if isinstance(found, inspection.Refusal):
            letter = messages.refusal(claim.name, claim.token, found.reason, found.advice)
            return Refused(found.reason, letter, found.uid, found.mode, found.temporary)
        return self._refusal(claim, found) or self._accept(claim, found)

    def _refusal(self, claim: claims.Claim, script: inspection.Script) -> Refused | None:
        if claim.folder_uid not in (None, script.user.uid):
            return self._refused(claim, script, "it is in another user's folder", "Use your own folder.")
        if claim.cut_short:
            reason = "it was copied while the NAS was full and may be truncated"
            return self._refused(claim, script, reason, "Copy it again.")
        if not script.data:
            return self._refused(claim, script, "it is empty", AGAIN)
        done = compiler.compile_script(
            script.data, name=filenames.for_slurm(claim.name), variables={}, context=self._context()
        )
        found = (*done.diagnostics, *_no_jobs(claim.name, done.given))
        count = sum(one.severity == "error" for one in found)
        if not count:
            return None
        reason = "the script has an error" if count == 1 else f"the script has {count} errors"
        return self._refused(claim, script, reason, AGAIN, messages.findings(script.data, found))

    def _refused(
        self,
        claim: claims.Claim,
        script: inspection.Script,
        reason: str,
        advice: str,
        details: list[str] | None = None,
    ) -> Refused:
        letter = messages.refusal(claim.name, claim.token, reason, advice, details or ())
        return Refused(reason, letter, script.user.uid, script.mode)

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
            workdir=self.site.workdir_of(user),
            environment=own | self.site.environment | {"SLURM_CONF": self.site.slurm_conf},
        )
        return ToSubmit(submission, hashlib.sha256(script.data).hexdigest(), script.mode)
