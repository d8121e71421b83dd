"""Slurm's configuration files as text: the same cluster gives the same bytes.

Why some lines are as they are (each was measured):

* DefMemPerCPU: without it a job without --mem gets all memory of its node, so only one job runs at a time.
* cred_expire=10: a requeued job waits for its credential's lifetime, which is 121 s by default.
* AccountingStoragePass names the munge socket: clients ignore AuthInfo when they talk to slurmdbd.
* jobacct_gather/none: a bridged job's processes are in pods; the launcher's figures would be wrong.
* config_overrides: nodes may claim more CPUs and memory than their machine has.
* sched_interval=5: in a quiet queue a job whose BeginTime has passed, such as a requeued one, is considered
  only then; the default is 60 s.
* PreemptType=preempt/qos: preemption is configured by `sacctmgr modify qos A set preempt=B`; without it
  nothing is preempted. Suspending is not an option, as a pod keeps its resources: a preempted job is requeued
  or cancelled.
* NoInAddrAny, NoCtldInAddrAny: daemons listen only on their node's address.
"""

from __future__ import annotations

from collections.abc import Iterator

from penstock import errors, wellknown
from penstock.model import cluster as model
from penstock.model import releases

HEADER = f"# {wellknown.WRITTEN}. Changes are lost the next time it is rendered.\n"


def render_slurm_conf(cluster: model.SlurmCluster) -> str:
    sections = (
        ("Who and where", _identity(cluster)),
        ("Files", _files(cluster)),
        ("Processes", _processes(cluster)),
        ("Timeouts", _timeouts(cluster)),
        ("Scheduling", _scheduling(cluster)),
        ("Accounting", _accounting(cluster)),
        ("The bridge", _bridge(cluster)),
        ("Nodes and partitions", _nodes_and_partitions(cluster)),
    )
    body = (f"\n# {title}\n" + "".join(f"{line}\n" for line in lines) for title, lines in sections)
    return HEADER + "".join(body)


def render_gres_conf(cluster: model.SlurmCluster) -> str:
    """gres.conf: one device file per GPU; empty files suffice."""
    devices = f"{cluster.places.gpu_device_dir}/gpu"
    lines = (
        f"NodeName={node.name} Name=gpu{_typed(node)} File={devices}{_numbers(range(node.gpus))}\n"
        for node in cluster.nodes
        if node.gpus
    )
    return HEADER + "".join(lines)


def render_cgroup_conf(cluster: model.SlurmCluster) -> str:
    """cgroup.conf: cgroups are left to the kubelet."""
    return HEADER + "".join(f"{line}\n" for line in releases.traits(cluster.release).cgroup_conf)


def render_slurmdbd_conf(cluster: model.SlurmCluster) -> str:
    """slurmdbd.conf: without a password MariaDB authenticates SlurmUser by the socket's peer uid."""
    return HEADER + "".join(f"{line}\n" for line in _slurmdbd(cluster))


def _slurmdbd(cluster: model.SlurmCluster) -> Iterator[str]:
    yield f"DbdHost={cluster.accounting_host}"
    yield f"DbdAddr={cluster.accounting_address or cluster.address}"
    yield f"DbdPort={cluster.accounting_port}"
    yield f"SlurmUser={cluster.slurm_user}"
    yield "AuthType=auth/munge"
    yield f"AuthInfo=socket={cluster.places.munge_socket}"
    if cluster.listen_on_address_only:
        yield "CommunicationParameters=NoInAddrAny"
    yield "StorageType=accounting_storage/mysql"
    yield f"StorageHost={cluster.database.host}"
    yield f"StorageUser={cluster.database.user or cluster.slurm_user}"
    if cluster.database.password:
        yield f"StoragePass={_quoted(cluster.database.password)}"
    yield f"StorageLoc={cluster.database.name}"
    yield f"PidFile={cluster.places.pid_dir}/slurmdbd.pid"
    yield f"LogFile={cluster.places.log_dir}/slurmdbd.log"
    yield from _plugin_dir(cluster)
    yield "DebugLevel=info"


def _identity(cluster: model.SlurmCluster) -> Iterator[str]:
    yield f"ClusterName={cluster.name}"
    yield f"SlurmctldHost={cluster.controller_host}({cluster.address})"
    yield f"SlurmctldPort={cluster.controller_port}"
    yield f"SlurmUser={cluster.slurm_user}"
    yield "SlurmdUser=root"
    yield "AuthType=auth/munge"
    yield f"AuthInfo=socket={cluster.places.munge_socket},cred_expire={cluster.cred_expire}"
    if cluster.listen_on_address_only:
        yield "CommunicationParameters=NoInAddrAny,NoCtldInAddrAny"


def _files(cluster: model.SlurmCluster) -> Iterator[str]:
    places = cluster.places
    yield f"StateSaveLocation={places.state_dir}"
    yield f"SlurmdSpoolDir={places.spool_dir}/%n"
    yield f"SlurmctldPidFile={places.pid_dir}/slurmctld.pid"
    yield f"SlurmdPidFile={places.pid_dir}/slurmd-%n.pid"
    yield f"SlurmctldLogFile={places.log_dir}/slurmctld.log"
    yield f"SlurmdLogFile={places.log_dir}/slurmd-%n.log"
    yield from _plugin_dir(cluster)
    yield "SlurmctldDebug=info"
    yield "SlurmdDebug=info"


def _plugin_dir(cluster: model.SlurmCluster) -> Iterator[str]:
    if cluster.places.plugin_dir:
        yield f"PluginDir={cluster.places.plugin_dir}"


def _processes(cluster: model.SlurmCluster) -> Iterator[str]:
    yield "ProctrackType=proctrack/pgid"
    yield "TaskPlugin=task/none"
    yield "MpiDefault=none"
    yield "SlurmdParameters=config_overrides"
    yield "ReturnToService=2"
    yield f"MaxArraySize={cluster.max_array_size}"
    yield "MaxJobCount=50000"
    yield "MailProg=/bin/true"


def _timeouts(cluster: model.SlurmCluster) -> Iterator[str]:
    yield f"KillWait={cluster.kill_wait}"
    yield "MinJobAge=300"
    yield "MessageTimeout=30"
    yield "UnkillableStepTimeout=180"
    yield "SlurmctldTimeout=60"
    yield "SlurmdTimeout=120"
    yield "InactiveLimit=0"


def _scheduling(cluster: model.SlurmCluster) -> Iterator[str]:
    yield "SchedulerType=sched/backfill"
    yield f"SchedulerParameters={','.join(cluster.priorities.parameters)}"
    yield "SelectType=select/cons_tres"
    yield "SelectTypeParameters=CR_Core_Memory"
    yield f"DefMemPerCPU={cluster.priorities.memory_of_a_cpu(cluster.nodes)}"
    yield "PreemptType=preempt/qos"
    yield "PreemptMode=REQUEUE"
    yield "PriorityType=priority/multifactor"
    yield f"PriorityDecayHalfLife={cluster.priorities.decay_half_life}"
    yield "PriorityCalcPeriod=00:01:00"
    yield f"PriorityMaxAge={cluster.priorities.max_age}"
    for factor, weight in cluster.priorities.weights:
        yield f"PriorityWeight{factor}={weight}"
    yield "GresTypes=gpu"


def _accounting(cluster: model.SlurmCluster) -> Iterator[str]:
    yield "AccountingStorageType=accounting_storage/slurmdbd"
    yield f"AccountingStorageHost={cluster.accounting_address or cluster.address}"
    yield f"AccountingStoragePort={cluster.accounting_port}"
    yield f"AccountingStoragePass={cluster.places.munge_socket}"
    yield "AccountingStorageTRES=gres/gpu"
    yield f"AccountingStorageEnforce={','.join(cluster.database.enforce)}"
    yield "AccountingStoreFlags=job_comment"
    yield "JobAcctGatherType=jobacct_gather/none"
    yield "JobCompType=jobcomp/none"


def _bridge(cluster: model.SlurmCluster) -> Iterator[str]:
    if cluster.hooks is None:
        yield "# none"
        return
    yield "JobSubmitPlugins=lua"
    if cluster.submit_filter:
        yield "CliFilterPlugins=lua"
    yield f"PrologSlurmctld={cluster.hooks.prolog_slurmctld}"
    if cluster.hooks_everywhere:
        yield from slurmd_hook_lines(cluster.hooks)
    for option in releases.traits(cluster.release).hook_timeouts:
        yield f"{option}={cluster.prolog_epilog_timeout}"


def slurmd_hook_lines(hooks: model.BridgeHooks) -> Iterator[str]:
    """A missing program, or a pattern without a match, fails the job and drains the node, everywhere."""
    yield f"Epilog={hooks.epilog}"
    yield "UsePAM=1" if hooks.pam else f"TaskProlog={hooks.task_prolog}"


def render_slurmd_conf(hooks: model.BridgeHooks, *, conf: str) -> str:
    """For slurmds of bridged nodes: slurm.conf with the hooks that other slurmds do not run."""
    return HEADER + "".join(f"{line}\n" for line in (f"include {conf}", *slurmd_hook_lines(hooks)))


def _nodes_and_partitions(cluster: model.SlurmCluster) -> Iterator[str]:
    for node in cluster.nodes:
        yield node_line(node, address=cluster.address)
    names = tuple(node.name for node in cluster.nodes)
    for partition in cluster.partitions:
        yield partition_line(partition, nodes=partition.nodes or names)


def node_line(node: model.NodeSpec, *, address: str) -> str:
    gres = f" Gres=gpu:{node.gpu_type + ':' if node.gpu_type else ''}{node.gpus}" if node.gpus else ""
    features = f" Feature={','.join(node.features)}" if node.features else ""
    where = f" NodeHostname={node.host} NodeAddr={node.address or address}" if node.host else ""
    port = f" Port={node.port}" if node.port else ""
    return (
        f"NodeName={node.name}{where}{port} CPUs={node.cpus}"
        f" Boards=1 SocketsPerBoard=1 CoresPerSocket={node.cpus} ThreadsPerCore=1"
        f" RealMemory={node.memory_mb}{gres}{features} State=UNKNOWN"
    )


def partition_line(partition: model.PartitionSpec, *, nodes: tuple[str, ...]) -> str:
    default = "YES" if partition.default else "NO"
    options = "".join(f" {name}={value}" for name, value in partition.options)
    return (
        f"PartitionName={partition.name} Nodes={','.join(nodes)} Default={default}"
        f" MaxTime={partition.max_time} DefaultTime={partition.default_time}{options}"
        " OverSubscribe=NO State=UP"
    )


def _quoted(secret: str) -> str:
    """Quote blanks and number signs for Slurm's parser."""
    if '"' in secret or not secret.isprintable():
        raise errors.UsageError(
            "the database's password has a quotation mark or a line break in it, which Slurm cannot read"
        )
    return '"' + secret.replace("\\", "\\\\").replace("#", "\\#") + '"'


def _typed(node: model.NodeSpec) -> str:
    return f" Type={node.gpu_type}" if node.gpu_type else ""


def _numbers(numbers: range) -> str:
    return f"[{numbers[0]}-{numbers[-1]}]" if len(numbers) > 1 else str(numbers[0])
