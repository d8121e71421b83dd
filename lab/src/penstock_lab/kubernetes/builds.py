"""Kubernetes' binaries, built once from Go modules and cached outside the checkout.

The cache key is the hash of the module files and of Go's version. go.sum verifies every module.
"""

from __future__ import annotations

import hashlib
import os
import re
import shutil
import subprocess
import time
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from penstock import errors
from penstock_lab import cache, taskgraph

SOURCE = Path(__file__).resolve().parents[3] / "kubernetes"
USUAL_GO_PLACES = ("/usr/local/go/bin", "/usr/lib/go/bin", "/snap/bin")
OLDEST_GO = (1, 26)
BUILD_SECONDS = 3600.0
NICENESS = 10
FETCHING = "Go modules"
_WRONG_SOURCES = ("go.sum", "SECURITY ERROR", "checksum mismatch")
_OUT_OF_REACH = ("://", "dial ", "GOPROXY")
"""In Go's output: the network is the cause; anything else is our own fault."""
_VERSION_PACKAGES = ("k8s.io/component-base/version", "k8s.io/client-go/pkg/version")


class ModulesUnreachableError(errors.LabError):
    """The modules cannot be downloaded from here at the moment."""


@dataclass(frozen=True)
class Program:
    """A program, its Go package, and its build time on two cores with an empty cache."""

    name: str
    package: str
    seconds: int


@dataclass(frozen=True)
class Module:
    """A go.mod and the programs built from it."""

    name: str
    source: Path
    programs: tuple[Program, ...]
    version_of: str
    """The module whose version the programs report."""


def _kubernetes(source: Path, pause: str) -> Module:
    programs = (
        Program("pause", pause, 5),
        Program("etcd", "go.etcd.io/etcd/server/v3", 40),
        Program("kube-apiserver", "k8s.io/kubernetes/cmd/kube-apiserver", 170),
        Program("kube-controller-manager", "k8s.io/kubernetes/cmd/kube-controller-manager", 60),
        Program("kube-scheduler", "k8s.io/kubernetes/cmd/kube-scheduler", 10),
        Program("kubelet", "k8s.io/kubernetes/cmd/kubelet", 40),
        Program("kubectl", "k8s.io/kubernetes/cmd/kubectl", 30),
    )
    return Module(name="kubernetes", source=source, programs=programs, version_of="k8s.io/kubernetes")


KUBERNETES = _kubernetes(SOURCE, "./pause")
VERSIONS = {"1.35": _kubernetes(SOURCE / "v1.35", "../pause/main.go"), "1.36": KUBERNETES}
"""By minor version; `scripts/pin_kubernetes.py` adds another one."""
NEWEST = "1.36"
KWOK = Module(
    name="kwok",
    source=SOURCE / "kwok",
    version_of="sigs.k8s.io/kwok",
    programs=(Program("kwok", "sigs.k8s.io/kwok/cmd/kwok", 60),),
)


def ensure(
    module: Module, *, listener: taskgraph.Listener, environment: Mapping[str, str] | None = None
) -> Path:
    """The directory of the module's programs; builds them if they are not cached."""
    settings = dict(os.environ if environment is None else environment)
    go = find_go(settings)
    finished = cache.root(settings) / f"{module.name}-{fingerprint(module, go_version(go))}"
    return cache.ensure(
        finished, lambda target: _build_all(module, target, go=go, environment=settings, listener=listener)
    )


def find_go(environment: Mapping[str, str]) -> str:
    """The go command, on PATH or in its usual places, since sudo resets PATH."""
    places = os.pathsep.join((environment.get("PATH", ""), *USUAL_GO_PLACES))
    found = shutil.which("go", path=places)
    if found is None:
        raise errors.LabError("Go is not installed", hint=_go_hint())
    if parse_go_version(go_version(found)) < OLDEST_GO:
        raise errors.LabError(f"{found} is {go_version(found)}, which is too old", hint=_go_hint())
    return found


def _go_hint() -> str:
    wanted = ".".join(map(str, OLDEST_GO))
    return f"Go {wanted} or newer builds Kubernetes once; or use a cluster you have: --kubernetes KUBECONFIG"


def go_version(go: str) -> str:
    """Go's version and target, such as `go1.26.8 linux amd64`."""
    argv = [go, "env", "GOVERSION", "GOOS", "GOARCH"]
    try:
        answer = subprocess.run(argv, capture_output=True, text=True, timeout=30, check=True)
    except (OSError, subprocess.SubprocessError) as error:
        raise errors.LabError(f"{go} does not work: {error}") from error
    return " ".join(answer.stdout.split())


def parse_go_version(text: str) -> tuple[int, int]:
    """(1, 26) from `go1.26.8 linux amd64`; (0, 0) if it is not a release."""
    match = re.match(r"go(\d+)\.(\d+)", text)
    return (int(match[1]), int(match[2])) if match else (0, 0)


def fingerprint(module: Module, version: str) -> str:
    """Depends only on the sources' content and Go's version."""
    digest = hashlib.sha256(version.encode())
    for path in _sources(module):
        digest.update(f"\0{path.relative_to(module.source)}\0".encode() + path.read_bytes())
    return digest.hexdigest()[:16]


def _sources(module: Module) -> list[Path]:
    """go.mod, go.sum and Go files of the module, without nested modules."""
    if not (module.source / "go.mod").is_file():
        raise errors.LabError(
            f"cannot build: {module.source / 'go.mod'} does not exist",
            hint="It is part of a checkout of Penstock: run penstock from there.",
        )
    inner = [path.parent for path in module.source.glob("*/go.mod")]
    found = [module.source / "go.mod", module.source / "go.sum", *module.source.rglob("*.go")]
    own = sorted(path for path in found if not any(path.is_relative_to(place) for place in inner))
    return [*own, *(module.source / name for name in sorted(_shared(module)))]


def _shared(module: Module) -> list[str]:
    """Programs built from Go files outside the module's directory."""
    return [program.package for program in module.programs if program.package.startswith("../")]


def version_of(module: Module) -> str:
    """The pinned version, such as v1.36.3."""
    text = (module.source / "go.mod").read_text(encoding="utf-8")
    match = re.search(rf"^\s*(?:require )?{re.escape(module.version_of)} (v\S+)$", text, re.MULTILINE)
    if match is None:
        raise errors.LabError(f"{module.source / 'go.mod'} does not require {module.version_of}")
    return match[1]


def link_flags(version: str) -> str:
    """Linker flags that set the programs' version: without it clients and controllers refuse to work."""
    major, minor = version.removeprefix("v").split(".")[:2]
    values = {"gitVersion": version, "gitMajor": major, "gitMinor": minor}
    said = (f"-X {package}.{name}={value}" for package in _VERSION_PACKAGES for name, value in values.items())
    return " ".join(("-s", "-w", *said))


def _build_all(
    module: Module, target: Path, *, go: str, environment: Mapping[str, str], listener: taskgraph.Listener
) -> None:
    scratch = target / "scratch"  # removed with `target` if Go is killed; in /tmp it would stay
    scratch.mkdir()
    environment = {**environment, "GOTMPDIR": str(scratch)}
    listener.began(FETCHING)
    began = time.monotonic()
    _fetch(module, go=go, environment=environment)
    listener.ended(FETCHING, "fetched", time.monotonic() - began)
    for number, program in enumerate(module.programs):
        name = f"build {program.name}"
        listener.began(name)
        began = time.monotonic()
        _build(module, program, target, go=go, environment=environment)
        left = sum(later.seconds for later in module.programs[number + 1 :])
        listener.ended(name, estimate(left), time.monotonic() - began)
    shutil.rmtree(scratch)


def estimate(seconds: int) -> str:
    """The remaining time, as text."""
    if seconds < 60:
        return "built, less than a minute left" if seconds else "built"
    return f"built, about {round(seconds / 60)} min left"


def _fetch(module: Module, *, go: str, environment: Mapping[str, str]) -> None:
    shared = _shared(module)  # files: Go does not list them together with packages, and they need no modules
    packages = [program.package for program in module.programs if program.package not in shared]
    failure = _go(module, [go, "list", "-deps", "-f", "{{.Name}}", *packages], environment)
    if not failure:
        return
    if any(word in failure for word in _WRONG_SOURCES):
        raise errors.LabError(f"the Go modules of {module.name} do not match go.sum", hint=failure)
    if any(word in failure for word in _OUT_OF_REACH):
        raise ModulesUnreachableError(f"the Go modules of {module.name} cannot be fetched", hint=failure)
    raise errors.LabError(f"Go cannot list the packages of {module.name}", hint=failure)


def _build(
    module: Module, program: Program, target: Path, *, go: str, environment: Mapping[str, str]
) -> None:
    flags = link_flags(version_of(module))
    output = str(target / program.name)
    argv = [go, "build", "-trimpath", "-ldflags", flags, "-o", output, program.package]
    failure = _go(module, argv, environment)
    if failure:
        raise errors.LabError(f"cannot build {program.name}", hint=failure)


def _go(module: Module, argv: list[str], environment: Mapping[str, str]) -> str:
    """Run Go with low priority; the end of its output if it fails."""
    settings = dict(environment) | {"CGO_ENABLED": "0", "GOFLAGS": "-mod=readonly -buildvcs=false"}
    settings.setdefault("HOME", "/root")
    try:
        result = subprocess.run(
            ["nice", "-n", str(NICENESS), *argv],
            cwd=module.source,
            env=settings,
            capture_output=True,
            text=True,
            timeout=BUILD_SECONDS,
            check=False,
        )
    except subprocess.TimeoutExpired as error:
        raise errors.LabError(f"go {argv[1]} took longer than {BUILD_SECONDS:.0f} s") from error
    return _last_words(result.stderr) if result.returncode != 0 else ""


def _last_words(output: str) -> str:
    lines = [line for line in output.split("\n") if line.strip() and not line.startswith("go: downloading")]
    return "go said: " + ("\n    ".join(lines[-4:]) or "nothing")
