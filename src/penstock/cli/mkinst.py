"""`penstock mkyaml` and `penstock mkinst`: from a command line to a manifest, and to a running instance.

Both take the same words and go through the same checks; `mkyaml` prints what `mkinst` would create. The
pod has the labels, namespace and security of a bridged job's pods. Give `--job-id` of a live Slurm job:
penstockd removes pods whose job Slurm does not know.
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
    click.option("--job-id", type=JOB_ID, required=True, help="The Slurm job it belongs to."),
    click.option("--account", default="", help="Its account, where namespaces go by account."),
    click.option("--image", default="", help="Its image; the site's default when left out."),
    click.option("--cpu", type=CPUS, help="CPUs; the class's when left out."),
    click.option("--memory", default="", help="Memory as --mem takes it; the class's when left out."),
    click.option("--site", "site_file", metavar="FILE", help="The site; else $PENSTOCK_SITE."),
)


def _options(command: Command) -> Command:
    """The words both commands take."""
    return functools.reduce(lambda made, decorate: decorate(made), reversed(WORDS), command)


@click.command()
@_options
def mkyaml(**words: Any) -> None:
    """Print the manifest of an instance: FLAVOUR (gpu1, cpu), CLASS (std), OWNER (a user, or a number).

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
    """Create a running instance: FLAVOUR (gpu1, cpu), CLASS (std), OWNER (a user, or a number).

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
    """The namespace and the pod, or one line that says what is wrong with the call."""
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
        raise errors.UsageError(f"no {noun} is called {name!r}", hint=f"known: {', '.join(table)}")
    return table[name]


def _owner(name: str) -> launches.Owner:
    found = pods.owner_named(name)
    if found.uid == 0:
        raise errors.UsageError("an instance does not run as root", hint="name the user it is for")
    return found


def _memory(text: str) -> int:
    """MiB; 0 where nothing was asked for."""
    if not text:
        return 0
    try:
        amount = sizes.memory(text)
    except Problem as problem:
        raise errors.UsageError(f"--memory: {problem.message}", hint=problem.hint) from problem
    if not 0 < amount <= MOST_MIB:
        raise errors.UsageError(f"--memory: {text} is nothing a node can give", hint="as in 8G")
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
    """What stands around the pod may be there already; a pod of that name may not."""
    for item in objects:
        meta = item["metadata"]
        try:
            await kube.create(kinds.of(item), item, namespace=meta.get("namespace", ""))
        except errors.KubeConflict:
            if item["kind"] == "Pod":
                hint = "choose another --job-id"
                raise errors.UsageError(f"{meta['name']} is there already", hint=hint) from None
