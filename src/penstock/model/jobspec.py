"""JobSpec: what a batch script requests, parsed once for all readers.

It is the one intermediate representation between sbatch's options and whatever runs the job: Slurm through
Penstock, or another scheduler such as Kueue or Volcano. Every field is what *Slurm* understands of the
script (the agreement tests compare it with `scontrol show job`), and `provenance` says where each came
from.

Counts that Slurm has not decided yet, such as how 5 tasks fall on 1-3 nodes, stay open: a guess must not be
taken for a decision.
"""

from __future__ import annotations

from typing import Final, Literal

import msgspec

UNLIMITED: Final = 0xFFFFFFFF  # a time limit in minutes that means "none" (Slurm's INFINITE)

DEFAULT_OUTPUT: Final = "slurm-%j.out"
DEFAULT_ARRAY_OUTPUT: Final = "slurm-%A_%a.out"

Origin = Literal["default", "script", "environment", "command line"]
MemoryScope = Literal["node", "cpu", "gpu"]
Sharing = Literal["default", "exclusive", "user", "mcs", "topo", "oversubscribe"]


class Provenance(msgspec.Struct, frozen=True, omit_defaults=True):
    """Where a value came from; `line` and `column` count from 1, and are 0 outside of the script."""

    origin: Origin
    name: str = ""
    line: int = 0
    column: int = 0


class NodeRange(msgspec.Struct, frozen=True):
    """--nodes: minimum and maximum; maximum 0 lets Slurm decide."""

    minimum: int = 1
    maximum: int = 0


class Memory(msgspec.Struct, frozen=True):
    """Memory per node, CPU or GPU; 0 MiB per node means all of the node's."""

    scope: MemoryScope
    mib: int


class Gres(msgspec.Struct, frozen=True):
    """A generic resource: name, type (empty: any) and count."""

    name: str
    type: str = ""
    count: int = 1


class GresRequest(msgspec.Struct, frozen=True):
    """Generic resources by scope; each text is in Slurm's own spelling."""

    per_node: tuple[Gres, ...] = ()
    per_job: tuple[Gres, ...] = ()
    per_task: tuple[Gres, ...] = ()
    per_socket: tuple[Gres, ...] = ()
    per_node_text: str = ""
    per_job_text: str = ""
    per_task_text: str = ""
    per_socket_text: str = ""

    @property
    def everything(self) -> tuple[Gres, ...]:
        """Of all scopes."""
        return (*self.per_node, *self.per_job, *self.per_task, *self.per_socket)


class ArraySpec(msgspec.Struct, frozen=True):
    """--array: the task ids in order, and how many may run at once (0: all).

    `ids` is empty for more than 100,000 tasks, and `step` is 0 if they have no common one.
    """

    text: str
    count: int
    first: int
    last: int
    step: int
    ids: tuple[int, ...]
    limit: int = 0


class Dependency(msgspec.Struct, frozen=True):
    """One condition on other jobs; `jobs` as written, `delay` in minutes after their start."""

    kind: str
    jobs: tuple[str, ...] = ()
    delay: int = 0


class Dependencies(msgspec.Struct, frozen=True):
    """Conditions joined by "all" (a comma in sbatch) or "any" (a question mark)."""

    need: Literal["all", "any"] = "all"
    conditions: tuple[Dependency, ...] = ()


class SignalSpec(msgspec.Struct, frozen=True):
    """--signal: which, how long before the end, and to the batch script or to the steps."""

    number: int
    seconds_before: int = 60
    to_batch: bool = False
    on_reservation: bool = False


class ExportPolicy(msgspec.Struct, frozen=True):
    """--export: whether the whole submit environment is passed, and named variables."""

    everything: bool = True
    names: tuple[str, ...] = ()
    values: dict[str, str] = {}


class Mount(msgspec.Struct, frozen=True):
    """A folder of the site that is mounted in the pod."""

    source: str
    target: str
    read_only: bool = False


class Toleration(msgspec.Struct, frozen=True, omit_defaults=True):
    key: str = ""
    operator: Literal["Exists", "Equal"] = "Exists"
    value: str = ""
    effect: str = ""


class PodSpec(msgspec.Struct, frozen=True):
    """What the #K8S_ directives ask for."""

    image: str = ""
    workdir: str = ""
    script: str = ""
    command: tuple[str, ...] = ()
    own_entrypoint: bool = False
    outputs: tuple[str, ...] = ()
    mounts: tuple[Mount, ...] = ()
    environment: dict[str, str] = {}
    pull_secrets: tuple[str, ...] = ()
    shm_mib: int = 0
    node_selector: dict[str, str] = {}
    tolerations: tuple[Toleration, ...] = ()
    priority_class: str = ""


class JobSpec(msgspec.Struct, frozen=True, kw_only=True):
    """A job (or a component of a heterogeneous job) as Slurm understands it."""

    name: str
    interpreter: str
    partition: str = ""
    account: str = ""
    qos: str = ""
    reservation: str = ""
    comment: str = ""

    nodes: NodeRange = NodeRange()
    tasks: int = 1
    cpus: int = 1
    cpus_per_task: int = 1
    tasks_per_node: int = 0
    tasks_per_gpu: int = 0
    min_cpus_per_node: int = 1
    cpus_per_gpu: int = 0
    memory: Memory | None = None
    gres: GresRequest = GresRequest()
    tmp_disk_mib: int = 0
    sharing: Sharing = "default"
    overcommit: bool = False
    contiguous: bool = False

    features: str = ""
    node_list: str = ""
    exclude_nodes: str = ""
    licenses: str = ""

    time_limit: int | None = None
    time_min: int | None = None
    begin: str = ""
    deadline: str = ""
    array: ArraySpec | None = None
    dependencies: Dependencies = Dependencies()
    hold: bool = False
    requeue: bool | None = None
    nice: int = 0
    signal: SignalSpec | None = None

    workdir: str = ""
    output: str = DEFAULT_OUTPUT
    error: str = ""
    input: str = ""
    open_mode: Literal["", "append", "truncate"] = ""
    export: ExportPolicy = ExportPolicy()
    mail_types: tuple[str, ...] = ()
    mail_user: str = ""

    pod: PodSpec = PodSpec()
    provenance: dict[str, Provenance] = {}
