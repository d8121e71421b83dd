"""penstockd's settings: a JSON file whose keys are all checked; unknown ones are errors."""

from __future__ import annotations

from pathlib import Path

import msgspec

from penstock import errors
from penstock.kube import incluster
from penstock.kube import kubeconfig as kubeconfigs
from penstock.model.podpolicy import PodPolicy


class Settings(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    socket: str
    kubeconfig: str
    """Empty for the pod's service account, whose files are in `service_account_dir`."""
    slurm_conf: str
    hook_uids: list[int]
    pods: PodPolicy
    service_account_dir: str = str(incluster.SERVICE_ACCOUNT)
    log_level: str = "info"
    log_format: str = "text"
    metrics_port: int = 0
    start_timeout: float = 300.0
    state_dir: str = ""
    results: str = ""

    @property
    def folders(self) -> tuple[Path, ...]:
        """Folders in which penstockd creates files."""
        return (Path(self.socket).parent, *((Path(self.state_dir),) if self.state_dir else ()))

    def access(self) -> kubeconfigs.Access:
        if self.kubeconfig:
            return kubeconfigs.load(Path(self.kubeconfig))
        return incluster.load(Path(self.service_account_dir))


def load(path: Path) -> Settings:
    try:
        return msgspec.json.decode(path.read_bytes(), type=Settings)
    except OSError as error:
        raise errors.UsageError(f"cannot read {path}: {error.strerror}") from error
    except msgspec.ValidationError as error:
        hint = "Written by another release or by hand: `penstock apply` renews it."
        raise errors.UsageError(f"{path} does not fit this release: {error}", hint=hint) from error
    except (msgspec.MsgspecError, UnicodeDecodeError) as error:
        raise errors.UsageError(f"{path}: {error}") from error
