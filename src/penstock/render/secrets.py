"""The Secret of an attempt: agent, script, arguments and environment. Owned by rank 0's pod."""

from __future__ import annotations

import base64
from importlib import resources as package_files

from penstock import errors, wellknown
from penstock.model import jobs, launches, namespacepattern, podcommands
from penstock.model.podpolicy import PodPolicy
from penstock.render import podenv, pods, workdirs

SECRET_LIMIT = 1024 * 1024 - 16 * 1024  # the API's limit is 1 MiB, names and metadata included
_HOOKS = package_files.files("penstock.hooks")
AGENT = _HOOKS.joinpath("agent.sh").read_bytes()
SERVER = _HOOKS.joinpath("serve.sh").read_bytes()
SHIM = _HOOKS.joinpath("shim.sh").read_bytes()
SHIMMED = f"#!/bin/sh\n. {wellknown.AGENT_MOUNT}/shim.sh\n".encode()
"""A command of Slurm's in the pod: the shim knows by its name which."""


def render_secret(
    identity: jobs.JobIdentity,
    *,
    owner: launches.Owner,
    request: launches.LaunchRequest,
    policy: PodPolicy,
    owner_pod_uid: str,
) -> pods.Manifest:
    """UsageError if it is too large for Kubernetes."""
    files = secret_files(request, policy, workdirs.home_of(owner, request.pod, policy.shared_mounts))
    size = sum(map(len, files.values()))
    if size > SECRET_LIMIT:
        raise errors.UsageError(
            f"script and environment are {size} bytes; Kubernetes takes at most {SECRET_LIMIT} for a job",
            hint="keep data out of the script, or submit with a smaller environment (--export=NONE)",
        )
    return {
        "apiVersion": "v1",
        "kind": "Secret",
        "type": "penstock.dev/job",
        "immutable": True,
        "metadata": {
            "name": pods.secret_name(identity),
            "namespace": namespacepattern.namespace_of(owner, policy),
            "labels": pods.labels_of(identity, policy.cluster),
            "ownerReferences": [
                {"apiVersion": "v1", "kind": "Pod", "name": pods.pod_name(identity, 0), "uid": owner_pod_uid}
            ],
        },
        "data": {name: base64.b64encode(content).decode() for name, content in files.items()},
    }


def secret_files(request: launches.LaunchRequest, policy: PodPolicy, home: workdirs.Home) -> dict[str, bytes]:
    """The files in AGENT_MOUNT; agent.sh describes them."""
    stdout, stderr = _output_files(request, policy)
    kept = wellknown.OUTPUT_MOUNT if pods.fetched(request, policy) else ""
    return {
        "agent.sh": AGENT,
        "serve.sh": SERVER,
        "shim.sh": SHIM,
        **dict.fromkeys(podcommands.SHIMS, SHIMMED),
        wellknown.SCRIPT_FILE: b"#!" + request.interpreter + b"\n" + request.script.partition(b"\n")[2],
        "arguments": podenv.set_line(_command(request)),
        "environment": podenv.export_lines(podenv.variables(request, home)),
        "settings": podenv.assignments(
            {
                "penstock_workdir": workdirs.workdir_of(request, policy.shared_mounts),
                "penstock_lost_workdir": workdirs.lost_workdir(request, policy.shared_mounts),
                "penstock_umask": request.umask,
                "penstock_stdin": request.stdin,
                "penstock_output_dir": request.output_dir,
                "penstock_outputs": _copied_outputs(request, policy),
                "penstock_stdout": stdout,
                "penstock_stderr": stderr,
                "penstock_kept": kept.encode(),
            }
        ),
    }


def _copied_outputs(request: launches.LaunchRequest, policy: PodPolicy) -> bytes:
    """Patterns of files that vanish with the container; those in shared folders stay."""
    workdir = workdirs.workdir_of(request, policy.shared_mounts)
    return b"" if pods.is_shared(workdir, policy) else "\n".join(request.outputs).encode()


def _command(request: launches.LaunchRequest) -> tuple[bytes, ...]:
    """#K8S_COMMAND, or the interpreter with #K8S_SCRIPT or the batch script and its arguments."""
    if request.pod.command:
        return tuple(word.encode() for word in request.pod.command)
    script = request.pod.script or f"{wellknown.AGENT_MOUNT}/{wellknown.SCRIPT_FILE}"
    words = request.interpreter.strip().split(None, 1)  # as the kernel splits a `#!` line
    return (*words, script.encode(), *request.arguments)


def _output_files(request: launches.LaunchRequest, policy: PodPolicy) -> tuple[bytes, bytes]:
    """Targets of stdout and stderr in the pod: the user's files, or files kept in the pod."""
    kept = tuple(f"{wellknown.OUTPUT_MOUNT}/{number}".encode() for number in (1, 2))
    stdout = request.stdout if pods.written_by_pod(request.stdout, policy) else kept[0]
    if request.stderr == request.stdout:
        return stdout, stdout
    return stdout, request.stderr if pods.written_by_pod(request.stderr, policy) else kept[1]
