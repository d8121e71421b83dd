"""Consistency of the GPU options, and the nodes and tasks that follow from them.

sbatch makes these checks itself before it contacts slurmctld. For each GPU type, the counts per job, node,
socket and task must be multiples of each other, and two of them determine tasks or nodes.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import msgspec

from penstock.model.jobspec import Gres, NodeRange
from penstock.sbatch import rules
from penstock.sbatch.diagnostics import Report
from penstock.sbatch.precedence import Values
from penstock.sbatch.shape import Shape, min_cpus_per_node, node_parts

_OPTIONS = {"job": "gpus", "node": "gpus-per-node", "socket": "gpus-per-socket", "task": "gpus-per-task"}


class Counts(msgspec.Struct, frozen=True):
    """GPUs of one type per job, node, socket and task; 0: not requested."""

    job: int = 0
    node: int = 0
    socket: int = 0
    task: int = 0


class _Checker:
    def __init__(self, values: Values, shape: Shape, report: Report) -> None:
        self.values = values
        self.shape = shape
        self.report = report

    def fail(self, option: str, message: str, hint: str = "") -> None:
        place = self.values.place(option if option in self.values else "gres")
        self.report.error(place, "gpu-mismatch", message, hint)

    def change(self, **fields: Any) -> None:
        self.shape = msgspec.structs.replace(self.shape, **fields)

    def set_tasks(self, tasks: int) -> None:
        """Set the number of tasks that follows from GPUs, and add CPUs if there are fewer."""
        self.change(tasks=tasks, tasks_firm=True)
        whole = rules.holds("cpus-of-counted-tasks", self.values.release)
        if whole or ("overcommit" not in self.values and tasks > self.shape.cpus):
            self.change(cpus=max(self.shape.cpus, tasks * self.shape.cpus_per_task))


def apply(values: Values, shape: Shape, report: Report) -> Shape:
    """Check the GPU options, and return the shape with what follows from them."""
    checker = _Checker(values, shape, report)
    by_type = _by_type(values)
    _needs_gpus(checker, bool(by_type))
    _one_way_of_naming(checker, by_type)
    _cpus_by_gpu(checker, by_type)
    for counts in by_type.values():
        for check in _CHECKS:
            check(checker, counts)
    _tasks_per_gpu(checker, by_type)
    _cpus_of_gpus(checker, by_type)
    return _finished(checker)


def _by_type(values: Values) -> dict[str, Counts]:
    found: dict[str, dict[str, int]] = {}
    for field, option in _OPTIONS.items():
        for gres in values.get(option, ()):
            found.setdefault(gres.type, {})[field] = gres.count
    entries: tuple[Gres, ...] = values.get("gres", ())
    for gres in entries:
        if gres.name == "gpu" and gres.count:
            found.setdefault(gres.type, {})["node"] = gres.count
    return {kind: Counts(**counts) for kind, counts in found.items() if any(counts.values())}


def _finished(checker: _Checker) -> Shape:
    """Counts that depend on the results of the GPU rules."""
    shape, values = checker.shape, checker.values
    if "spread-job" in values and shape.tasks and shape.tasks_firm and not shape.nodes.maximum:
        checker.change(nodes=NodeRange(shape.nodes.minimum, shape.tasks))
    least = min_cpus_per_node(
        values, tasks=shape.tasks, tasks_per_node=shape.tasks_per_node, cpus_per_task=shape.cpus_per_task
    )
    checker.change(min_cpus_per_node=least)
    return checker.shape


def _needs_gpus(checker: _Checker, any_gpu: bool) -> None:
    values = checker.values
    asked = values.get("mem-per-gpu") or "cpus-per-gpu" in values
    if "mem-per-gpu" in values and asked and not any_gpu and "ntasks-per-gpu" not in values:
        checker.fail("mem-per-gpu", "--mem-per-gpu without GPUs", "add --gpus or --gres=gpu:N")
    alone = "cpus-per-gpu" in values and not any_gpu and "ntasks-per-gpu" not in values
    if alone and rules.holds("cpus-per-gpu-needs-gpus", values.release):
        checker.fail("cpus-per-gpu", "--cpus-per-gpu without GPUs", "add --gpus or --gres=gpu:N")
    if "cpus-per-gpu" in values and "cpus-per-task" in values:
        message = "--cpus-per-gpu cannot be combined with --cpus-per-task"
        checker.fail("cpus-per-gpu", message, "keep one of the two")


def _one_way_of_naming(checker: _Checker, by_type: dict[str, Counts]) -> None:
    if "" in by_type and len(by_type) > 1:
        kinds = ", ".join(kind for kind in by_type if kind)
        message = f"GPUs are requested both with a type ({kinds}) and without"
        checker.fail("gres", message, "give the type everywhere or nowhere")


def _cpus_by_gpu(checker: _Checker, by_type: dict[str, Counts]) -> None:
    """--cpus-per-gpu times --gpus-per-task are the CPUs of a task, unless a type is given."""
    per_gpu = checker.values.get("cpus-per-gpu", 0)
    per_task = by_type.get("", Counts()).task
    if per_gpu and per_task and "cpus-per-task" not in checker.values:
        checker.change(cpus_per_task=per_gpu * per_task)


def _cpus_of_gpus(checker: _Checker, by_type: dict[str, Counts]) -> None:
    """In later releases the job requests --cpus-per-gpu times all GPUs."""
    per_gpu, shape = checker.values.get("cpus-per-gpu", 0), checker.shape
    if not per_gpu or not rules.holds("cpus-per-gpu-counted", checker.values.release):
        return
    gpus = sum(
        counts.job or counts.node * shape.nodes.minimum or counts.task * (shape.tasks or 1)
        for counts in by_type.values()
    )
    checker.change(cpus=max(shape.cpus, per_gpu * gpus))


def _order(checker: _Checker, counts: Counts) -> None:
    pairs = (
        (counts.job, counts.node),
        (counts.node, counts.socket),
        (counts.job, counts.socket),
        (counts.job, counts.task),
        (counts.node, counts.task),
        (counts.socket, counts.task),
    )
    if any(larger and smaller and larger < smaller for larger, smaller in pairs):
        message = "a part has more GPUs than the whole: per job >= per node >= per socket >= per task"
        checker.fail("gpus", message, "correct the counts")


def _enough_for_nodes(checker: _Checker, counts: Counts) -> None:
    nodes = checker.shape.nodes
    if counts.job and counts.job < nodes.minimum:
        message = f"{counts.job} GPUs are fewer than {nodes.minimum} nodes"
        checker.fail("gpus", message, "every node needs at least one")
    elif counts.job and nodes.maximum > counts.job:
        checker.change(nodes=NodeRange(nodes.minimum, counts.job))


def _sockets(checker: _Checker, counts: Counts) -> None:
    if not counts.socket:
        return
    sockets = node_parts(checker.values)[0]
    if not sockets:
        checker.fail("gpus-per-socket", "--gpus-per-socket needs --sockets-per-node too")
    elif counts.node and counts.node != counts.socket * sockets:
        message = f"{counts.node} GPUs a node at {counts.socket} a socket are not {sockets} sockets"
        checker.fail("gpus-per-socket", message)


def _job_and_node(checker: _Checker, counts: Counts) -> None:
    if not (counts.job and counts.node) or counts.job < counts.node:
        return
    if counts.job % counts.node:
        checker.fail("gpus", f"{counts.job} GPUs are not a multiple of {counts.node} a node")
        return
    wanted = counts.job // counts.node
    nodes = checker.shape.nodes
    if not nodes.minimum <= wanted <= (nodes.maximum or wanted):
        message = f"{counts.job} GPUs at {counts.node} a node need {wanted} nodes, not {nodes.minimum}"
        checker.fail("gpus", message, f"write --nodes={wanted} or leave it out")
        return
    checker.change(nodes=NodeRange(wanted, wanted))
    if not checker.shape.tasks_firm and "ntasks-per-node" not in checker.values:
        checker.change(tasks=None)


def _node_and_task(checker: _Checker, counts: Counts) -> None:
    for size, whole, option in (
        (counts.node, "node", "ntasks-per-node"),
        (counts.socket, "socket", "ntasks-per-socket"),
    ):
        if not (size and counts.task) or size < counts.task:
            continue
        wanted = size // counts.task
        before = checker.values.get(option) or (checker.shape.tasks_per_node if whole == "node" else 0)
        if size % counts.task:
            checker.fail("gpus-per-task", f"{size} GPUs a {whole} are not a multiple of {counts.task} a task")
        elif before and before != wanted:
            message = (
                f"{size} GPUs a {whole} at {counts.task} a task are {wanted} tasks a {whole}, not {before}"
            )
            checker.fail("gpus-per-task", message)
        elif whole == "node":
            checker.change(tasks_per_node=wanted)


def _per_task(checker: _Checker, counts: Counts) -> None:
    if not counts.task:
        return
    tasks = _known_tasks(checker)
    if not counts.job:
        if tasks is None:
            checker.fail("gpus-per-task", "--gpus-per-task needs --ntasks or --gpus too", "add --ntasks=N")
        return
    if counts.job % counts.task:
        checker.fail("gpus", f"{counts.job} GPUs are not a multiple of {counts.task} a task")
        return
    wanted = counts.job // counts.task
    if tasks is None:
        checker.set_tasks(wanted)
    elif tasks != wanted:
        message = f"{counts.job} GPUs at {counts.task} a task are {wanted} tasks, not {tasks}"
        checker.fail("gpus-per-task", message)


def _known_tasks(checker: _Checker) -> int | None:
    """The tasks sbatch itself is sure of; an exact --nodes counts unless --cpus-per-task was given."""
    shape = checker.shape
    if shape.tasks_firm:
        return shape.tasks
    exact = shape.nodes_given and shape.nodes.minimum == shape.nodes.maximum
    if exact and not {"cpus-per-task", "ntasks-per-node"} & checker.values.names():
        return shape.nodes.minimum
    return None


_CHECKS: tuple[Callable[[_Checker, Counts], None], ...] = (
    _order,
    _enough_for_nodes,
    _sockets,
    _job_and_node,
    _node_and_task,
    _per_task,
)


def _tasks_per_gpu(checker: _Checker, by_type: dict[str, Counts]) -> None:
    values = checker.values
    per_gpu = values.get("ntasks-per-gpu", 0)
    if not per_gpu:
        return
    for other in ("gpus-per-task", "gpus-per-socket", "ntasks-per-node"):
        if other in values:
            message = f"--ntasks-per-gpu cannot be combined with --{other}"
            checker.fail("ntasks-per-gpu", message, "keep one of the two")
            return
    shape = checker.shape
    gpus = sum(counts.job or counts.node * max(shape.nodes.minimum, 1) for counts in by_type.values())
    exact = shape.nodes_given and shape.nodes.minimum == shape.nodes.maximum
    if gpus:
        checker.set_tasks(per_gpu * gpus)
    elif shape.tasks_firm:
        _gpus_from_tasks(checker, per_gpu)
    elif exact:
        checker.set_tasks(per_gpu * shape.nodes.minimum)
    else:
        message = "--ntasks-per-gpu needs GPUs, tasks or nodes to count from"
        checker.fail("ntasks-per-gpu", message, "add --gpus=N")


def _gpus_from_tasks(checker: _Checker, per_gpu: int) -> None:
    tasks, nodes = checker.shape.tasks or 0, checker.shape.nodes
    gpus = tasks // per_gpu
    counted = "mem-per-gpu" in checker.values or "cpus-per-gpu" in checker.values
    if gpus == 0 and not counted:
        message = f"{tasks} tasks at {per_gpu} a GPU need no GPU at all: none is asked for"
        checker.report.warning(checker.values.place("ntasks-per-gpu"), "no-gpu", message, "add --gpus=N")
    elif tasks % per_gpu:
        checker.fail("ntasks-per-gpu", f"{tasks} tasks are not a multiple of {per_gpu} a GPU")
    elif gpus < nodes.minimum:
        checker.fail("ntasks-per-gpu", f"{tasks} tasks at {per_gpu} a GPU leave nodes without a GPU")
    elif nodes.maximum > gpus:
        checker.change(nodes=NodeRange(nodes.minimum, gpus))
