"""Compares a JobSpec with Slurm's own view of the job, field by field.

`scontrol show job` of a held job shows the request as stored by slurmctld. NumNodes is an estimate until the
job starts (the request is in TRES), and the default memory is the partition's, so memory is compared only if
the script requests some. Later releases (`shown-as-tres` in rules.txt) write generic resources in another
way, include the CPUs of a task, estimate the maximum of nodes if the script sets none, and expand numbers
with a width.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Final

from penstock.model.jobspec import UNLIMITED, ArraySpec, JobSpec
from penstock.sbatch import options, rules
from penstock.sbatch.values import arrays

Differences = dict[str, tuple[object, object]]
_FIELD = re.compile(r"(\S+?)=(.*?)(?= [A-Za-z/:_]+=|$)")
_SHARING: Final = {"OK": "default", "NO": "exclusive", "YES": "oversubscribe", "USER": "user", "MCS": "mcs"}
_CPU_OF_TASK = re.compile(r"\bcpu=(\d+)")
_NOTHING: Final = ("(null)", "N/A", "")


def fields(line: str) -> dict[str, str]:
    """One line of `scontrol show job --oneliner` by field name."""
    return dict(_FIELD.findall(line.strip()))


def differences(
    job: JobSpec, shown: Mapping[str, str], *, default_time: int, release: str = options.DEFAULT_RELEASE
) -> Differences:
    """Differing fields as (Slurm's value, ours)."""
    as_tres = rules.holds("shown-as-tres", release)
    pairs = {
        **_counts(job, shown, as_tres=as_tres),
        **(_tres(job, shown) if as_tres else _gres(job, shown)),
        **_memory(job, shown),
        "time": (_minutes(shown["TimeLimit"]), default_time if job.time_limit is None else job.time_limit),
        "sharing": (_sharing(shown), job.sharing),
        "array": (_array(arrays.array(shown.get("ArrayTaskId", ""))), _array(job.array)),
        "dependency": (_dependency(shown["Dependency"]), _our_dependency(job)),
        "stdout": (shown["StdOut"], _path(job, job.output, shown, release)),
        "stderr": (shown["StdErr"] or shown["StdOut"], _path(job, job.error or job.output, shown, release)),
        "name": (shown["JobName"], job.name),
    }
    return {name: pair for name, pair in pairs.items() if pair[0] != pair[1]}


def _counts(job: JobSpec, shown: Mapping[str, str], *, as_tres: bool) -> Differences:
    tres = dict(part.split("=", 1) for part in shown.get("TRES", "").split(",") if "=" in part)
    pairs: Differences = {
        "cpus": (int(shown["NumCPUs"]), job.cpus),
        "tasks": (int(shown["NumTasks"]), job.tasks),
        "cpus_per_task": (shown["CPUs/Task"], str(job.cpus_per_task)),
        "min_cpus_per_node": (int(shown["MinCPUsNode"]), job.min_cpus_per_node),
    }
    if "node" in tres:
        pairs["nodes.minimum"] = (int(tres["node"]), job.nodes.minimum)
    least, *more = map(int, re.findall(r"\d+", shown["NumNodes"]))  # 2-4, and 2,4 in later releases
    guessed = as_tres and (not job.nodes.maximum or least > job.nodes.minimum)
    if not guessed:
        pairs["nodes.maximum"] = (more[-1] if more else 0, job.nodes.maximum)
    return pairs


def _gres(job: JobSpec, shown: Mapping[str, str]) -> Differences:
    return {
        "gres.per_node": (shown.get("TresPerNode", ""), job.gres.per_node_text),
        "gres.per_job": (shown.get("TresPerJob", ""), job.gres.per_job_text),
        "gres.per_task": (shown.get("TresPerTask", ""), job.gres.per_task_text),
        "gres.per_socket": (shown.get("TresPerSocket", ""), job.gres.per_socket_text),
    }


def _tres(job: JobSpec, shown: Mapping[str, str]) -> Differences:
    """Later releases: gres/gpu:2 per node, cpu=4,gres/gpu=1 per task, empty for none."""
    pairs: Differences = {}
    for name, (seen, ours) in _gres(job, shown).items():
        pairs[name] = (_entries(str(seen)), _entries(str(ours)))
    cpus = _CPU_OF_TASK.search(shown.get("TresPerTask", ""))
    if cpus:
        pairs["cpus_per_task of TRES"] = (int(cpus.group(1)), job.cpus_per_task)
    return pairs


def _entries(text: str) -> list[str]:
    """Generic resources in the older spelling, without those with count 0."""
    spelled = _CPU_OF_TASK.sub("", text).replace("gres/", "gres:").replace("=", ":")
    return sorted(
        entry for entry in spelled.split(",") if entry not in ("", "gres:") and not entry.endswith(":0")
    )


def _memory(job: JobSpec, shown: Mapping[str, str]) -> Differences:
    if job.memory is None:
        return {}
    if job.memory.scope == "gpu":
        seen = shown.get("MemPerTres", "").replace("gres/", "gres:")
        return {"memory": (seen, f"gres:gpu:{job.memory.mib}")}
    name = {"node": "MinMemoryNode", "cpu": "MinMemoryCPU"}[job.memory.scope]
    return {"memory": (_mib(shown.get(name, "")), job.memory.mib)}


def _sharing(shown: Mapping[str, str]) -> str:
    """One field up to 24.11, two in 26.05."""
    if "Exclusive" not in shown:
        return _SHARING[shown["OverSubscribe"]]
    if shown["Exclusive"] != "NO":
        return {"NODE": "exclusive"}.get(shown["Exclusive"], shown["Exclusive"].lower())
    return "oversubscribe" if shown["OverSubscribe"] == "YES" else "default"


def _mib(text: str) -> int | str:
    """Slurm uses the largest unit that needs at most two decimals."""
    match = re.fullmatch(r"([0-9.]+)([MGTP]?)", text)
    if match is None:
        return text
    factor = {"": 1, "M": 1, "G": 1024, "T": 1024**2, "P": 1024**3}[match.group(2)]
    return round(float(match.group(1)) * factor)


def _minutes(text: str) -> int:
    if text == "UNLIMITED":
        return UNLIMITED
    days, dash, clock = text.rpartition("-")
    hours, minutes, _ = clock.split(":")
    return int(days or 0) * 1440 * bool(dash) + int(hours) * 60 + int(minutes)


def _array(array: ArraySpec | None) -> tuple[tuple[int, ...], int]:
    return (array.ids, array.limit) if array else ((), 0)


def _dependency(text: str) -> str:
    return "" if text in _NOTHING else text.replace("(unfulfilled)", "").replace("(failed)", "")


def _our_dependency(job: JobSpec) -> str:
    words = []
    for condition in job.dependencies.conditions:
        delay = f"+{condition.delay}" if condition.delay else ""
        words += [f"{condition.kind}:{number}{delay}" for number in condition.jobs] or [condition.kind]
    return ("?" if job.dependencies.need == "any" else ",").join(words)


def _path(job: JobSpec, pattern: str, shown: Mapping[str, str], release: str) -> str:
    """The pattern as scontrol expands it for a job that has not started."""
    number = shown.get("ArrayJobId", shown["JobId"])
    user = shown["UserId"].partition("(")[0]
    values = {"j": shown["JobId"], "A": number, "a": "4294967294", "x": job.name, "u": user}
    parts = r"%([jAaxu])"
    if rules.holds("shown-as-tres", release):
        values["%"], parts = "%", r"%\d*([jAaxu%])"
    if rules.holds("shown-apart", release):
        values |= {"J": shown["JobId"], "n": "0", "N": "(null)"}
        parts = r"%\d*([jAaxuJnN%])"
    expanded = re.sub(parts, lambda match: values[match.group(1)], pattern)
    return expanded if expanded.startswith("/") else f"{shown['WorkDir']}/{expanded}"
