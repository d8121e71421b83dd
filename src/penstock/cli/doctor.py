"""`penstock doctor`: does the live site agree with its site file?"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path

import click

from penstock.cli import output
from penstock.cli.options import form_option, site_option
from penstock.doctor import all_checks, checks
from penstock.doctor.live import Live
from penstock.site import loader

COLOURS = {"ok": "green", "skipped": "dim", "warning": "yellow", "unknown": "magenta", "failed": "red"}
EXIT_CODES = {"ok": 0, "skipped": 0, "warning": 1, "unknown": 3, "failed": 3}


@click.command()
@site_option
@form_option
@click.option("--fix", is_flag=True, help="Fix what can be fixed without risk.")
@click.option("--probe", is_flag=True, help="Also start a small pod, to check image and NAS.")
@click.option("--only", multiple=True, metavar="CHECK", help="Run only this check; repeatable.")
@click.option("--all", "show_all", is_flag=True, help="Also show checks that are ok.")
def doctor(site_file: Path, form: str, fix: bool, probe: bool, only: tuple[str, ...], show_all: bool) -> None:
    """Check the live site against its site file.

    \b
    Examples:
      penstock doctor                        show problems and what to do
      penstock doctor --probe                also start a pod
      penstock doctor --fix                  fix files, modes and folders
      penstock doctor --format json          for monitoring; exit code by the worst finding

    Exit codes: 0 ok, 1 warnings, 2 usage error or invalid site file, 3 failed or unknown.
    """
    wanted = all_checks.chosen(only, probe=probe)
    report = all_checks.report(wanted, Live(loader.load(site_file)), fix=fix)
    output.answer(report, form, lambda found: _show(found.checks, show_all=show_all))
    sys.exit(EXIT_CODES[report.status])


def _show(results: Sequence[checks.Result], *, show_all: bool) -> None:
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
