"""Rendered systemd units."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest
from tests.install import sites

from penstock.install import sitefiles

ELSEWHERE = (
    (
        "  conf: /etc/slurm/slurm.conf",
        "  conf: /opt/slurm/etc/slurm.conf\n  commands_dir: /opt/slurm/bin\n  user: daemon",
    ),
    ("/run/penstock/penstockd.sock", "/opt/penstock/run/penstockd.sock"),
    (
        "penstockd:\n",
        "penstockd:\n  program: /opt/penstock/bin/penstock\n  config: /opt/penstock/etc/p.json\n",
    ),
)


def units(*replacements: tuple[str, str]) -> dict[str, str]:
    site = sites.site(*replacements)
    files = sitefiles.all_files(site, sites.known(site))
    return {file.path.name: file.content.decode() for file in files if file.kind == "units"}


@pytest.mark.needs("systemd-analyze", package="systemd")
@pytest.mark.parametrize("replacements", [(), ELSEWHERE], ids=["usual", "elsewhere"])
def test_systemd_accepts_the_units(replacements: tuple[tuple[str, str], ...], tmp_path: Path) -> None:
    """No unknown key, no wrong value."""
    found = units(*replacements)
    assert len(found) == 4
    for name, text in found.items():
        for program in ("/opt/penstock/bin/penstock", "/usr/bin/penstock", "/usr/sbin/slurmd"):
            text = text.replace(f"ExecStart={program}", "ExecStart=/bin/true")
        path = tmp_path / name.replace("@.", "@n1.")
        path.write_text(text)
        argv = ("systemd-analyze", "verify", "--man=no", str(path))
        done = subprocess.run(argv, capture_output=True, text=True, timeout=60, check=False)
        assert [line for line in done.stderr.splitlines() if path.name in line] == []


def test_units_use_the_site_files_values() -> None:
    """Program, settings, user, slurm.conf, and folders outside /run."""
    text = units(*ELSEWHERE)["penstockd.service"]
    assert "ExecStart=/opt/penstock/bin/penstock daemon --config /opt/penstock/etc/p.json\n" in text
    assert "User=daemon\nEnvironment=SLURM_CONF=/opt/slurm/etc/slurm.conf\n" in text
    assert "RuntimeDirectory=" not in text.replace("RuntimeDirectoryMode=", "").replace(
        "RuntimeDirectoryPreserve=", ""
    )
    assert "ReadWritePaths=/opt/penstock/run -/var/lib/penstock/attempts\n" in text


def test_path_of_units_includes_commands_dir() -> None:
    """systemd's PATH has the usual folders only; if they are enough, none is set."""
    found, usual = units(*ELSEWHERE), units()
    for name in found:
        assert "\nEnvironment=PATH=/opt/slurm/bin:/opt/slurm/sbin:/usr/local/sbin:" in found[name]
        assert "PATH=" not in usual[name]
    slurmd = "penstock-slurmd@.service"
    assert "\nExecStart=/usr/bin/env slurmd -D -N %i " in found[slurmd]
    assert "\nExecStart=/usr/sbin/slurmd -D -N %i " in usual[slurmd]
