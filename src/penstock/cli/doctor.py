"""`penstock doctor`: does the live site agree with its site file?

Exit codes: 0 all well; 1 warnings; 3 something is wrong or cannot be known; 2 a wrong call or site file.
"""

from __future__ import annotations

import sys
from pathlib import Path

import click
import msgspec

from penstock.cli import output
from penstock.cli.sites import form_option, site_option
from penstock.doctor import all_checks, checks
from penstock.doctor.live import Live
from penstock.errors import UsageError
from penstock.site import loading
from penstock.views import jobs as documents

COLOURS = {"ok": "green", "skipped": "dim", "warning": "yellow", "unknown": "magenta", "failed": "red"}
EXIT_CODES = {"ok": 0, "skipped": 0, "warning": 1, "unknown": 3, "failed": 3}


class Report(msgspec.Struct, frozen=True, kw_only=True):
    """What --format json prints."""

    version: int = documents.VERSION
    status: checks.Status
    checks: tuple[checks.Result, ...]


@click.command()
@site_option
@form_option
@click.option("--fix", is_flag=True, help="Put right what can be put right without risk.")
@click.option("--probe", is_flag=True, help="Also start a small pod: image, NAS.")
@click.option("--only", multiple=True, metavar="CHECK", help="Only this check; repeatable.")
@click.option("--all", "show_all", is_flag=True, help="Show what is well, too.")
def doctor(site_file: Path, form: str, fix: bool, probe: bool, only: tuple[str, ...], show_all: bool) -> None:
    """Check the live site against its site file.

    \b
    Examples:
      penstock doctor                        what is wrong, and what to do
      penstock doctor --probe                with a pod that is really started
      penstock doctor --fix                  files, modes and folders are put right
      penstock doctor --format json          for monitoring; exit code by the worst finding

    Exit codes: 0 all well, 1 warnings, 2 wrong call or site file, 3 something is wrong or cannot be known.
    """
    chosen = _chosen(only, probe)
    results = list(checks.run(chosen, Live(loading.load(site_file)), fix=fix))
    worst = checks.worst(results)
    if form == "json":
        documents.echo(Report(status=worst, checks=tuple(results)))
    else:
        _show(results, show_all=show_all)
    sys.exit(EXIT_CODES[worst])


def _chosen(only: tuple[str, ...], probe: bool) -> list[checks.Check]:
    known = {check.name: check for check in (*all_checks.ALWAYS, *all_checks.PROBES)}
    unknown = [name for name in only if name not in known]
    if unknown:
        raise UsageError(f"there is no check {', '.join(unknown)}", hint=f"There are: {', '.join(known)}.")
    if only:
        return [known[name] for name in only]
    return [*all_checks.ALWAYS, *(all_checks.PROBES if probe else ())]


def _show(results: list[checks.Result], *, show_all: bool) -> None:
    shown = output.columns("check", "", "what was found", "what to do")
    for result in results:
        if result.see or (result.status in ("ok", "skipped") and not (show_all or result.fixed)):
            continue
        word = "fixed" if result.fixed else result.status
        message = result.message or result.title
        shown.add_row(result.name, output.styled(word, COLOURS[result.status]), message, result.remedy)
    for see in dict.fromkeys(result.see for result in results if result.see):
        names = [result.name for result in results if result.see == see]
        kind = output.styled("unknown", COLOURS["unknown"])
        shown.add_row(f"{len(names)} more", kind, f"not checked: {', '.join(names)}", f"see {see}")
    screen = output.screen()
    if shown.row_count:
        screen.print(shown)
    counted = {status: sum(each.status == status for each in results) for status in checks.ORDER}
    words = ", ".join(f"{count} {status}" for status, count in counted.items() if count)
    screen.print(f"{len({each.name for each in results})} checks: {words}.")
