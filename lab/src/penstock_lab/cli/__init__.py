"""`penstock lab` and `penstock demo`, which the penstock command finds by an entry point."""

COMMANDS = {
    "demo": ("penstock_lab.cli.demo:demo", "Show the whole path on this machine in about a minute."),
    "lab": ("penstock_lab.cli.lab:lab", "A private Slurm and Kubernetes: up, down, status, env."),
}
