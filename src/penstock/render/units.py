"""systemd units: penstockd, and the slurmds of nodes that live on one host."""

from __future__ import annotations


def penstockd(*, program: str, config: str, user: str, slurm_conf: str, runtime_dir: str) -> str:
    """penstockd as SlurmUser, started again when it ends; it gives up root itself."""
    directory = (
        f"RuntimeDirectory={runtime_dir.removeprefix('/run/')}\n" if runtime_dir.startswith("/run/") else ""
    )
    return f"""\
# Written by penstock.
[Unit]
Description=Penstock: jobs of Slurm as pods of Kubernetes
After=network-online.target munge.service slurmctld.service
Wants=network-online.target

[Service]
User={user}
{directory}Environment=SLURM_CONF={slurm_conf}
ExecStart={program} daemon --config {config}
Restart=always
RestartSec=1
NoNewPrivileges=yes
ProtectSystem=strict
ReadWritePaths={runtime_dir}
ProtectHome=yes
PrivateTmp=yes

[Install]
WantedBy=multi-user.target
"""


def slurmd(*, slurm_conf: str) -> str:
    """penstock-slurmd@NODE: one slurmd for one node that lives on this host."""
    return f"""\
# Written by penstock.
[Unit]
Description=slurmd of node %i
After=network-online.target munge.service
Wants=network-online.target

[Service]
ExecStart=/usr/sbin/slurmd -D -N %i -f {slurm_conf}
KillMode=process
Delegate=yes
Restart=on-failure
LimitNOFILE=131072

[Install]
WantedBy=multi-user.target
"""
