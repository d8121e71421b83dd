"""JobSpec: what a batch script asks for, once and for all readers.

It is the one intermediate representation between sbatch's words and whatever runs the job: Slurm through
the bridge, a scheduler of our own, Kueue or Volcano. Every field is what *Slurm* will understand of the
script (the agreement tests hold it against `scontrol show job`), and `provenance` says for each where it
came from.

Counts that Slurm has not decided yet, such as how 5 tasks fall on 1-3 nodes, stay open here: nobody
downstream may take a guess for a decision.
"""

from __future__ import annotations

from typing import Final, Literal

import msgspec

UNLIMITED: Final = 0xFFFFFFFF
"""A time limit in minutes that means "none" (Slurm's INFINITE)."""

DEFAULT_OUTPUT: Final = "slurm-%j.out"
DEFAULT_ARRAY_OUTPUT: Final = "slurm-%A_%a.out"

Origin = Literal["default", "script", "environment", "command line"]
MemoryScope = Literal["node", "cpu", "gpu"]
Sharing = Literal["default", "exclusive", "user", "mcs", "topo", "oversubscribe"]


class Provenance(msgspec.Struct, frozen=True, omit_defaults=True):
    """Where a value came from; `line` and `column` count from 1 and are 0 outside the script."""

    origin: Origin
    name: str = ""
    line: int = 0
    column: int = 0


class NodeRange(msgspec.Struct, frozen=True):
    """--nodes: at least and at most; maximum 0 means that Slurm may take as many as it needs."""

    minimum: int = 1
    maximum: int = 0


class Memory(msgspec.Struct, frozen=True):
    """An amount of memory a node, CPU or GPU; 0 MiB a node means all the memory of the node."""

    scope: MemoryScope
    mib: int


class Gres(msgspec.Struct, frozen=True):
    """One generic resource: name, type (empty: any) and how many."""

    name: str
    type: str = ""
    count: int = 1


class GresRequest(msgspec.Struct, frozen=True):
    """Generic resources by what they are counted for; each text is Slurm's own spelling of it."""

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
        """Whatever it is counted for."""
        return (*self.per_node, *self.per_job, *self.per_task, *self.per_socket)


class ArraySpec(msgspec.Struct, frozen=True):
    """--array: the task ids in order, and how many may run at once (0: all).

    `ids` is empty for more than 100,000 of them, and `step` 0 where they have no common one.
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
    """All conditions, joined by "all" (a comma in sbatch) or "any" (a question mark)."""

    need: Literal["all", "any"] = "all"
    conditions: tuple[Dependency, ...] = ()


class SignalSpec(msgspec.Struct, frozen=True):
    """--signal: which signal, how long before the end, to the batch script alone or to the steps."""

    number: int
    seconds_before: int = 60
    to_batch: bool = False
    on_reservation: bool = False


class ExportPolicy(msgspec.Struct, frozen=True):
    """--export: everything of the submit environment or nothing, and what is named besides."""

    everything: bool = True
    names: tuple[str, ...] = ()
    values: dict[str, str] = {}


class Mount(msgspec.Struct, frozen=True):
    """A folder of the site made visible in the pod."""

    source: str
    target: str
    read_only: bool = False


class Toleration(msgspec.Struct, frozen=True, omit_defaults=True):
    """A Kubernetes toleration, in the API's own words."""

    key: str = ""
    operator: Literal["Exists", "Equal"] = "Exists"
    value: str = ""
    effect: str = ""


class PodSpec(msgspec.Struct, frozen=True):
    """What the #K8S_ directives ask of the pods."""

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
    """One job (or one component of a heterogeneous job) as Slurm will understand it."""

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
