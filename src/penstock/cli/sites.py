"""`penstock init`, `render`, `apply` and `uninstall`.

Exit codes: 0 done or nothing to do; 1 failed, or with --diff and --dry-run there are differences; 2 usage
error or invalid site file.
"""

from __future__ import annotations

import dataclasses
import difflib
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import click

from penstock import errors, wellknown
from penstock.cli import output
from penstock.cli.options import form_option, site_option
from penstock.install import draft, installers, leftovers, plans, preflight, previews, sitefiles
from penstock.nas import atomic
from penstock.site import loader, schema

MARKS = {
    "add": ("+", "green"),
    "change": ("~", "yellow"),
    "remove": ("-", "red"),
    "restart": ("!", "cyan"),
    "reload": ("!", "cyan"),
}


@click.command()
@site_option
@form_option
@click.option("--only", multiple=True, type=click.Choice(sitefiles.KINDS), help="Only this part; repeatable.")
@click.option("--out", type=click.Path(path_type=Path, file_okay=False), help="Write files to this folder.")
@click.option("--diff", "show_diff", is_flag=True, help="Show differences from the live site.")
def render(site_file: Path, form: str, only: tuple[str, ...], out: Path | None, show_diff: bool) -> None:
    """Show the files and objects rendered from a site file; nothing is changed.

    \b
    Examples:
      penstock render --site site.yaml                 everything
      penstock render --only slurm --only kubernetes   only these parts
      penstock render --diff                           differences from the live site (exit 1 if any)
      penstock render --out /tmp/rendered              as files
    """
    preview = previews.preview(loader.load(site_file), only or sitefiles.KINDS)
    if show_diff:
        differences = list(preview.differences())
        for name, before, after in differences:
            _echo_diff(name, before, after)
        sys.exit(1 if differences else 0)
    if out is not None:
        preview.write_below(out)
        click.echo(f"Wrote {len(preview.files)} files to {out}.")
        return
    texts = {str(file.path): file.content.decode() for file in preview.files}
    if form == "json":
        output.echo_json(texts)
    else:
        for name, text in texts.items():
            click.echo(f"# ---- {name}\n{text}")


def _echo_diff(name: str, before: str, after: str) -> None:
    colours = {"+": "green", "-": "red", "@": "cyan"}
    lines = difflib.unified_diff(
        before.split("\n"), after.split("\n"), f"live {name}", f"site {name}", lineterm="", n=2
    )
    for line in lines:
        click.secho(line, fg=colours.get(line[:1]))


def _plan_options(command: Callable[..., None]) -> Callable[..., None]:
    dry = click.option(
        "--dry-run", is_flag=True, help="Show the plan and change nothing (exit 1 if not empty)."
    )
    yes = click.option("--yes", is_flag=True, help="Do not ask for confirmation.")
    skip = click.option("--no-kubernetes", is_flag=True, help="Do not change Kubernetes.")
    return site_option(form_option(dry(yes(skip(command)))))


@click.command()
@_plan_options
@click.option("--force", is_flag=True, help="Go on even if jobs would be lost or a check fails.")
def apply(site_file: Path, form: str, dry_run: bool, yes: bool, no_kubernetes: bool, force: bool) -> None:
    """Install hooks, settings and Kubernetes objects, atomically.

    Changed files are backed up, the new slurm.conf is tested before it is used, and everything is rolled back
    if slurmctld does not come up. Partitions and settings that the site file does not name are not changed.
    An interrupted call is recovered by the next one.

    \b
    Examples:
      penstock apply --dry-run
      penstock apply --site /etc/penstock/site.yaml --yes
    """
    site = loader.load(site_file)
    checks = preflight.checks(site, site_file, kubernetes=not no_kubernetes)
    with checks.telling():
        installer = installers.Installer(site, kubernetes=not no_kubernetes)
    with installer.store.locked(read_only=dry_run):
        _recover(installer, dry_run=dry_run)
        with checks.telling():
            plan = installer.plan_install()
            checks.faults += installer.problems(plan)
        checks.doubts += [f"{harm}; {harm.remedy}" for harm in plan.harms]
        _agree(plan, form, dry_run=dry_run, yes=yes, checks=checks, force=force)
        installer.install(plan)
    _echo_text(
        form, "Nothing to do." if plan.empty else "Installed. Run `penstock doctor` to check the site."
    )


@click.command()
@_plan_options
def uninstall(site_file: Path, form: str, dry_run: bool, yes: bool, no_kubernetes: bool) -> None:
    """Restore the state before the first `penstock apply`.

    Others' later changes of slurm.conf and of the site's own job_submit.lua are kept.

    \b
    Example:
      penstock uninstall --dry-run
    """
    site = loader.load(site_file)
    installer = installers.Installer(site, kubernetes=not no_kubernetes)
    with installer.store.locked(read_only=dry_run):
        _recover(installer, dry_run=dry_run)
        plan = installer.plan_uninstall()
        _agree(plan, form, dry_run=dry_run, yes=yes)
        installer.uninstall(plan)
    _echo_text(form, _uninstalled(site, installer, plan))


def _uninstalled(site: schema.Site, installer: installers.Installer, plan: plans.Plan) -> str:
    if plan.installed.objects:
        return "Everything is restored except Kubernetes: run `penstock uninstall` to restore that, too."
    if plan.empty:
        return "Nothing was installed."
    left = list(leftovers.remaining(site, installer.cluster))
    if not left:
        return "Everything is restored."
    return "\n  ".join(("slurm.conf, hooks and settings are restored. These remain:", *left))


def _agree(
    plan: plans.Plan,
    form: str,
    *,
    dry_run: bool,
    yes: bool,
    checks: preflight.Checks | None = None,
    force: bool = False,
) -> None:
    """Show the plan and its problems; exit unless it may be carried out."""
    checks = checks or preflight.Checks()
    _show_plan(plan, form, checks.lines)
    checks.require(force=force)
    for line in checks.lines:
        click.echo(f"penstock: {line}", err=True)
    if dry_run:
        sys.exit(0 if plan.empty else 1)
    if not plan.empty and not yes:
        click.confirm("Continue?", abort=True)


def _recover(installer: installers.Installer, *, dry_run: bool) -> None:
    if dry_run and installer.store.journal_path.exists():
        raise errors.InstallError(
            "an earlier call was interrupted; the plan is unknown until that is recovered",
            hint="Run the same command without --dry-run: it recovers first, then asks.",
        )
    message = installer.recover()
    if message:
        click.echo(f"penstock: {message}", err=True)


def _echo_text(form: str, text: str) -> None:
    if form == "table":
        click.echo(text)


def _show_plan(plan: plans.Plan, form: str, problems: Sequence[str]) -> None:
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


@click.command()
@click.option("--site", "site_file", type=click.Path(path_type=Path), default=wellknown.SITE_FILE,
              envvar=wellknown.ENV_SITE, show_default=True, help="Where to write it.")  # fmt: skip
@form_option
@click.option("--yes", is_flag=True, help="Do not ask.")
@click.option("--force", is_flag=True, help="Overwrite an existing site file.")
@click.option("--slurm-conf", envvar=wellknown.ENV_SLURM_CONF, default="/etc/slurm/slurm.conf")
@click.option("--kubeconfig", "config", envvar=wellknown.ENV_KUBECONFIG, default="~/.kube/config")
@click.option("--partition", default=draft.PARTITION, show_default=True, help="Name of the new partition.")
@click.option("--nas", default="", help="Shared folder of users and pods.")
@click.option("--image", default="", help="Default image.")
@click.option("--set", "settings", multiple=True, metavar="SECTION.KEY=VALUE", help="Other keys of the file.")
def init(site_file: Path, form: str, yes: bool, force: bool, **options: Any) -> None:
    """Write a first site file from what Slurm and Kubernetes report.

    \b
    Examples:
      penstock init                                    asks for the rest
      penstock init --yes --nas /nas --image debian:12
      penstock init --yes --set penstockd.libexec=/opt/penstock/libexec
    """
    if site_file.exists() and not force:
        raise errors.UsageError(f"{site_file} already exists", hint="Use --force to overwrite it.")
    if not yes:
        for key, question in (("partition", "New partition"), ("nas", "Shared folder"), ("image", "Image")):
            options[key] = click.prompt(question, default=options[key], show_default=True)
    seen = draft.look(options["slurm_conf"], _admin_kubeconfig(options))
    made = draft.draft(seen, _wishes(options))
    loader.loads(made.text.encode(), name=str(site_file))
    site_file.parent.mkdir(parents=True, exist_ok=True)
    atomic.write(site_file, made.text.encode())
    if form == "json":
        found = {key: value for key, value in dataclasses.asdict(made).items() if key != "text"}
        output.echo_json({"site": str(site_file), **found})
    else:
        _show_draft(made, site_file)


def _wishes(options: dict[str, Any]) -> draft.Wishes:
    overrides: dict[str, dict[str, Any]] = {}
    for setting in options["settings"]:
        key, _, value = setting.partition("=")
        section, _, name = key.partition(".")
        if not name:
            raise errors.UsageError(
                f"invalid --set {setting}", hint="Use SECTION.KEY=VALUE, such as penstockd.socket=/run/p."
            )
        words = value.split(",") if "," in value or name == "restart" else value
        overrides.setdefault(section, {})[name] = int(value) if value.isdigit() else words
    return draft.Wishes(
        partition=options["partition"],
        nas=options["nas"],
        image=options["image"],
        admin_kubeconfig=str(_admin_kubeconfig(options)),
        overrides=overrides,
    )


def _admin_kubeconfig(options: dict[str, Any]) -> Path:
    return Path(options["config"].partition(":")[0]).expanduser()


def _show_draft(made: draft.Draft, site_file: Path) -> None:
    click.echo(f"Wrote {site_file}.")
    for label, names in (
        ("in Slurm and Kubernetes", made.matched),
        ("only in Slurm", made.only_slurm),
        ("only in Kubernetes", made.only_kubernetes),
        ("left out, because slurmds on other hosts cannot reach penstockd", made.left_out),
    ):
        if names:
            click.echo(f"  {label}: {', '.join(names)}")
    for slurm, kubernetes in made.renamed:
        click.secho(
            f"  {slurm} is named {kubernetes} in Kubernetes, but names must be equal: "
            f"set NodeName={kubernetes} NodeHostname={slurm} in slurm.conf",
            fg="yellow",
        )
    for remark in made.remarks:
        click.secho(f"  {remark}", fg="yellow")
    click.echo("Review it, then run: penstock apply --dry-run")
