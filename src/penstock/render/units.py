"""systemd units of a site: the templates in systemd/ with the site's paths."""

from __future__ import annotations

from collections.abc import Mapping
from importlib import resources

from penstock.render import searchpath

PENSTOCKD = "penstockd.service"
INTAKE = "penstock-intake.service"
COLLECTOR = "penstock-collector.service"
SLURMD = "penstock-slurmd@.service"
PROGRAM = "/usr/bin/penstock"


def render(name: str, replacements: Mapping[str, str]) -> str:
    """The unit of that name. Every text to be replaced must occur in it."""
    text = resources.files("penstock.render").joinpath("systemd", name).read_text(encoding="utf-8")
    for old, new in replacements.items():
        if old not in text:
            raise ValueError(f"{name} has no {old!r}")
        text = text.replace(old, new)
    return text


def _start(command: str, usual: str, *, program: str, config: str, slurm_commands: str) -> dict[str, str]:
    """Replacement for the ExecStart line of the template, which uses the file `usual`.json."""
    start = f"{_environment(slurm_commands)}ExecStart={program} {command} --config {config}\n"
    return {f"ExecStart={PROGRAM} {command} --config /etc/penstock/{usual}.json\n": start}


def _environment(slurm_commands: str) -> str:
    path = searchpath.unless_usual(slurm_commands)
    return f"Environment=PATH={path}\n" if path else ""


def penstockd(
    *,
    program: str,
    config: str,
    user: str,
    slurm_conf: str,
    slurm_commands: str,
    runtime: str,
    state: str,
) -> str:
    """penstockd as SlurmUser; `runtime` is its socket's folder."""
    is_usual = runtime.startswith("/run/")
    folder = f"RuntimeDirectory={runtime.removeprefix('/run/')}" if is_usual else "# no folder below /run"
    start = _start("daemon", "penstockd", program=program, config=config, slurm_commands=slurm_commands)
    values = {
        "User=slurm\nGroup=slurm\n": f"User={user}\nEnvironment=SLURM_CONF={slurm_conf}\n",
        "RuntimeDirectory=penstock": folder,
        "ReadWritePaths=/run/penstock -/var/lib/penstock/attempts": f"ReadWritePaths={runtime} -{state}",
    }
    return render(PENSTOCKD, start | values)


def intake(*, program: str, config: str, slurm_commands: str, nas: str, drop: str, state: str) -> str:
    start = _start("intake", "intake", program=program, config=config, slurm_commands=slurm_commands)
    paths = {
        "#RequiresMountsFor=/nas": f"RequiresMountsFor={nas}",
        "ReadWritePaths=-/nas/slurm-jobs": f"ReadWritePaths=-{nas}/{drop} -{state}",
    }
    return render(INTAKE, start | paths)


def collector(*, program: str, config: str, slurm_commands: str, nas: str, results: str, state: str) -> str:
    start = _start("collector", "collector", program=program, config=config, slurm_commands=slurm_commands)
    paths = {
        "#RequiresMountsFor=/nas/results": f"RequiresMountsFor={nas}/{results}",
        "ReadWritePaths=/var/lib/penstock/attempts -/nas": f"ReadWritePaths={state} -{nas}",
    }
    return render(COLLECTOR, start | paths)


def slurmd(*, slurm_conf: str, slurm_commands: str) -> str:
    """penstock-slurmd@NODE. systemd does not search the PATH that a unit sets for ExecStart."""
    environment = _environment(slurm_commands)
    program = "/usr/bin/env slurmd" if environment else "/usr/sbin/slurmd"
    start = f"{environment}ExecStart={program} "
    return render(SLURMD, {"ExecStart=/usr/sbin/slurmd ": start, "/etc/slurm/slurm.conf": slurm_conf})
