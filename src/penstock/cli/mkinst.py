"""`penstock mkyaml` and `penstock mkinst`: print or create the pod of an instance.

Both accept the same arguments and make the same checks. The pod has the labels, namespace and security of a
bridged job's pods. `--job-id` must be that of a live Slurm job: penstockd removes pods of unknown jobs.
"""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Callable, Sequence
from typing import Any

import click

from penstock import errors
from penstock.kube import client, incluster, kinds
from penstock.model import launches
from penstock.model.jobspec import PodSpec
from penstock.model.siteview import SiteView
from penstock.render import instances, yamltext
from penstock.sbatch import images
from penstock.sbatch.values import sizes
from penstock.sbatch.values.problem import Problem
from penstock.views import installation, pods

Command = Callable[..., None]
MOST_MIB = 1 << 30
JOB_ID = click.IntRange(1, 67_108_863)  # Slurm's ids have 26 bits
CPUS = click.IntRange(1, 65_536)
WORDS = (
    click.argument("flavour"),
    click.argument("class_name", metavar="CLASS"),
    click.argument("owner"),
    click.argument("command", nargs=-1, type=click.UNPROCESSED),
    click.option("--job-id", type=JOB_ID, required=True, help="Slurm job that it belongs to."),
    click.option("--account", default="", help="Account, if the site's namespaces depend on it."),
    click.option("--image", default="", help="Image; default: the site's."),
    click.option("--cpu", type=CPUS, help="CPUs; default: the class's."),
    click.option("--memory", default="", help="Memory, as for sbatch --mem; default: the class's."),
    click.option("--site", "site_file", metavar="FILE", help="The site; default $PENSTOCK_SITE."),
)


def _options(command: Command) -> Command:
    return functools.reduce(lambda made, decorate: decorate(made), reversed(WORDS), command)


@click.command()
@_options
def mkyaml(**words: Any) -> None:
    """Print the manifest of an instance: FLAVOUR (gpu1, cpu), CLASS (std), OWNER (a user or a uid).

    \b
    Examples:
      penstock mkyaml cpu std alice --job-id 17 --image debian:12
      penstock mkyaml gpu1 std 2019123456 --job-id 17 --image debian:12 | kubectl apply -f -
      penstock mkyaml --site site.yaml gpu1 std alice --job-id 17 -- sleep 600
    """
    click.echo(yamltext.documents(manifests(**words)), nl=False)


@click.command()
@_options
def mkinst(**words: Any) -> None:
    """Create an instance: FLAVOUR (gpu1, cpu), CLASS (std), OWNER (a user or a uid).

    \b
    Examples:
      penstock mkinst cpu std alice --job-id 17 --image debian:12
      penstock mkinst gpu1 std 2019123456 --job-id 17 --cpu 4 --memory 8G --site site.yaml
      penstock mkinst cpu std alice --job-id 17 --image debian:12 -- sleep 600
    """
    objects = manifests(**words)
    client.ask(incluster.of_person(), lambda kube: _create(kube, objects))
    meta = objects[-1]["metadata"]
    click.echo(f"pod {meta['name']} in namespace {meta['namespace']}")


def manifests(
    *,
    flavour: str,
    class_name: str,
    owner: str,
    account: str,
    command: Sequence[str],
    job_id: int,
    image: str,
    cpu: int | None,
    memory: str,
    site_file: str | None,
) -> list[dict[str, Any]]:
    site = installation.chosen(site_file) or SiteView()
    chosen = _known(site.classes, class_name, "class")
    instance = instances.Instance(
        owner=dataclasses.replace(_owner(owner), account=account),
        job_id=job_id,
        cpus=cpu or chosen.cpus,
        memory_mib=_memory(memory) or chosen.memory_mib,
        gpus={"": _known(site.flavours, flavour, "flavour")},
        gpu_resource=site.gpu_resource(),
    )
    image = _image(image or site.pods.default_image, site)
    wish = PodSpec(image=image, priority_class=chosen.priority_class)
    return instances.single(instance, wish, policy=pods.policy_of(site), command=command)


def _known(table: dict[str, Any], name: str, noun: str) -> Any:
    if name not in table:
        raise errors.UsageError(f"unknown {noun} {name!r}", hint=f"known: {', '.join(table)}")
    return table[name]


def _owner(name: str) -> launches.Owner:
    found = pods.owner_named(name)
    if found.uid == 0:
        raise errors.UsageError("an instance must not run as root", hint="Name the user it is for.")
    return found


def _memory(text: str) -> int:
    """MiB; 0 if not given."""
    if not text:
        return 0
    try:
        amount = sizes.memory(text)
    except Problem as problem:
        raise errors.UsageError(f"--memory: {problem.message}", hint=problem.hint) from problem
    if not 0 < amount <= MOST_MIB:
        raise errors.UsageError(f"--memory: {text} is out of range", hint="Use an amount such as 8G.")
    return amount


def _image(text: str, site: SiteView) -> str:
    try:
        images.parse(text)
    except Problem as problem:
        raise errors.UsageError(f"--image: {problem.message}", hint=problem.hint) from problem
    if not images.is_allowed(text, site.pods.allowed_images):
        raise errors.UsageError(
            f"the image {images.full_name(text)} is not allowed at this site",
            hint=f"allowed: {', '.join(site.pods.allowed_images)}",
        )
    return text


async def _create(kube: client.KubeClient, objects: Sequence[dict[str, Any]]) -> None:
    """The namespace may exist already, the pod may not."""
    for item in objects:
        meta = item["metadata"]
        try:
            await kube.create(kinds.of(item), item, namespace=meta.get("namespace", ""))
        except errors.KubeConflict:
            if item["kind"] == "Pod":
                hint = "Choose another --job-id."
                raise errors.UsageError(f"pod {meta['name']} already exists", hint=hint) from None
