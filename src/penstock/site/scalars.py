"""Scalar types of a site file.

Their patterns are part of the JSON Schema; FORMS describes them for error messages and the reference.
"""

from __future__ import annotations

from typing import Annotated, Any, Final

from pydantic import BeforeValidator, Field

from penstock.model import resources

_NAME = r"^[A-Za-z0-9][A-Za-z0-9_.-]{0,62}$"
_DNS = r"^[a-z0-9]([-a-z0-9.]{0,61}[a-z0-9])?$"
_PATH = r"^/[A-Za-z0-9._+@%-]+(/[A-Za-z0-9._+@%-]+)*$"
_FOLDER = r"^[A-Za-z0-9][A-Za-z0-9._-]*(/[A-Za-z0-9][A-Za-z0-9._-]*)*$"
_TIME = r"^(UNLIMITED|[0-9]+(:[0-9]{1,2}){0,2}|[0-9]+-[0-9]{1,2}(:[0-9]{1,2}){0,2})$"
_MEMORY = r"^[0-9]+(\.[0-9]+)?(Mi|Gi|Ti)$"
_IMAGE = r"^[a-z0-9][A-Za-z0-9._:/@-]*$"
_HOSTS = r"^[A-Za-z0-9][A-Za-z0-9_.,\[\]-]*$"
_GRES_TYPE = r"^[a-z0-9][a-z0-9_.-]{0,30}$"
_RESOURCE = r"^[a-z0-9]([-a-z0-9.]*[a-z0-9])?/[A-Za-z0-9]([-A-Za-z0-9_.]*[A-Za-z0-9])?$"
_LABEL_VALUE = r"^([A-Za-z0-9]([-A-Za-z0-9_.]{0,61}[A-Za-z0-9])?)?$"
_KEY_OR_PAIR = r"^[A-Za-z0-9]([-A-Za-z0-9_./]*[A-Za-z0-9])?(=[-A-Za-z0-9_.]{0,63})?$"
_ADDRESS = r"^[A-Za-z0-9][A-Za-z0-9.:-]*$"
_PATTERN = r"^[a-z0-9{][-a-z0-9{}]*$"
_RELEASE = r"^[0-9]{2}\.[0-9]{2}$"
_WORD = r"^[A-Za-z0-9][A-Za-z0-9_./:=,+-]*$"

FORMS: Final = {
    _NAME: "letters, digits, `_`, `.` and `-`, at most 63",
    _DNS: "small letters, digits, `-` and `.`, at most 63",
    _PATH: "an absolute path of plain letters, digits and . _ + @ % -",
    _FOLDER: "a folder below the NAS's path, such as slurm-jobs",
    _TIME: "minutes, minutes:seconds, hours:minutes:seconds, days-hours[:minutes[:seconds]] or UNLIMITED",
    _MEMORY: "a number with Mi, Gi or Ti, such as 32Gi",
    _IMAGE: "an image name, such as registry.example.org/team/app:1.2",
    _HOSTS: "a host list, such as n[1-4],login",
    _GRES_TYPE: "a GRES type in small letters, such as a100 or 1g.10gb",
    _RESOURCE: "an extended resource, such as nvidia.com/gpu",
    _LABEL_VALUE: "a label's value: letters, digits, `-`, `_` and `.`, at most 63",
    _KEY_OR_PAIR: "a key, or a key with its value, such as disk=ssd",
    _ADDRESS: "a host name or an address",
    _PATTERN: "small letters, digits and dashes around {user}, {uid}, {account} or {cluster}",
    _RELEASE: 'a release in quotes, such as "22.05"',
    _WORD: "a plain word",
}


def _as_text(value: Any) -> Any:
    """A number where a time is expected is minutes, as in Slurm."""
    return str(value) if isinstance(value, int) and not isinstance(value, bool) else value


Name = Annotated[str, Field(pattern=_NAME)]
DnsName = Annotated[str, Field(pattern=_DNS)]
Path = Annotated[str, Field(pattern=_PATH)]
Folder = Annotated[str, Field(pattern=_FOLDER)]
Time = Annotated[str, BeforeValidator(_as_text, json_schema_input_type=str | int), Field(pattern=_TIME)]
Memory = Annotated[str, Field(pattern=_MEMORY)]
Image = Annotated[str, Field(pattern=_IMAGE)]
Hosts = Annotated[str, Field(pattern=_HOSTS)]
GresType = Annotated[str, Field(pattern=_GRES_TYPE)]
Resource = Annotated[str, Field(pattern=_RESOURCE)]
KeyOrPair = Annotated[str, Field(pattern=_KEY_OR_PAIR)]
LabelValue = Annotated[str, Field(pattern=_LABEL_VALUE)]
Address = Annotated[str, Field(pattern=_ADDRESS)]
Pattern = Annotated[str, Field(pattern=_PATTERN)]
Release = Annotated[str, Field(pattern=_RELEASE)]
Word = Annotated[str, Field(pattern=_WORD)]
Port = Annotated[int, Field(ge=1, le=65535)]
Count = Annotated[int, Field(ge=0, le=1_000_000)]
Positive = Annotated[int, Field(ge=1, le=1_000_000)]
Seconds = Annotated[int, Field(ge=1, le=86400)]


def mebibytes(memory: str) -> int:
    """A Memory scalar in Slurm's unit."""
    return int(resources.quantity(memory) // 2**20)
