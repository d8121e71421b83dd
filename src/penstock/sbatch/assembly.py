"""Values → JobSpec: from options to fields, with the provenance of each."""

from __future__ import annotations

from typing import Any, Final

from penstock.model import jobspec
from penstock.model.jobspec import JobSpec, Memory, Provenance
from penstock.sbatch.patterns import Pattern
from penstock.sbatch.precedence import Values
from penstock.sbatch.shape import Shape

_DIRECT: Final = {
    "partition": "partition",
    "account": "account",
    "qos": "qos",
    "reservation": "reservation",
    "comment": "comment",
    "constraint": "features",
    "nodelist": "node_list",
    "exclude": "exclude_nodes",
    "licenses": "licenses",
    "time": "time_limit",
    "time-min": "time_min",
    "begin": "begin",
    "deadline": "deadline",
    "array": "array",
    "dependency": "dependencies",
    "hold": "hold",
    "nice": "nice",
    "signal": "signal",
    "chdir": "workdir",
    "open-mode": "open_mode",
    "mail-type": "mail_types",
    "mail-user": "mail_user",
    "tmp": "tmp_disk_mib",
    "overcommit": "overcommit",
    "contiguous": "contiguous",
    "ntasks-per-node": "tasks_per_node",
    "ntasks-per-gpu": "tasks_per_gpu",
    "cpus-per-gpu": "cpus_per_gpu",
}
"""Options whose value is a field unchanged."""

_SOURCES: Final = {
    "name": ("job-name",),
    "nodes": ("nodes", "nodelist", "ntasks", "gpus"),
    "tasks": (
        *("ntasks", "ntasks-per-node", "extra-node-info", "ntasks-per-gpu", "gpus-per-task"),
        *("nodes", "nodelist"),
    ),
    "cpus": ("cpus-per-task", "ntasks", "ntasks-per-node", "nodes"),
    "cpus_per_task": ("cpus-per-task",),
    "min_cpus_per_node": ("mincpus", "cpus-per-task", "ntasks-per-node"),
    "memory": ("mem", "mem-per-cpu", "mem-per-gpu"),
    "gres": ("gres", "gpus", "gpus-per-node", "gpus-per-task", "gpus-per-socket", "tres-per-task"),
    "sharing": ("exclusive", "oversubscribe"),
    "requeue": ("requeue", "no-requeue"),
    "output": ("output",),
    "error": ("error",),
    "input": ("input",),
    "export": ("export",),
}
"""Options from which a field may be derived, the most relevant first."""

_EXPORT_ITEM = Pattern(r"([A-Za-z_][A-Za-z0-9_]*)(?:=('[^']*'|\"[^\"]*\"|[^,]*))?")


def job(values: Values, shape: Shape, *, name: str, interpreter: str, pod: jobspec.PodSpec) -> JobSpec:
    fields: dict[str, Any] = {
        field: values.get(option) for option, field in _DIRECT.items() if values.get(option) is not None
    }
    fields.update(
        name=values.get("job-name", name),
        interpreter=interpreter,
        nodes=shape.nodes,
        tasks=shape.nodes.minimum if shape.tasks is None else shape.tasks,
        cpus=shape.cpus,
        cpus_per_task=shape.cpus_per_task,
        min_cpus_per_node=shape.min_cpus_per_node,
        memory=_memory(values),
        gres=_gres(values),
        sharing=_sharing(values),
        requeue=_requeue(values),
        export=_export(values.get("export")),
        output=_file(values, "output", _default_output(values)),
        error=_file(values, "error"),
        input=_file(values, "input"),
        pod=pod,
        provenance=_provenance(values, shape),
    )
    return JobSpec(**fields)


def _memory(values: Values) -> Memory | None:
    if "mem" in values:
        return Memory("node", values.get("mem"))
    if "mem-per-cpu" in values:
        amount = values.get("mem-per-cpu")
        return Memory("cpu", amount) if amount else Memory("node", 0)
    return Memory("gpu", values.get("mem-per-gpu")) if "mem-per-gpu" in values else None


def _gres(values: Values) -> jobspec.GresRequest:
    per_node_text = ",".join(filter(None, (_gpu_text(values, "gpus-per-node"), _gres_text(values))))
    return jobspec.GresRequest(
        per_node=(*values.get("gpus-per-node", ()), *values.get("gres", ())),
        per_job=values.get("gpus", ()),
        per_task=(*values.get("gpus-per-task", ()), *values.get("tres-per-task", ())),
        per_socket=values.get("gpus-per-socket", ()),
        per_node_text=per_node_text,
        per_job_text=_gpu_text(values, "gpus"),
        per_task_text=_gpu_text(values, "gpus-per-task"),
        per_socket_text=_gpu_text(values, "gpus-per-socket"),
    )


def _gpu_text(values: Values, option: str) -> str:
    given = values.given(option)
    return ",".join(f"gres:gpu:{entry}" for entry in given.text.split(",") if entry) if given else ""


def _gres_text(values: Values) -> str:
    given = values.given("gres")
    if given is None or not given.value:
        return ""
    return ",".join(f"gres:{entry.removeprefix('gres:')}" for entry in given.text.split(",") if entry)


def _sharing(values: Values) -> str:
    if "reboot" in values:
        return "exclusive"
    if "oversubscribe" in values:
        return "oversubscribe"
    return str(values.get("exclusive", "default"))


def _requeue(values: Values) -> bool | None:
    if "no-requeue" in values:
        return False
    return True if "requeue" in values else None


def _default_output(values: Values) -> str:
    return jobspec.DEFAULT_ARRAY_OUTPUT if values.get("array") else jobspec.DEFAULT_OUTPUT


def _file(values: Values, option: str, default: str = "") -> str:
    given = str(values.get(option, default))
    return "/dev/null" if given.lower() == "none" else given


def _export(text: str | None) -> jobspec.ExportPolicy:
    if text is None or text.upper() == "ALL":
        return jobspec.ExportPolicy()
    if text.upper() in ("NONE", "NIL", ""):
        return jobspec.ExportPolicy(everything=False)
    names: list[str] = []
    values: dict[str, str] = {}
    everything = False
    for match in _EXPORT_ITEM.finditer(text):
        name, value = match.group(1), match.group(2)
        if value is not None:
            values[name] = value.strip("'\"")
        elif name.upper() == "ALL":
            everything = True
        else:
            names.append(name)
    return jobspec.ExportPolicy(everything, tuple(names), values)


def _provenance(values: Values, shape: Shape) -> dict[str, Provenance]:
    found = {field: given.provenance for option, field in _DIRECT.items() if (given := values.given(option))}
    for field, candidates in _SOURCES.items():
        sources = (given.provenance for option in candidates if (given := values.given(option)))
        found[field] = next(sources, Provenance("default"))
    if shape.tasks is None:
        found["tasks"] = Provenance("default")
    return found
