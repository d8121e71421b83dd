"""Numbers of nodes, tasks and CPUs, computed like sbatch.

sbatch derives missing numbers (tasks from nodes, nodes from a node list, CPUs from tasks) and silently lowers
the number of nodes to that of tasks. All rules, quirks included, were tested with `scontrol show job`.
"""

from __future__ import annotations

import math

import msgspec

from penstock import wording
from penstock.model.jobspec import NodeRange
from penstock.sbatch import rules
from penstock.sbatch.diagnostics import Report
from penstock.sbatch.precedence import Values
from penstock.sbatch.values import hostlist


class Shape(msgspec.Struct, frozen=True):
    """Nodes, tasks and CPUs; `tasks` is None while their number is undetermined."""

    nodes: NodeRange
    tasks: int | None
    cpus_per_task: int
    cpus: int
    min_cpus_per_node: int
    nodes_given: bool
    tasks_firm: bool
    """Whether sbatch knows the number of tasks; slurmctld may still derive it from --ntasks-per-node."""
    tasks_per_node: int = 0


def shape(values: Values, report: Report) -> Shape:
    """The shape without the rules for GPUs."""
    nodes = _nodes(values, report)
    tasks, firm = _tasks(values, nodes)
    if "ntasks" in values and tasks is not None:
        nodes = _no_more_nodes_than_tasks(nodes, tasks, values, report)
    cpus_per_task = int(values.get("cpus-per-task", 1))
    per_node = int(values.get("ntasks-per-node", 0))
    return Shape(
        nodes=nodes,
        tasks=tasks,
        cpus_per_task=cpus_per_task,
        cpus=_cpus(values, nodes, tasks, cpus_per_task),
        min_cpus_per_node=min_cpus_per_node(
            values, tasks=tasks, tasks_per_node=per_node, cpus_per_task=cpus_per_task
        ),
        nodes_given="nodes" in values,
        tasks_firm=firm,
        tasks_per_node=per_node,
    )


def _nodes(values: Values, report: Report) -> NodeRange:
    nodes: NodeRange = values.get("nodes", NodeRange())
    listed = hostlist.count(values.get("nodelist", ""))
    if not listed or (listed <= nodes.minimum and "nodes" in values):
        return nodes
    if "nodes" not in values:
        return NodeRange(listed, 0)
    if nodes.maximum and listed > nodes.maximum:
        if not rules.holds("nodelist-within-nodes", values.release):
            return nodes
        message = f"--nodelist names {listed} nodes, --nodes allows {nodes.maximum}"
        hint = "sbatch requests all nodes of the list; use --exclude or --constraint to choose"
        report.error(values.place("nodelist"), "nodelist-too-long", message, hint)
    return NodeRange(listed, nodes.maximum)


def _tasks(values: Values, nodes: NodeRange) -> tuple[int | None, bool]:
    """The number of tasks, and whether sbatch knows it."""
    if "ntasks" in values:
        return int(values.get("ntasks")), True
    exact = nodes.minimum == nodes.maximum
    settled = exact or not nodes.maximum
    if "ntasks-per-node" in values:
        return nodes.minimum * int(values.get("ntasks-per-node")), settled
    placed = "nodes" in values or "nodelist" in values or "extra-node-info" in values
    if not placed or not settled:
        return None, False
    parts = [part for part in node_parts(values) if part is not None]
    if parts or "nodelist" in values or ("nodes" in values and exact):
        return nodes.minimum * math.prod(parts), bool(parts)
    return None, False


def node_parts(values: Values) -> list[int | None]:
    """Requested sockets, cores and threads of a node or None: sbatch counts one task on each.

    A --hint in the script or on the command line replaces them; one in the environment does not.
    """
    parts: list[int | None] = list(values.get("extra-node-info", (None, None, None)))
    whole = values.given("extra-node-info")
    for index, name in enumerate(("sockets-per-node", "cores-per-socket", "threads-per-core")):
        given = values.given(name)
        if given is not None and (whole is None or given.order > whole.order):
            parts[index] = given.value
    if "hint" not in values or whole or "ntasks-per-core" in values or "threads-per-core" in values:
        return parts
    hinted: list[int | None] = [None, None, None] if values.chosen("hint") else list(parts)
    for word in values.get("hint"):
        sockets = None if word == "compute_bound" else hinted[0]
        cores = {"compute_bound": None, "memory_bound": 1}.get(word, hinted[1])
        hinted = [sockets, cores, None if word == "multithread" else 1]
    if rules.holds("hint-beside-node-parts", values.release):
        return [by_hint if own is None else own for own, by_hint in zip(parts, hinted, strict=True)]
    return hinted


def _no_more_nodes_than_tasks(nodes: NodeRange, tasks: int, values: Values, report: Report) -> NodeRange:
    if tasks >= nodes.minimum:
        return NodeRange(nodes.minimum, min(nodes.maximum, tasks))
    message = f"{wording.many(tasks, 'task')} cannot use {nodes.minimum} nodes: Slurm will give {tasks}"
    place = values.place("nodes" if "nodes" in values else "nodelist")
    report.warning(place, "fewer-nodes", message, f"request --nodes={tasks}, or more tasks")
    return NodeRange(tasks, tasks)


def _cpus(values: Values, nodes: NodeRange, tasks: int | None, cpus_per_task: int) -> int:
    if "overcommit" in values:
        return max(nodes.minimum, 1)
    if tasks == 0:
        return cpus_per_task if "cpus-per-task" in values else 0
    wanted = cpus_per_task if tasks is None else tasks * cpus_per_task
    listed = min(hostlist.count(values.get("nodelist", "")), nodes.minimum)
    return max(wanted, listed)


def min_cpus_per_node(values: Values, *, tasks: int | None, tasks_per_node: int, cpus_per_task: int) -> int:
    """CPUs that every node must have for its tasks."""
    least = max(int(values.get("mincpus", 1)), cpus_per_task)
    if "overcommit" in values or tasks is None or tasks < 2:
        return least
    return max(least, tasks_per_node * cpus_per_task)
