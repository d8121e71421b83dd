"""From a claimed file to a submission or a refusal: everything that is decided before Slurm is asked."""

from __future__ import annotations

import hashlib
import logging
from collections.abc import Iterator, Sequence

import msgspec

from penstock import errors
from penstock.intake import claims, filenames, inspection, messages, settings
from penstock.model import siteview
from penstock.nas import asuser, dropfolder, renames
from penstock.sbatch import compiler, diagnostics, getopt, options, siteviews
from penstock.slurm import submissions

log = logging.getLogger(__name__)
AGAIN = "Correct it and copy it to submit/ again."


class Refused(msgspec.Struct, frozen=True):
    """No job: why in a few words, the whole letter, whose file it is."""

    words: str
    letter: str
    uid: int
    mode: int
    passing: bool = False
    """It may be over soon: to be waited for before it is said."""


class Wanted(msgspec.Struct, frozen=True):
    """A job, please."""

    submission: submissions.Submission
    sha256: str
    mode: int


def _no_jobs(name: str, given: Sequence[getopt.Setting]) -> Iterator[diagnostics.Diagnostic]:
    """Lines with which sbatch makes no job of the script: it would be asked for one for ever."""
    for setting in given:
        if setting.option.key == "test-only":
            place = setting.provenance
            yield diagnostics.Diagnostic(
                "error",
                place.line,
                place.column,
                "no-job",
                f"with --test-only ({name}:{place.line}) sbatch only says when a job could start, "
                "and submits none",
                "remove --test-only; `sbatch --test-only` on a login node answers at once",
            )


class Judge:
    """Looks at claimed files by the site's rules."""

    def __init__(self, site: settings.Settings) -> None:
        self.site = site
        self.limits = inspection.Limits(site.largest_bytes, site.group_writable)

    def _context(self) -> compiler.Context:
        """The rules of the site as they are now: `penstock apply` writes its view anew."""
        view = self._view()
        return compiler.Context(
            release=options.release_of(self.site.slurm_release),
            gres_types=view.gres_types if view else compiler.DEFAULT_CONTEXT.gres_types,
            other_gres=view is None or not view.complete,  # sbatch reads slurm.conf and says no itself
            site=view,
            as_root=False,
        )

    def _view(self) -> siteview.SiteView | None:
        """None where there is none: Slurm will say no, later and in fewer words."""
        try:
            return siteviews.read(self.site.site) if self.site.site else None
        except errors.UsageError as error:
            log.warning("scripts are not held against the site: %s", error.message)
            return None

    def judge(
        self, folder: dropfolder.Folder, claim: claims.Claim
    ) -> Wanted | Refused | inspection.Unsettled | None:
        """None when the file is gone."""
        spot = renames.Spot(folder.work, claim.work_name)
        found = inspection.inspect(spot, name=claim.name, limits=self.limits, expected=claim.sign)
        if found is None or isinstance(found, inspection.Unsettled):
            return found
        if isinstance(found, inspection.Refusal):
            letter = messages.refusal(claim.name, claim.token, found.reason, found.advice)
            return Refused(found.reason, letter, found.uid, found.mode, found.passing)
        return self._against(claim, found) or self._wanted(claim, found)

    def _against(self, claim: claims.Claim, script: inspection.Script) -> Refused | None:
        if claim.folder_uid not in (None, script.user.uid):
            return self._refused(claim, script, "it lies in another user's folder", "Use your own folder.")
        if claim.cut_short:
            reason = "it was copied while the NAS was full and may be cut short"
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

    def _wanted(self, claim: claims.Claim, script: inspection.Script) -> Wanted:
        user = script.user
        submission = submissions.Submission(
            token=claim.token,
            name=filenames.for_slurm(claim.name),
            data=script.data,
            uid=user.uid,
            gid=user.gid,
            groups=user.groups,
            workdir=self.site.workdir_of(user),
            environment=self._environment(user),
        )
        return Wanted(submission, hashlib.sha256(script.data).hexdigest(), script.mode)

    def _environment(self, user: asuser.User) -> dict[str, str]:
        """What a job starts with: the user's own few variables, none of ours."""
        own = {
            "HOME": user.home,
            "USER": user.name,
            "LOGNAME": user.name,
            "SHELL": user.shell,
            "PATH": "/usr/local/bin:/usr/bin:/bin",
            "LANG": "C.UTF-8",
        }
        return own | self.site.environment | {"SLURM_CONF": self.site.slurm_conf}
