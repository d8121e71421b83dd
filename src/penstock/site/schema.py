"""The schema of the site file: every key with its type, default and description.

The reference (docs/reference/site.md), the JSON Schema for editors and error messages are generated from it.
Contradictions between keys are found by crosschecks.py.
"""

from __future__ import annotations

from typing import Annotated, Final, Literal

from pydantic import Field

from penstock.model import podcommands
from penstock.site.parts import Account, GpuType, NodeGroup, Part, Partition, PriorityClass, Quota
from penstock.site.scalars import (
    Address,
    Count,
    DnsName,
    Folder,
    GresType,
    Image,
    Memory,
    Name,
    Path,
    Pattern,
    Port,
    Positive,
    Release,
    Seconds,
    Time,
    Word,
)

VERSION: Final = 1


class Weights(Part):
    """Weights of multifactor priority."""

    age: Annotated[Count, Field(description="PriorityWeightAge.")] = 1000
    fairshare: Annotated[Count, Field(description="PriorityWeightFairshare.")] = 10000
    job_size: Annotated[Count, Field(description="PriorityWeightJobSize.")] = 500
    partition: Annotated[Count, Field(description="PriorityWeightPartition.")] = 0
    qos: Annotated[Count, Field(description="PriorityWeightQOS.")] = 0
    decay_half_life: Annotated[Time, Field(description="PriorityDecayHalfLife.")] = "7-0"
    max_age: Annotated[Time, Field(description="PriorityMaxAge.")] = "1-0"


class Scheduler(Part):
    """Slurm's scheduler. The defaults were measured."""

    parameters: Annotated[tuple[Word, ...], Field(description="SchedulerParameters.")] = (
        "bf_interval=5",
        "bf_continue",
        "sched_min_interval=100000",
        "sched_interval=5",
        "batch_sched_delay=0",
        "default_queue_depth=1000",
    )
    memory_per_cpu: Annotated[
        Memory | None, Field(description="DefMemPerCPU; default: half of a CPU's share of the smallest node.")
    ] = None
    weights: Annotated[Weights, Field(description="Weights of multifactor priority.")] = Weights()


class Accounting(Part):
    """slurmdbd and its database, with `manage: whole`."""

    host: Annotated[Address, Field(description="Host of slurmdbd.")] = "localhost"
    address: Annotated[Address | None, Field(description="Its address; default: the host.")] = None
    port: Annotated[Port, Field(description="slurmdbd's port.")] = 6819
    enforce: Annotated[tuple[Word, ...], Field(description="AccountingStorageEnforce.")] = (
        "associations",
        "limits",
        "qos",
        "safe",
    )
    database: Annotated[Name, Field(description="Name of the database.")] = "slurm_acct_db"
    database_host: Annotated[Address, Field(description="Host of the database.")] = "localhost"
    database_user: Annotated[Name | None, Field(description="Database user; default: SlurmUser.")] = None
    password_file: Annotated[Path | None, Field(description="File with the database password.")] = None


class Slurm(Part):
    """The Slurm cluster."""

    manage: Annotated[
        Literal["include", "whole"],
        Field(
            description="`include`: an existing slurm.conf gets one include line and is otherwise unchanged; "
            "`whole`: Penstock writes slurm.conf, gres.conf, cgroup.conf and slurmdbd.conf."
        ),
    ] = "include"
    conf: Annotated[Path, Field(description="slurm.conf.")] = "/etc/slurm/slurm.conf"
    release: Annotated[Release | None, Field(description="Release; default: as `slurmctld -V` says.")] = None
    user: Annotated[Name, Field(description="SlurmUser.")] = "slurm"
    controller: Annotated[Address, Field(description="Host of slurmctld.")] = "localhost"
    address: Annotated[Address | None, Field(description="Its address; default: the host.")] = None
    port: Annotated[Port, Field(description="slurmctld's port.")] = 6817
    listen_on_address_only: Annotated[bool, Field(description="Daemons listen on one address.")] = False
    munge_socket: Annotated[Path, Field(description="munged's socket.")] = "/run/munge/munge.socket.2"
    state_dir: Annotated[Path, Field(description="StateSaveLocation.")] = "/var/lib/slurm/slurmctld"
    spool_dir: Annotated[Path, Field(description="Parent of SlurmdSpoolDir.")] = "/var/lib/slurm/slurmd"
    pid_dir: Annotated[Path, Field(description="Folder of pid files.")] = "/run/slurm"
    log_dir: Annotated[Path, Field(description="Folder of logs.")] = "/var/log/slurm"
    gpu_device_dir: Annotated[Path, Field(description="Device files of virtual GPUs.")] = (
        "/var/lib/penstock/dev"
    )
    pam_file: Annotated[
        Path | None,
        Field(
            description="PAM service of the slurmds (/etc/pam.d/slurm) that refuses steps of bridged jobs "
            "before anything of the user runs (UsePAM); without it TaskProlog does, which is weaker."
        ),
    ] = None
    plugin_dir: Annotated[Path | None, Field(description="PluginDir, if not Slurm's default.")] = None
    commands_dir: Annotated[Path, Field(description="Folder of Slurm's commands.")] = "/usr/bin"
    max_array_size: Annotated[Positive, Field(description="MaxArraySize.")] = 10001
    restart: Annotated[
        tuple[str, ...], Field(description="Command that restarts slurmctld.", min_length=1)
    ] = (
        "systemctl",
        "restart",
        "slurmctld",
    )
    scheduler: Annotated[Scheduler, Field(description="Scheduler and priorities.")] = Scheduler()
    accounting: Annotated[Accounting, Field(description="slurmdbd and its database.")] = Accounting()


class Kubernetes(Part):
    """The Kubernetes cluster."""

    access: Annotated[
        Literal["kubeconfig", "in-cluster"],
        Field(
            description="How penstockd reaches the API: with a kubeconfig, or as a pod (`run: deployment`) "
            "with its service account's token, which the cluster renews."
        ),
    ] = "kubeconfig"
    service_account_dir: Annotated[
        Path, Field(description="Folder of token and ca.crt in a pod, for `access: in-cluster`.")
    ] = "/var/run/secrets/kubernetes.io/serviceaccount"
    api: Annotated[
        Address | None,
        Field(
            description="host:port of the API for `access: in-cluster` on a node that cannot reach the "
            "cluster's `kubernetes` service (no kube-proxy)."
        ),
    ] = None
    kubeconfig: Annotated[
        Path, Field(description="penstockd's kubeconfig; `apply` creates it if missing.")
    ] = "/etc/penstock/penstockd.kubeconfig"
    admin_kubeconfig: Annotated[Path | None, Field(description="Of administrators; or $KUBECONFIG.")] = None
    context: Annotated[str, Field(description="Context in admin_kubeconfig; default: the current one.")] = ""
    namespace: Annotated[DnsName, Field(description="Namespace of Penstock's objects.")] = "penstock-system"
    namespace_pattern: Annotated[
        Pattern,
        Field(
            description="Namespaces of jobs: by {user} or {uid}, or by {account}, shared by its users; "
            "{cluster} is the cluster's name."
        ),
    ] = "user-{user}"
    pod_security: Annotated[
        Literal["privileged", "baseline", "restricted"],
        Field(description="Pod Security level of users' namespaces; only `privileged` allows hostPath."),
    ] = "privileged"
    network_policy: Annotated[bool, Field(description="Deny traffic from other namespaces to users'.")] = True
    forbidden_directives: Annotated[
        tuple[Word, ...], Field(description="Forbidden `#K8S_` directives, such as MOUNT.")
    ] = ()
    pod_commands: Annotated[
        tuple[Word, ...],
        Field(description="Slurm's commands that jobs may call in their pods."),
    ] = podcommands.OFFERED


class Penstockd(Part):
    """penstockd and the hooks."""

    run: Annotated[
        Literal["systemd", "deployment", "none"],
        Field(description="What runs penstockd: systemd units, a Deployment, or your own means."),
    ] = "systemd"
    socket: Annotated[Path, Field(description="Socket of penstockd.")] = "/run/penstock/penstockd.sock"
    config: Annotated[Path, Field(description="penstockd's settings.")] = "/etc/penstock/penstockd.json"
    state_dir: Annotated[Path, Field(description="Folder for the state of `apply`.")] = "/var/lib/penstock"
    libexec: Annotated[Path, Field(description="Folder of the hooks.")] = "/usr/libexec/penstock"
    units: Annotated[Path, Field(description="Folder of systemd units.")] = "/etc/systemd/system"
    program: Annotated[Path, Field(description="Path of the penstock command.")] = "/usr/bin/penstock"
    restart: Annotated[
        tuple[str, ...],
        Field(description="Command that restarts our daemons; default with `run: systemd`: systemctl."),
    ] = ()
    image: Annotated[Image, Field(description="Image of the Deployment: Penstock with Slurm's commands.")] = (
        "penstock:latest"
    )
    node: Annotated[Name | None, Field(description="Node of the Deployment: slurmctld's host.")] = None
    host_paths: Annotated[
        tuple[Path, ...],
        Field(
            description="More host paths that the Deployment mounts read-only: "
            "what user names are looked up in."
        ),
    ] = ("/etc/passwd", "/etc/group")
    metrics_port: Annotated[int, Field(ge=0, le=65535, description="Prometheus port; 0: none.")] = 0
    log_level: Annotated[Literal["debug", "info", "warning"], Field(description="Log level.")] = "info"
    log_format: Annotated[Literal["text", "json"], Field(description="Log format.")] = "text"
    root_may_submit: Annotated[bool, Field(description="Whether jobs of root become pods.")] = False
    submit_filter: Annotated[
        bool, Field(description="sbatch shows the diagnostics of `penstock validate` (cli_filter).")
    ] = False


class NfsSource(Part):
    """An export of a file server."""

    server: Annotated[Address, Field(description="The file server.")]
    path: Annotated[Path, Field(description="The exported path.")]


class Nas(Part):
    """The folder that users, pods and Penstock share."""

    path: Annotated[Path, Field(description="Mount point, on hosts and in pods.")]
    in_pods: Annotated[bool, Field(description="Whether pods mount it.")] = True
    nfs: Annotated[NfsSource | None, Field(description="NFS export that pods mount.")] = None
    claim: Annotated[
        DnsName | None, Field(description="Or claim that pods mount; created in users' namespaces.")
    ] = None
    size: Annotated[Memory, Field(description="Size of volumes and claims.")] = "1Ti"
    storage_class: Annotated[DnsName, Field(description="StorageClass of the claims.")] = "nfs-client"
    provisioner: Annotated[Word | None, Field(description="Provisioner of a StorageClass to create.")] = None
    drop: Annotated[Folder, Field(description="Drop folder.")] = "slurm-jobs"
    results: Annotated[Folder, Field(description="Folder of the results.")] = "results"
    shared_mounts: Annotated[tuple[Path, ...], Field(description="More folders that pods mount.")] = ()
    missing_workdir: Annotated[
        Literal["refuse", "tmp"],
        Field(
            description="A job whose working directory is not in pods: `refuse` it at sbatch, or run it in "
            "`tmp`, its pod's /tmp, which is deleted with the pod. Without shared mounts it is `tmp`."
        ),
    ] = "refuse"


class Registry(Part):
    """Images and registries."""

    allowed: Annotated[
        tuple[Image, ...],
        Field(
            description="Prefixes of images that jobs may use; empty: all. A prefix ends where a part "
            "of the name ends: `registry.example.org/team` stands for that image and all below it. An image "
            "without a registry counts as docker.io's (`debian:12` is `docker.io/library/debian:12`)."
        ),
    ] = ()
    default_image: Annotated[Image | None, Field(description="Image of scripts that name none.")] = None
    pull_policy: Annotated[
        Literal["Always", "IfNotPresent", "Never"] | None, Field(description="As in Kubernetes.")
    ] = None
    pull_secrets: Annotated[tuple[DnsName, ...], Field(description="Secrets in users' namespaces.")] = ()
    prepull: Annotated[bool, Field(description="Pull default images to their nodes.")] = False


class Results(Part):
    """Settings of the collector, which writes the results of jobs."""

    config: Annotated[Path, Field(description="The collector's settings.")] = "/etc/penstock/collector.json"
    state_dir: Annotated[Path, Field(description="Folder of penstockd's records for the collector.")] = (
        "/var/lib/penstock/attempts"
    )
    max_bytes: Annotated[Memory, Field(description="Limit of collected output per job.")] = "1Ti"
    max_files: Annotated[Positive, Field(description="Limit of collected files per job.")] = 100000
    hook: Annotated[Path | None, Field(description="Program to run after each collection.")] = None
    webhook: Annotated[str | None, Field(description="URL to notify of each collection.")] = None


class Intake(Part):
    """Settings of the intake, which submits files of the drop folder."""

    config: Annotated[Path, Field(description="The intake's settings.")] = "/etc/penstock/intake.json"
    state_dir: Annotated[Path, Field(description="Its journal, on a local disk.")] = (
        "/var/lib/penstock/intake"
    )
    status: Annotated[Path, Field(description="Status file.")] = "/run/penstock/inbox.json"
    workdir: Annotated[
        str,
        Field(description="Working directory of jobs; {home}, {user} and {uid} are replaced.", min_length=1),
    ] = "{home}"
    settle_seconds: Annotated[Seconds, Field(description="A file is complete if unchanged for so long.")] = 2
    max_file_size: Annotated[Memory, Field(description="Maximum size of a script.")] = "4Mi"
    in_flight_per_user: Annotated[Positive, Field(description="Concurrent submissions per user.")] = 3


class Timeouts(Part):
    """Timeouts in seconds; kill_wait < release < epilog."""

    admit: Annotated[Seconds, Field(description="How long PrologSlurmctld waits for penstockd.")] = 20
    kill_wait: Annotated[Seconds, Field(description="KillWait, and the grace period of pods.")] = 30
    release: Annotated[Seconds, Field(description="How long the Epilog waits for pods to be gone.")] = 270
    epilog: Annotated[Seconds, Field(description="PrologEpilogTimeout.")] = 300
    start: Annotated[Seconds, Field(description="How long a pod may take to start.")] = 300
    cred_expire: Annotated[Seconds, Field(description="A requeued job waits a little longer.")] = 10


class Site(Part):
    """Top level of the site file."""

    version: Annotated[Literal[1], Field(description="Version of this format.")] = VERSION
    cluster: Annotated[DnsName, Field(description="ClusterName.")]
    slurm: Annotated[Slurm, Field(description="Slurm.")] = Slurm()
    kubernetes: Annotated[Kubernetes, Field(description="Kubernetes.")] = Kubernetes()
    penstockd: Annotated[Penstockd, Field(description="penstockd and the hooks.")] = Penstockd()
    nas: Annotated[Nas | None, Field(description="The NAS.")] = None
    registry: Annotated[Registry, Field(description="Images and registries.")] = Registry()
    gpus: Annotated[dict[GresType, GpuType], Field(description="GPU types by GRES type.")] = {}
    node_groups: Annotated[dict[Name, NodeGroup], Field(description="Groups of equal nodes.", min_length=1)]
    partitions: Annotated[dict[Name, Partition], Field(description="Partitions.", min_length=1)]
    priority_classes: Annotated[
        dict[DnsName, PriorityClass], Field(description="PriorityClasses to create.")
    ] = {}
    accounts: Annotated[dict[Name, Account], Field(description="Accounts, their users and limits.")] = {}
    quota: Annotated[Quota | None, Field(description="Quota of namespaces without one of their own.")] = None
    results: Annotated[Results, Field(description="Settings of the collector.")] = Results()
    intake: Annotated[Intake, Field(description="Settings of the intake.")] = Intake()
    timeouts: Annotated[Timeouts, Field(description="Timeouts in seconds.")] = Timeouts()
