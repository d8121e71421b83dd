"""Checks a script's #K8S_ directives against what the site allows."""

from __future__ import annotations

import dataclasses

from penstock import errors
from penstock.model import launches
from penstock.model.podpolicy import PodPolicy
from penstock.render import pods as rendering
from penstock.render import workdirs
from penstock.sbatch import images, tolerations
from penstock.sbatch import poddirectives as pods_of_scripts


def allowed(
    request: launches.LaunchRequest, partition: str, settings: PodPolicy, *, runs: bool
) -> launches.LaunchRequest:
    """The request with its script's directives; UsageError if one is wrong or not allowed.

    With `runs` nothing is forbidden: the site's rules may have changed since the job was launched.
    """
    forbidden = () if runs else settings.forbidden_directives
    pod = pods_of_scripts.pod_of(request.script, forbidden=forbidden)
    request = dataclasses.replace(request, pod=pod)
    if not runs:
        for _, complaint, hint in tolerations.refusals(pod, settings.partition(partition)):
            raise errors.UsageError(complaint, hint=hint)
        _require_image(request, partition, settings)
    return request


def _require_image(request: launches.LaunchRequest, partition: str, settings: PodPolicy) -> None:
    image = rendering.image_of(request, settings, partition)
    if image and not images.is_allowed(image, settings.allowed_images):
        name, names = images.full_name(image), ", ".join(settings.allowed_images)
        raise errors.UsageError(f"the image {name} is not allowed at this site (allowed: {names})")


def unseen_workdir(request: launches.LaunchRequest, settings: PodPolicy) -> str:
    """A message that the script does not run in its work directory; empty if it does."""
    lost = workdirs.lost_workdir(request, settings.shared_mounts).decode(errors="replace")
    shown = "".join(character if character.isprintable() else "?" for character in lost)
    return f"runs in {workdirs.TMP} of its pod: pods do not see {shown}" if shown else ""
