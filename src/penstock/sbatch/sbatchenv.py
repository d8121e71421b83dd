"""SBATCH_* variables, which override the script and are overridden by the command line.

A flag is set if its variable is empty, "yes" or a number other than 0, as in sbatch.
"""

from __future__ import annotations

from collections.abc import Mapping

from penstock.model.jobspec import Provenance
from penstock.sbatch import options
from penstock.sbatch.diagnostics import Place
from penstock.sbatch.getopt import Setting
from penstock.sbatch.values.problem import leading_number


def settings(environment: Mapping[str, str], table: options.Table) -> list[Setting]:
    """Settings in the environment, in the order of the table."""
    if not any(name.startswith(("SBATCH_", "SLURM_HINT", "SLURM_CLUSTERS")) for name in environment):
        return []
    found = []
    for option in table.by_name.values():
        for name in option.environment:
            if name in environment:
                found.extend(_one(option, name, environment[name]))
                break
    return found


def _one(option: options.Option, name: str, text: str) -> list[Setting]:
    value: str | None = text
    if option.argument == "none":
        if text not in ("", "yes") and leading_number(text) == 0:
            return []
        value = None
    elif option.argument == "optional" and not text:
        value = None
    place = Place(origin=f"environment {name}")
    return [Setting(option, value, place, Provenance("environment", name))]
