"""penstockd's settings: a JSON file, every key checked, unknown ones refused."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import msgspec

from penstock import errors
from penstock.kube import incluster
from penstock.kube import kubeconfig as kubeconfigs
from penstock.render import pods

NAMESPACE_QUOTA = {"pods": "2000", "secrets": "4000"}
"""No user needs more at once, and no mistake of a user's fills the API server."""


class Settings(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """What penstockd must be told about its site."""

    socket: str
    kubeconfig: str
    """Empty for the pod's own account, whose files are in `service_account_dir`."""
    slurm_conf: str
    hook_uids: list[int]
    bridged_partitions: list[str]
    shared_mounts: list[str]
    default_image: str
    service_account_dir: str = str(incluster.SERVICE_ACCOUNT)
    namespace_pattern: str = "user-{user}"
    kill_wait: int = 30
    log_level: str = "info"
    log_format: str = "text"
    metrics_port: int = 0
    trusted_partitions: list[str] = []
    start_timeout: float = 300.0
    allowed_images: list[str] = []
    forbidden_directives: list[str] = []
    image_pull_policy: str = ""
    image_pull_secrets: list[str] = []
    priority_classes: dict[str, str] = {}
    gpu_labels: dict[str, dict[str, str]] = {}
    gpu_resources: dict[str, str] = {}
    namespace_quota: dict[str, str] = msgspec.field(default_factory=lambda: dict(NAMESPACE_QUOTA))
    isolate_namespaces: bool = True
    reserved_namespaces: list[str] = []
    state_dir: str = ""
    results: str = ""
    partition_images: dict[str, str] = {}
    partition_tolerations: dict[str, list[dict[str, str]]] = {}
    partition_node_selectors: dict[str, dict[str, str]] = {}
    allowed_tolerations: dict[str, list[str]] = {}
    allowed_node_labels: dict[str, list[str]] = {}
    mount_sources: dict[str, dict[str, Any]] = {}

    @property
    def folders(self) -> tuple[Path, ...]:
        """Those that penstockd makes files in."""
        return (Path(self.socket).parent, *((Path(self.state_dir),) if self.state_dir else ()))

    def access(self) -> kubeconfigs.Access:
        """The way to the API."""
        if self.kubeconfig:
            return kubeconfigs.load(Path(self.kubeconfig))
        return incluster.load(Path(self.service_account_dir))

    @property
    def pods(self) -> pods.PodSettings:
        """The part that shapes pods."""
        return pods.PodSettings(
            default_image=self.default_image,
            shared_mounts=tuple(mount.rstrip("/") for mount in self.shared_mounts),
            namespace_pattern=self.namespace_pattern,
            kill_wait=self.kill_wait,
            trusted_partitions=frozenset(self.trusted_partitions),
            allowed_images=tuple(self.allowed_images),
            forbidden_directives=frozenset(self.forbidden_directives),
            image_pull_policy=self.image_pull_policy,
            image_pull_secrets=tuple(self.image_pull_secrets),
            priority_classes=self.priority_classes,
            gpu_labels=self.gpu_labels,
            gpu_resources=self.gpu_resources,
            namespace_quota=self.namespace_quota,
            isolate_namespaces=self.isolate_namespaces,
            reserved_namespaces=frozenset(self.reserved_namespaces),
            partition_images=self.partition_images,
            partition_tolerations=self.partition_tolerations,
            partition_node_selectors=self.partition_node_selectors,
            allowed_tolerations=self.allowed_tolerations,
            allowed_node_labels=self.allowed_node_labels,
            mount_sources=self.mount_sources,
        )


def load(path: Path) -> Settings:
    """Settings from the file; UsageError names what is wrong with it."""
    try:
        return msgspec.json.decode(path.read_bytes(), type=Settings)
    except OSError as error:
        raise errors.UsageError(f"cannot read {path}: {error.strerror}") from error
    except (msgspec.MsgspecError, UnicodeDecodeError) as error:
        raise errors.UsageError(f"{path}: {error}") from error
