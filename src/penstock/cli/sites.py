"""`penstock init`, `render`, `apply` and `uninstall`: a site file and what comes of it.

Exit codes: 0 done, or nothing to do; 1 failed, or with --diff and --dry-run there are differences; 2 a wrong
call or a wrong site file.
"""

from __future__ import annotations

import asyncio
import difflib
import socket
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import click

from penstock import errors, wellknown
from penstock.cli import output
from penstock.cli.options import form_option, site_option
from penstock.install import (
    access,
    applying,
    drafting,
    facts,
    leftovers,
    planning,
    preflight,
    reach,
    rendering,
)
from penstock.kube import incluster, kubeconfig
from penstock.nas import atomic
from penstock.render import yamltext
from penstock.site import loading, objects, schema
from penstock.slurm import describing

MARKS = {
    "add": ("+", "green"),
    "change": ("~", "yellow"),
    "remove": ("-", "red"),
    "restart": ("!", "cyan"),
    "reload": ("!", "cyan"),
}


# -- render --------------------------------------------------------------------------------------------------
@click.command()
@site_option
@form_option
@click.option("--only", multiple=True, type=click.Choice(rendering.KINDS), help="Only this part; repeatable.")
@click.option("--out", type=click.Path(path_type=Path, file_okay=False), help="Write below this folder.")
@click.option("--diff", "show_diff", is_flag=True, help="Show what is different from what is live.")
def render(site_file: Path, form: str, only: tuple[str, ...], out: Path | None, show_diff: bool) -> None:
    """Show every file and object that a site file stands for; nothing is changed.

    \b
    Examples:
      penstock render --site site.yaml                 everything
      penstock render --only slurm --only kubernetes   a part of it
      penstock render --diff                           what differs from the live site (exit 1 if anything)
      penstock render --out /tmp/rendered              as files
    """
    site = loading.load(site_file)
    wanted = only or rendering.KINDS
    known = facts.gather(site, site_lua=rendering.has_site_lua(site))
    files = [file for file in rendering.all_files(site, known) if file.kind in wanted]
    manifests = objects.all_objects(site, known.groups) if "kubernetes" in wanted else ()
    if show_diff:
        texts = {file.path: file.content.decode() for file in files}
        if "slurm" in wanted:
            texts |= {edit.path: rendering.edited(edit) for edit in rendering.all_edits(site, known)}
        sys.exit(1 if _show_differences(site, texts, manifests) else 0)
    if manifests:
        text = yamltext.documents(manifests)
        files.append(rendering.File(path=Path("kubernetes.yaml"), content=text.encode(), kind="kubernetes"))
    named = {str(file.path): file.content.decode() for file in files}
    if out is not None:
        _write_below(out, files)
    elif form == "json":
        output.echo_json(named)
    else:
        for name, text in named.items():
            click.echo(f"# ---- {name}\n{text}")


def _write_below(top: Path, files: list[rendering.File]) -> None:
    """Closed as they are in place, for one has a password; a link in the folder leads nobody out of it."""
    try:
        top.mkdir(parents=True, exist_ok=True)
        for file in files:
            path = top / str(file.path).lstrip("/")
            _make_folders(top, path.parent)
            atomic.write(path, file.content, mode=file.mode)
    except OSError as error:
        raise errors.UsageError(f"--out {top}: cannot write {error.filename}: {error.strerror}") from error
    click.echo(f"{len(files)} files are in {top}.")


def _make_folders(top: Path, folder: Path) -> None:
    for parent in (*reversed(folder.parents), folder):
        if parent == top or not parent.is_relative_to(top):
            continue
        if parent.is_symlink():
            raise errors.UsageError(f"--out {top}: {parent} is a link", hint="Take an empty folder.")
        parent.mkdir(exist_ok=True)


def _show_differences(site: schema.Site, texts: Mapping[Path, str], manifests: Any) -> bool:
    found = False
    for path, text in texts.items():
        live = path.read_text(encoding="utf-8", errors="surrogateescape") if path.exists() else ""
        if live != text:
            found = True
            _echo_diff(str(path), _printable(live), _printable(text))
    cluster = access.admin(site) if manifests else None
    for manifest in manifests:
        live_object = cluster.get(manifest) if cluster else None
        if live_object is None or not planning.contains(live_object, manifest):
            found = True
            before = yamltext.document(_same_keys(live_object or {}, manifest))
            _echo_diff(access.path_of(manifest), before, yamltext.document(manifest))
    return found


def _printable(text: str) -> str:
    """A file of the site's may hold bytes that are no text."""
    return text.encode(errors="surrogateescape").decode(errors="replace")


def _same_keys(live: Any, wanted: Any) -> Any:
    """Of the live object only what the manifest speaks of."""
    if isinstance(wanted, dict) and isinstance(live, dict):
        return {key: _same_keys(live[key], value) for key, value in wanted.items() if key in live}
    return live


def _echo_diff(name: str, before: str, after: str) -> None:
    colours = {"+": "green", "-": "red", "@": "cyan"}
    lines = difflib.unified_diff(
        before.split("\n"), after.split("\n"), f"live {name}", f"site {name}", lineterm="", n=2
    )
    for line in lines:
        click.secho(line, fg=colours.get(line[:1]))


# -- apply ---------------------------------------------------------------------------------------------------
@click.command()
@site_option
@form_option
@click.option("--dry-run", is_flag=True, help="Show the plan and change nothing (exit 1 if there is any).")
@click.option("--yes", is_flag=True, help="Do not ask.")
@click.option("--no-kubernetes", is_flag=True, help="Leave Kubernetes alone.")
@click.option("--force", is_flag=True, help="Also if jobs would be lost or a check fails.")
def apply(site_file: Path, form: str, dry_run: bool, yes: bool, no_kubernetes: bool, force: bool) -> None:
    """Install hooks, settings and Kubernetes objects; all or nothing.

    Files that change are kept, the new slurm.conf is tried before it is used, and when slurmctld does not
    come up everything goes back. Partitions and settings that the site file does not name are left alone.
    A call that was killed is put right by the next one.

    \b
    Examples:
      penstock apply --dry-run
      penstock apply --site /etc/penstock/site.yaml --yes
    """
    site = loading.load(site_file)
    checks = preflight.checks(site, site_file, kubernetes=not no_kubernetes)
    with checks.telling():
        installer = applying.Installer(site, kubernetes=not no_kubernetes)
    with installer.store.locked(read_only=dry_run):
        _recover(installer, dry_run=dry_run)
        with checks.telling():
            plan = installer.plan_install()
            checks.faults += installer.problems(plan)
        checks.doubts += [f"{harm}; {harm.remedy}" for harm in plan.harms]
        _agree(plan, form, dry_run=dry_run, yes=yes, checks=checks, force=force)
        installer.install(plan)
    _say(form, "Nothing to do." if plan.empty else "Installed. `penstock doctor` says whether all is well.")


@click.command()
@site_option
@form_option
@click.option("--dry-run", is_flag=True, help="Show the plan and change nothing (exit 1 if there is any).")
@click.option("--yes", is_flag=True, help="Do not ask.")
@click.option("--no-kubernetes", is_flag=True, help="Leave Kubernetes alone.")
def uninstall(site_file: Path, form: str, dry_run: bool, yes: bool, no_kubernetes: bool) -> None:
    """Return to the state before the first `penstock apply`.

    What somebody else has changed since in slurm.conf or in the site's own job_submit.lua stays.

    \b
    Example:
      penstock uninstall --dry-run
    """
    site = loading.load(site_file)
    installer = applying.Installer(site, kubernetes=not no_kubernetes)
    with installer.store.locked(read_only=dry_run):
        _recover(installer, dry_run=dry_run)
        plan = installer.plan_uninstall()
        _agree(plan, form, dry_run=dry_run, yes=yes)
        installer.uninstall(plan)
    _say(form, _taken_back(site, installer, plan))


def _taken_back(site: schema.Site, installer: applying.Installer, plan: planning.Plan) -> str:
    if plan.installed.objects:
        return "Everything is as it was before but for Kubernetes: `penstock uninstall` takes that back, too."
    if plan.empty:
        return "Nothing was installed."
    left = list(leftovers.remaining(site, installer.cluster))
    if not left:
        return "Everything is as it was before."
    return "\n  ".join(
        ("slurm.conf, hooks and settings are as they were before. What is still there:", *left)
    )


def _agree(
    plan: planning.Plan,
    form: str,
    *,
    dry_run: bool,
    yes: bool,
    checks: preflight.Checks | None = None,
    force: bool = False,
) -> None:
    """Show what is to be done and what speaks against it, and go on only if it may be."""
    checks = checks or preflight.Checks()
    _show_plan(plan, form, checks.lines)
    checks.require(force=force)
    for line in checks.lines:
        click.echo(f"penstock: {line}", err=True)
    if dry_run:
        sys.exit(0 if plan.empty else 1)
    if not plan.empty and not yes:
        click.confirm("Do this?", abort=True)


def _recover(installer: applying.Installer, *, dry_run: bool) -> None:
    if dry_run and installer.store.journal_path.exists():
        raise errors.InstallError(
            "an earlier call was cut short: what is to be done is known once that has been put right",
            hint="The same call without --dry-run does that first, and then asks.",
        )
    said = installer.recover()
    if said:
        click.echo(f"penstock: {said}", err=True)


def _say(form: str, text: str) -> None:
    if form == "table":
        click.echo(text)


def _show_plan(plan: planning.Plan, form: str, problems: Sequence[str]) -> None:
    lines = list(plan.lines())
    if form == "json":
        rows = [{"action": word, "what": what, "name": name} for word, what, name in lines]
        output.echo_json({"plan": rows, "kept": plan.kept, "problems": problems})
        return
    for word, what, name in lines:
        mark, colour = MARKS[word]
        click.secho(f"  {mark} {word:<8}{what:<8}{name}", fg=colour)
    for kept in plan.kept:
        click.echo(f"    keep    {kept}")


# -- init ----------------------------------------------------------------------------------------------------
@click.command()
@click.option("--site", "site_file", type=click.Path(path_type=Path), default=wellknown.SITE_FILE,
              envvar=wellknown.ENV_SITE, show_default=True, help="Where to write it.")  # fmt: skip
@form_option
@click.option("--yes", is_flag=True, help="Ask nothing.")
@click.option("--force", is_flag=True, help="Write over a site file that is there.")
@click.option("--slurm-conf", envvar=wellknown.ENV_SLURM_CONF, default="/etc/slurm/slurm.conf")
@click.option("--kubeconfig", "config", envvar=wellknown.ENV_KUBECONFIG, default="~/.kube/config")
@click.option("--partition", default=drafting.PARTITION, show_default=True, help="Name of the new partition.")
@click.option("--nas", default="", help="Shared folder that users and pods see.")
@click.option("--image", default="", help="Image of scripts that name none.")
@click.option("--set", "settings", multiple=True, metavar="SECTION.KEY=VALUE", help="More of the file.")
def init(site_file: Path, form: str, yes: bool, force: bool, **options: Any) -> None:
    """Write a first site file by looking at Slurm and Kubernetes.

    \b
    Examples:
      penstock init                                    asks what it cannot see
      penstock init --yes --nas /nas --image debian:12
      penstock init --yes --set penstockd.libexec=/opt/penstock/libexec
    """
    if site_file.exists() and not force:
        raise errors.UsageError(f"{site_file} is there already", hint="--force writes over it.")
    if not yes:
        for key, question in (("partition", "New partition"), ("nas", "Shared folder"), ("image", "Image")):
            options[key] = click.prompt(question, default=options[key], show_default=True)
    made = drafting.draft(_see(options["slurm_conf"], options["config"]), _wishes(options))
    loading.loads(made.text.encode(), name=str(site_file))
    site_file.parent.mkdir(parents=True, exist_ok=True)
    atomic.write(site_file, made.text.encode())
    if form == "json":
        output.echo_json({"site": str(site_file), **_matches(made)})
    else:
        _show_draft(made, site_file)


def _see(slurm_conf: str, config: str) -> drafting.Seen:
    path = Path(config.partition(":")[0]).expanduser()
    is_pod = not path.exists() and incluster.is_pod()
    cluster = access.Cluster(incluster.load() if is_pod else kubeconfig.load(path))
    settings = asyncio.run(describing.configuration(slurm_conf))
    nodes = asyncio.run(describing.nodes(slurm_conf))
    return drafting.Seen(
        settings=settings | {"SLURM_CONF": slurm_conf},
        nodes=nodes,
        partitions=[each.name for each in asyncio.run(describing.partitions(slurm_conf))],
        members=[access.member(node) for node in cluster.nodes()],
        host=socket.gethostname(),
        elsewhere=frozenset(node.name for node in nodes if not reach.is_here(node.address or node.name)),
    )


def _wishes(options: dict[str, Any]) -> drafting.Wishes:
    overrides: dict[str, dict[str, Any]] = {}
    for setting in options["settings"]:
        key, _, value = setting.partition("=")
        section, _, name = key.partition(".")
        if not name:
            raise errors.UsageError(
                f"--set {setting}", hint="Write SECTION.KEY=VALUE, as penstockd.socket=/run/p."
            )
        words = value.split(",") if "," in value or name == "restart" else value
        overrides.setdefault(section, {})[name] = int(value) if value.isdigit() else words
    return drafting.Wishes(
        partition=options["partition"],
        nas=options["nas"],
        image=options["image"],
        admin_kubeconfig=str(Path(options["config"].partition(":")[0]).expanduser()),
        overrides=overrides,
    )


def _matches(made: drafting.Draft) -> dict[str, Any]:
    return {
        "matched": made.matched,
        "only_slurm": made.only_slurm,
        "only_kubernetes": made.only_kubernetes,
        "left_out": made.left_out,
        "renamed": made.renamed,
        "remarks": made.remarks,
    }


def _show_draft(made: drafting.Draft, site_file: Path) -> None:
    click.echo(f"Wrote {site_file}.")
    for label, names in (
        ("known to both", made.matched),
        ("only in Slurm", made.only_slurm),
        ("only in Kubernetes", made.only_kubernetes),
        ("left out, as slurmds on other hosts cannot reach penstockd", made.left_out),
    ):
        if names:
            click.echo(f"  {label}: {', '.join(names)}")
    for slurm, kubernetes in made.renamed:
        click.secho(
            f"  {slurm} is called {kubernetes} in Kubernetes, and the names must be equal: "
            f"write NodeName={kubernetes} NodeHostname={slurm} into slurm.conf",
            fg="yellow",
        )
    for remark in made.remarks:
        click.secho(f"  {remark}", fg="yellow")
    click.echo("Look at it, then: penstock apply --dry-run")
