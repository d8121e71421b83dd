"""cli_filter.lua of a site: the diagnostics of `penstock validate` at `sbatch`."""

from __future__ import annotations

from collections.abc import Sequence
from importlib import resources

from penstock import errors

_UNSAFE = '"\\\n'


def render_cli_filter(
    *, penstock: str, bridged_partitions: Sequence[str], default_partition: str, site_file: str = ""
) -> str:
    """The plugin's text. Installed next to slurm.conf, which needs CliFilterPlugins=lua."""
    text = resources.files("penstock.hooks").joinpath("cli_filter.lua").read_text(encoding="utf-8")
    values = {
        "@PENSTOCK@": penstock,
        "@SITE@": site_file,
        "@DEFAULT_PARTITION@": default_partition,
        "@BRIDGED@": ", ".join(f'["{name}"] = true' for name in bridged_partitions),
    }
    for value in (penstock, site_file, default_partition, *bridged_partitions):
        if any(char in value for char in _UNSAFE):
            raise errors.UsageError(
                f"{value!r} cannot be used in cli_filter.lua", hint="use plain names and paths"
            )
    for mark, value in values.items():
        text = text.replace(mark, value)
    return text
