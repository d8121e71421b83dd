"""Options shared by several commands."""

from __future__ import annotations

from pathlib import Path

import click

from penstock import wellknown
from penstock.views import installation

site_option = click.option(
    "--site",
    "site_file",
    type=click.Path(path_type=Path),
    envvar=wellknown.ENV_SITE,
    default=wellknown.SITE_FILE,
    show_default=True,
    help="Site file; also $PENSTOCK_SITE.",
)
form_option = click.option(
    "--format", "form", type=click.Choice(["table", "json"]), default="table", show_default=True
)
results_option = click.option(
    "--results",
    "folder",
    default=installation.results,
    type=click.Path(path_type=Path),
    help=f"Results folder; default ${wellknown.ENV_RESULTS}, else the site's.",
)
