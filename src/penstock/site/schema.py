"""What a site file may say: every key with its kind, its default and one line on what it does.

The reference (docs/reference/site.md), the JSON Schema for editors and every error message are made from this
and from nothing else. Keys that contradict each other are found in checking.py.
"""

from __future__ import annotations

from typing import Annotated, Final, Literal

from pydantic import Field

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

    age: Annotated[Count, Field(description="How much waiting counts.")] = 1000
    fairshare: Annotated[Count, Field(description="How much past use counts.")] = 10000
    job_size: Annotated[Count, Field(description="How much being big counts.")] = 500
    partition: Annotated[Count, Field(description="How much the partition's `priority` counts.")] = 0
    qos: Annotated[Count, Field(description="How much the QOS counts.")] = 0
    decay_half_life: Annotated[Time, Field(description="After this time past use counts half.")] = "7-0"
    max_age: Annotated[Time, Field(description="Waiting longer than this counts no more.")] = "1-0"


class Scheduler(Part):
    """Slurm's scheduler; the defaults are the measured ones."""

    parameters: Annotated[tuple[Word, ...], Field(description="SchedulerParameters.")] = (
        "bf_interval=5",
        "bf_continue",
        "sched_min_interval=100000",
        "sched_interval=5",
        "batch_sched_delay=0",
        "default_queue_depth=1000",
    )
    memory_per_cpu: Annotated[
        Memory | None,
        Field(description="DefMemPerCPU; by default half of a CPU's even share of the smallest node."),
    ] = None
    weights: Annotated[Weights, Field(description="Weights of multifactor priority.")] = Weights()


class Accounting(Part):
    """slurmdbd and its database; used with `manage: whole`."""

    host: Annotated[Address, Field(description="Where slurmdbd is reached.")] = "localhost"
    address: Annotated[Address | None, Field(description="Its address; by default the host's.")] = None
    port: Annotated[Port, Field(description="slurmdbd's port.")] = 6819
    enforce: Annotated[tuple[Word, ...], Field(description="AccountingStorageEnforce.")] = (
        "associations",
        "limits",
        "qos",
        "safe",
    )
    database: Annotated[Name, Field(description="Name of the database.")] = "slurm_acct_db"
    database_host: Annotated[Address, Field(description="Where the database is.")] = "localhost"
    database_user: Annotated[Name | None, Field(description="Its user; SlurmUser by default.")] = None
    password_file: Annotated[
        Path | None,
        Field(description="File with the database password, which is never written into the site file."),
    ] = None


class Slurm(Part):
    """The Slurm that decides."""

    manage: Annotated[
        Literal["include", "whole"],
        Field(
            description="`include`: an existing slurm.conf gets one include line and keeps everything else; "
            "`whole`: slurm.conf, gres.conf, cgroup.conf and slurmdbd.conf are written."
        ),
    ] = "include"
    conf: Annotated[Path, Field(description="slurm.conf.")] = "/etc/slurm/slurm.conf"
    release: Annotated[
        Release | None, Field(description="Release of Slurm; by default what `slurmctld -V` says.")
    ] = None
    user: Annotated[Name, Field(description="SlurmUser.")] = "slurm"
    controller: Annotated[Address, Field(description="Host of slurmctld.")] = "localhost"
    address: Annotated[Address | None, Field(description="Its address; by default the host's.")] = None
    port: Annotated[Port, Field(description="slurmctld's port.")] = 6817
    listen_on_address_only: Annotated[
        bool, Field(description="Daemons listen on their node's address instead of on all of them.")
    ] = False
    munge_socket: Annotated[Path, Field(description="munged's socket.")] = "/run/munge/munge.socket.2"
    state_dir: Annotated[Path, Field(description="StateSaveLocation.")] = "/var/lib/slurm/slurmctld"
    spool_dir: Annotated[Path, Field(description="Parent of SlurmdSpoolDir.")] = "/var/lib/slurm/slurmd"
    pid_dir: Annotated[Path, Field(description="Folder of pid files.")] = "/run/slurm"
    log_dir: Annotated[Path, Field(description="Folder of logs.")] = "/var/log/slurm"
    gpu_device_dir: Annotated[
        Path, Field(description="Folder of the files that stand for GPUs of virtual nodes.")
    ] = "/var/lib/penstock/dev"
    pam_file: Annotated[
        Path | None,
        Field(
            description="PAM service of the slurmds (/etc/pam.d/slurm) that stops steps of bridged jobs "
            "before anything of the user's runs (UsePAM); without it TaskProlog, a weaker lock, has to do."
        ),
    ] = None
    plugin_dir: Annotated[
        Path | None, Field(description="PluginDir, when Slurm's plugins are elsewhere.")
    ] = None
    commands_dir: Annotated[
        Path,
        Field(description="Folder of Slurm's commands: the PAM session, `apply` and the daemons look there."),
    ] = "/usr/bin"
    max_array_size: Annotated[Positive, Field(description="MaxArraySize.")] = 10001
    restart: Annotated[
        tuple[str, ...], Field(description="Command that restarts slurmctld.", min_length=1)
    ] = ("systemctl", "restart", "slurmctld")
    scheduler: Annotated[Scheduler, Field(description="Scheduler and priorities.")] = Scheduler()
    accounting: Annotated[Accounting, Field(description="slurmdbd and its database.")] = Accounting()


class Kubernetes(Part):
    """The Kubernetes that runs."""

    access: Annotated[
        Literal["kubeconfig", "in-cluster"],
        Field(
            description="How penstockd reaches the API: by a kubeconfig, or as a pod (`run: deployment`) "
            "with its service account's own token, which the cluster renews."
        ),
    ] = "kubeconfig"
    service_account_dir: Annotated[
        Path, Field(description="Where a pod finds token and ca.crt, for `access: in-cluster`.")
    ] = "/var/run/secrets/kubernetes.io/serviceaccount"
    api: Annotated[
        Address | None,
        Field(
            description="host:port of the API for a pod on a node that cannot reach the cluster's "
            "`kubernetes` service (no kube-proxy); for `access: in-cluster`."
        ),
    ] = None
    kubeconfig: Annotated[
        Path, Field(description="penstockd's kubeconfig; `apply` makes it when it is not there.")
    ] = "/etc/penstock/penstockd.kubeconfig"
    admin_kubeconfig: Annotated[
        Path | None, Field(description="Kubeconfig for `apply` and `doctor`; by default $KUBECONFIG.")
    ] = None
    context: Annotated[
        str, Field(description="Context of the admin kubeconfig; by default its current one.")
    ] = ""
    namespace: Annotated[DnsName, Field(description="Namespace of penstockd's own objects.")] = (
        "penstock-system"
    )
    namespace_pattern: Annotated[
        Pattern,
        Field(
            description="Namespace of jobs: by {user} or {uid}, or by {account}, which its users share; "
            "{cluster} is the cluster's name."
        ),
    ] = "user-{user}"
    pod_security: Annotated[
        Literal["privileged", "baseline", "restricted"],
        Field(description="Pod Security level of users' namespaces; all but the first forbid hostPath."),
    ] = "privileged"
    network_policy: Annotated[bool, Field(description="Users' namespaces refuse traffic from elsewhere.")] = (
        True
    )
    forbidden_directives: Annotated[
        tuple[Word, ...],
        Field(description="`#K8S_` directives that scripts may not have, without the prefix, such as MOUNT."),
    ] = ()


class Penstockd(Part):
    """penstockd and the hooks."""

    run: Annotated[
        Literal["systemd", "deployment", "none"],
        Field(description="Who runs penstockd: units, a Deployment, or something of your own."),
    ] = "systemd"
    socket: Annotated[Path, Field(description="Socket for hooks and commands.")] = (
        "/run/penstock/penstockd.sock"
    )
    config: Annotated[Path, Field(description="penstockd's settings.")] = "/etc/penstock/penstockd.json"
    state_dir: Annotated[Path, Field(description="Folder of Penstock's own notes, of `apply` above all.")] = (
        "/var/lib/penstock"
    )
    libexec: Annotated[Path, Field(description="Folder of the hooks.")] = "/usr/libexec/penstock"
    units: Annotated[Path, Field(description="Folder of systemd units.")] = "/etc/systemd/system"
    program: Annotated[Path, Field(description="The penstock command, on hosts and in the image.")] = (
        "/usr/bin/penstock"
    )
    restart: Annotated[
        tuple[str, ...],
        Field(description="Restarts penstockd, intake and collector; systemctl with `run: systemd`."),
    ] = ()
    image: Annotated[
        Image, Field(description="Image of the Deployment: Penstock (at `program`) with Slurm's commands.")
    ] = "penstock:latest"
    node: Annotated[
        Name | None, Field(description="Kubernetes' name of slurmctld's host, for the Deployment.")
    ] = None
    host_paths: Annotated[
        tuple[Path, ...],
        Field(
            description="More of the host that the Deployment's pod sees under its path, read-only: "
            "whatever users are looked up in."
        ),
    ] = ("/etc/passwd", "/etc/group")
    metrics_port: Annotated[int, Field(ge=0, le=65535, description="Port for Prometheus; 0 for none.")] = 0
    log_level: Annotated[Literal["debug", "info", "warning"], Field(description="How much it says.")] = "info"
    log_format: Annotated[Literal["text", "json"], Field(description="For people or for machines.")] = "text"
    root_may_submit: Annotated[bool, Field(description="Whether jobs of root become pods.")] = False
    submit_filter: Annotated[
        bool, Field(description="Show the diagnostics of `penstock validate` at sbatch (cli_filter).")
    ] = False


class NfsSource(Part):
    """An export of a file server."""

    server: Annotated[Address, Field(description="The file server.")]
    path: Annotated[Path, Field(description="What it exports.")]


class Nas(Part):
    """The shared folder that users, pods and Penstock all see."""

    path: Annotated[Path, Field(description="Where it is mounted, on hosts and in pods.")]
    in_pods: Annotated[bool, Field(description="Whether pods see it, too.")] = True
    nfs: Annotated[NfsSource | None, Field(description="Pods mount it from this server.")] = None
    claim: Annotated[
        DnsName | None, Field(description="Pods mount it through this claim, which users' namespaces get.")
    ] = None
    size: Annotated[Memory, Field(description="Size written into volumes and claims.")] = "1Ti"
    storage_class: Annotated[DnsName, Field(description="StorageClass of the claims.")] = "nfs-client"
    provisioner: Annotated[Word | None, Field(description="Its provisioner; without one it is not made.")] = (
        None
    )
    drop: Annotated[Folder, Field(description="Drop folder: submit, processed and failed are in it.")] = (
        "slurm-jobs"
    )
    results: Annotated[Folder, Field(description="Results by job.")] = "results"
    shared_mounts: Annotated[
        tuple[Path, ...], Field(description="More folders that pods see under their path.")
    ] = ()
    missing_workdir: Annotated[
        Literal["refuse", "tmp"],
        Field(
            description="A job whose working directory pods do not see: `refuse` it at sbatch, or let it run "
            "in `tmp`, its pod's /tmp, whose files go with it. Where pods see no folder at all, it is `tmp`."
        ),
    ] = "refuse"


class Registry(Part):
    """Where images come from."""

    allowed: Annotated[
        tuple[Image, ...],
        Field(
            description="Prefixes of images that jobs may use; none allows all. A prefix ends where a part "
            "of the name ends: `registry.example.org/team` stands for that image and all below it. An image "
            "without a registry counts as docker.io's (`debian:12` is `docker.io/library/debian:12`)."
        ),
    ] = ()
    default_image: Annotated[Image | None, Field(description="Image of scripts that name none.")] = None
    pull_policy: Annotated[
        Literal["Always", "IfNotPresent", "Never"] | None, Field(description="As in Kubernetes.")
    ] = None
    pull_secrets: Annotated[tuple[DnsName, ...], Field(description="Secrets in users' namespaces.")] = ()
    prepull: Annotated[bool, Field(description="Keep default images on every node of their partition.")] = (
        False
    )


class Results(Part):
    """What is kept of a job: settings of the collector."""

    config: Annotated[Path, Field(description="The collector's settings.")] = "/etc/penstock/collector.json"
    state_dir: Annotated[Path, Field(description="What penstockd leaves for the collector.")] = (
        "/var/lib/penstock/attempts"
    )
    max_bytes: Annotated[Memory, Field(description="Most output that is collected of one job.")] = "1Ti"
    max_files: Annotated[Positive, Field(description="Most files that are collected of one job.")] = 100000
    hook: Annotated[Path | None, Field(description="Program that is run after each collection.")] = None
    webhook: Annotated[str | None, Field(description="URL that is told of each collection.")] = None


class Intake(Part):
    """Files on the NAS that become jobs: settings of the intake."""

    config: Annotated[Path, Field(description="The intake's settings.")] = "/etc/penstock/intake.json"
    state_dir: Annotated[Path, Field(description="Its journal, on a local disk.")] = (
        "/var/lib/penstock/intake"
    )
    status: Annotated[Path, Field(description="Where it says how it is.")] = "/run/penstock/inbox.json"
    workdir: Annotated[
        str, Field(description="Where jobs run; {home}, {user} and {uid} are replaced.", min_length=1)
    ] = "{home}"
    settle_seconds: Annotated[Seconds, Field(description="A file unchanged for this long is whole.")] = 2
    max_file_size: Annotated[Memory, Field(description="Largest script.")] = "4Mi"
    in_flight_per_user: Annotated[Positive, Field(description="Submissions of one user at a time.")] = 3


class Timeouts(Part):
    """Seconds, each with room for the one before: kill_wait < release < epilog."""

    admit: Annotated[Seconds, Field(description="PrologSlurmctld waits for penstockd.")] = 20
    kill_wait: Annotated[Seconds, Field(description="KillWait, and the grace of pods.")] = 30
    release: Annotated[Seconds, Field(description="The Epilog waits for pods to be gone.")] = 270
    epilog: Annotated[Seconds, Field(description="Slurm's PrologEpilogTimeout.")] = 300
    start: Annotated[Seconds, Field(description="A pod may take this long to start.")] = 300
    cred_expire: Annotated[Seconds, Field(description="A job that was sent back waits a little longer.")] = 10


class Site(Part):
    """The whole file."""

    version: Annotated[Literal[1], Field(description="Version of this format.")] = VERSION
    cluster: Annotated[DnsName, Field(description="ClusterName.")]
    slurm: Annotated[Slurm, Field(description="The Slurm that decides.")] = Slurm()
    kubernetes: Annotated[Kubernetes, Field(description="The Kubernetes that runs.")] = Kubernetes()
    penstockd: Annotated[Penstockd, Field(description="penstockd and the hooks.")] = Penstockd()
    nas: Annotated[Nas | None, Field(description="The shared folder.")] = None
    registry: Annotated[Registry, Field(description="Where images come from.")] = Registry()
    gpus: Annotated[dict[GresType, GpuType], Field(description="GPU types by their GRES type.")] = {}
    node_groups: Annotated[dict[Name, NodeGroup], Field(description="Nodes that are alike.", min_length=1)]
    partitions: Annotated[dict[Name, Partition], Field(description="Queues.", min_length=1)]
    priority_classes: Annotated[
        dict[DnsName, PriorityClass], Field(description="PriorityClasses that are made.")
    ] = {}
    accounts: Annotated[dict[Name, Account], Field(description="Accounts, their users and limits.")] = {}
    quota: Annotated[Quota | None, Field(description="Quota of every namespace of jobs that has no own.")] = (
        None
    )
    results: Annotated[Results, Field(description="What is kept of a job.")] = Results()
    intake: Annotated[Intake, Field(description="Files on the NAS that become jobs.")] = Intake()
    timeouts: Annotated[Timeouts, Field(description="Seconds, in the right order.")] = Timeouts()
