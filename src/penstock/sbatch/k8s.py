"""#K8S_ directives: what a script requests for its pods.

`#K8S_NAME=value`, one per line, before the first command, without blanks around the equals sign:
job_submit.lua accepts nothing else. The value is the rest of the line, without trailing blanks, a comment
after ` #`, and enclosing quotes. MOUNT, ENV, OUTPUTS, NODE_SELECTOR, TOLERATION and PULL_SECRET may be
repeated; repeating another one is an error, because it is ambiguous.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any, Final

from penstock import wellknown
from penstock.model.jobspec import Mount, PodSpec, Provenance, Toleration
from penstock.sbatch import images, lexer, nearest
from penstock.sbatch.diagnostics import Place, Report
from penstock.sbatch.patterns import Pattern
from penstock.sbatch.source import K8S_MAGIC, Line
from penstock.sbatch.values import sizes
from penstock.sbatch.values.problem import Problem

_DIRECTIVE = Pattern(r"#K8S_([A-Za-z0-9_\-]*)([ \t]*[=:]?[ \t]*)(.*)", re.DOTALL)
_ENV_NAME = Pattern(r"[A-Za-z_][A-Za-z0-9_]*")
_DNS_NAME = Pattern(r"[a-z0-9](?:[a-z0-9.-]{0,251}[a-z0-9])?")
_LABEL_KEY = Pattern(
    r"(?:[a-z0-9](?:[a-z0-9.-]{0,251}[a-z0-9])?/)?[A-Za-z0-9](?:[A-Za-z0-9_.-]{0,61}[A-Za-z0-9])?"
)
_LABEL_VALUE = Pattern(r"(?:[A-Za-z0-9](?:[A-Za-z0-9_.-]{0,61}[A-Za-z0-9])?)?")
_EFFECTS: Final = ("NoSchedule", "PreferNoSchedule", "NoExecute")
OWN_ENTRYPOINT: Final = "@entrypoint"
"""#K8S_COMMAND=@entrypoint runs the image's own entrypoint instead of the script."""
_RESERVED: Final = ("SLURM_", "SBATCH_", "PENSTOCK_")


def _image(value: str) -> str:
    images.parse(value)
    return value


def _absolute(value: str) -> str:
    if not value.startswith("/") or "/../" in f"{value}/":
        raise Problem(f"{value!r} is not an absolute path", "begin with / and leave out ..")
    return value


def _inside(value: str) -> str:
    if not value or (value.startswith("/") and "/../" in f"{value}/"):
        raise Problem(f"{value!r} is not a valid path")
    return value


def _command(value: str) -> tuple[str, ...]:
    import shlex  # here, because few scripts need it and it takes a millisecond

    try:
        return tuple(shlex.split(value))
    except ValueError as error:
        raise Problem(f"{value!r}: {str(error).lower()}", "quote it as in a shell") from error


def _outputs(value: str) -> str:
    if not value or value.startswith("/") or ".." in value.split("/"):
        raise Problem(f"{value!r} is not a valid pattern inside the working directory", "as in results/*.csv")
    return value


def _mount(value: str) -> Mount:
    parts = value.split(":")
    if len(parts) == 1:
        parts.append(parts[0])
    if len(parts) > 3 or (len(parts) == 3 and parts[2] not in ("ro", "rw")):
        raise Problem(f"{value!r} is not a valid mount", "source[:target[:ro]]")
    return Mount(_absolute(parts[0]), _absolute(parts[1]), len(parts) == 3 and parts[2] == "ro")


def _environment(value: str) -> tuple[str, str]:
    name, equals, text = value.partition("=")
    if not equals or not _ENV_NAME.fullmatch(name):
        raise Problem(f"{value!r} is not a valid variable", "NAME=value")
    if name.startswith(_RESERVED):
        raise Problem(f"{name} is set by Slurm or Penstock", "choose another name")
    return name, text


def _secret(value: str) -> str:
    if not _DNS_NAME.fullmatch(value):
        raise Problem(f"{value!r} is not a valid name in Kubernetes", "lower case letters, digits, - and .")
    return value


def _priority_class(value: str) -> str:
    """Refuse system classes: their pods are never evicted, and kubelets evict others for them."""
    if value.startswith("system-"):
        raise Problem(f"{value!r} is not for jobs", "use a PriorityClass of the site")
    return _secret(value)


def _shm(value: str) -> int:
    amount = sizes.memory(re.sub(r"(?i)ib?$", "", value) if re.search(r"(?i)[kmgt]ib?$", value) else value)
    if amount <= 0:
        raise Problem("the size is 0")
    return amount


def _selector(value: str) -> tuple[str, str]:
    key, equals, text = value.partition("=")
    if not equals or not _LABEL_KEY.fullmatch(key) or not _LABEL_VALUE.fullmatch(text):
        raise Problem(f"{value!r} is not a valid label", "key=value, as in disk=ssd")
    return key, text


def _toleration(value: str) -> Toleration:
    key, _, effect = value.partition(":")
    name, equals, text = key.partition("=")
    if effect and effect not in _EFFECTS:
        raise Problem(f"{effect!r} is not a valid taint effect", f"one of {', '.join(_EFFECTS)}")
    if not _LABEL_KEY.fullmatch(name) or not _LABEL_VALUE.fullmatch(text):
        raise Problem(f"{value!r} is not a valid toleration", "key[=value][:effect]")
    return Toleration(name, "Equal" if equals else "Exists", text, effect)


SINGLE: Final[dict[str, tuple[str, Callable[[str], Any]]]] = {
    "IMAGE": ("image", _image),
    "WORKDIR": ("workdir", _absolute),
    "SCRIPT": ("script", _inside),
    "COMMAND": ("command", _command),
    "SHM_SIZE": ("shm_mib", _shm),
    "PRIORITY_CLASS": ("priority_class", _priority_class),
}
SEVERAL: Final[dict[str, tuple[str, Callable[[str], Any]]]] = {
    "OUTPUTS": ("outputs", _outputs),
    "MOUNT": ("mounts", _mount),
    "ENV": ("environment", _environment),
    "PULL_SECRET": ("pull_secrets", _secret),
    "NODE_SELECTOR": ("node_selector", _selector),
    "TOLERATION": ("tolerations", _toleration),
}
NAMES: Final = (*SINGLE, *SEVERAL)
MAPPINGS: Final = ("environment", "node_selector")


def parse(lines: tuple[Line, ...], report: Report) -> tuple[PodSpec, dict[str, Provenance]]:
    """Parse all directives; returns the PodSpec and the provenance of its fields."""
    fields: dict[str, Any] = {}
    provenance: dict[str, Provenance] = {}
    variables: list[tuple[str, Place]] = []
    for line in lines:
        read = _read(line, report)
        if read is None:
            continue
        name, value, place = read
        field, grammar = SINGLE.get(name) or SEVERAL[name]
        if name in SINGLE and field in fields:
            message = f"#K8S_{name} is already on line {provenance[field].line}"
            report.error(Place(line.number, 1), "duplicate-directive", message)
            continue
        try:
            _store(fields, name, field, grammar(value))
        except Problem as problem:
            report.error(place, "invalid-k8s-value", f"#K8S_{name}: {problem.message}", problem.hint)
            continue
        provenance[field] = Provenance("script", f"#K8S_{name}", line.number, place.column)
        if name == "ENV":
            variables.append((value.partition("=")[0], place))
    for name, place in variables if not fields.get("own_entrypoint") else ():
        if name in wellknown.SHELLS_OWN:  # setting it would end the shell
            message = f"#K8S_ENV: {name} is reserved for the shell that runs the script"
            report.error(place, "invalid-k8s-value", message, "choose another name")
    return PodSpec(**_frozen(fields)), {f"pod.{key}": value for key, value in provenance.items()}


def _store(fields: dict[str, Any], name: str, field: str, value: Any) -> None:
    if name in SINGLE:
        fields[field] = value
        if name == "COMMAND" and value == (OWN_ENTRYPOINT,):
            fields.update(command=(), own_entrypoint=True)
    else:
        fields.setdefault(field, []).append(value)


def _frozen(fields: dict[str, Any]) -> dict[str, Any]:
    return {
        key: dict(value) if key in MAPPINGS else tuple(value) if isinstance(value, list) else value
        for key, value in fields.items()
    }


def _read(line: Line, report: Report) -> tuple[str, str, Place] | None:
    match = _DIRECTIVE.match(line.text)
    if match is None:
        return None
    written, sign, rest = match.groups()
    rest = rest.rstrip(" \t\r")
    name = written.upper().replace("-", "_")
    start = Place(line.number, 1)
    if name not in NAMES:
        _unknown(written, report, start)
        return None
    if written != name:
        report.error(start, "unknown-directive", f"#K8S_{written} is not known", f"did you mean #K8S_{name}?")
        return None
    place = Place(line.number, match.start(3) + 1)
    if sign != "=" or not rest or rest[0] in lexer.BLANK:
        hint = f"write #K8S_{name}={rest.strip(lexer.BLANK) or 'value'}"
        report.error(place, "invalid-k8s-value", f"#K8S_{name} is not of the form #K8S_NAME=value", hint)
        return None
    value = _value(rest, name, report, place)
    if value is None:
        return None
    at = Place(line.number, place.column + rest.find(value))
    return (name, value, place) if _is_text(value, name, report, at) else None


def _is_text(value: str, name: str, report: Report, place: Place) -> bool:
    """Kubernetes accepts only UTF-8; other bytes have become surrogates."""
    for offset, char in enumerate(value) if not value.isascii() else ():
        if "\ud800" <= char <= "\udfff":
            where = Place(place.line, place.column + offset)
            message = f"#K8S_{name}: byte 0x{ord(char) & 0xFF:02x} of the value is not UTF-8"
            report.error(where, "invalid-k8s-value", message, "save the script as UTF-8")
            return False
    return True


def _value(rest: str, name: str, report: Report, place: Place) -> str | None:
    quote = rest[:1]
    if quote in ("'", '"') and name != "COMMAND":
        end = rest.find(quote, 1)
        tail = rest[end + 1 :].strip() if end > 0 else ""
        if end < 0 or (tail and not tail.startswith("#")):
            message = f"#K8S_{name}: no closing quote at the end of the value"
            report.error(place, "unmatched-quote", message)
            return None
        return rest[1:end]
    return re.split(r"[ \t]#", f" {rest}", maxsplit=1)[0].strip() if not rest.startswith("#") else ""


def _unknown(written: str, report: Report, place: Place) -> None:
    found = "" if report.long_enough else nearest.nearest(written.upper(), NAMES)
    hint = f"did you mean #K8S_{found}?" if found else f"known: {', '.join(NAMES)}"
    report.error(place, "unknown-directive", f"{K8S_MAGIC}{written} is not known", hint)
