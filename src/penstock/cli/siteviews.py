"""Reading the site for a check: JSON, TOML or YAML by the file's ending."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import msgspec

from penstock import errors
from penstock.model.siteview import SiteView


def load(name: str) -> SiteView:
    """The site, or one line that says what is wrong with its file."""
    path = Path(name)
    try:
        data = path.read_bytes()
    except OSError as error:
        raise errors.UsageError(f"cannot read the site file {name}: {error.strerror}") from error
    try:
        return msgspec.convert(_parse(data, path.suffix), SiteView)
    except msgspec.DecodeError as error:
        raise errors.UsageError(
            f"{name}: {error}", hint="see docs/compatibility.md, section Site file"
        ) from error


def _parse(data: bytes, suffix: str) -> Any:
    if suffix == ".toml":
        return msgspec.toml.decode(data)
    if suffix in (".yaml", ".yml"):
        try:
            return msgspec.yaml.decode(data)
        except ImportError as error:
            raise errors.UsageError(
                "YAML needs PyYAML", hint="write the site file as JSON or TOML"
            ) from error
    return msgspec.json.decode(data)
