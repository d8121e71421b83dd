"""`penstock doctor`: does the live site agree with its site file?

Exit codes: 0 all well; 1 warnings; 3 something is wrong or cannot be known; 2 a wrong call or site file.
"""

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
