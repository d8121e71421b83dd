"""`penstock lab` and `penstock demo`, found by the penstock command through an entry point."""

COMMANDS = {
    "demo": (
        "penstock_lab.cli.demo:demo",
        "Run sample jobs on a private Slurm and Kubernetes, in about a minute.",
    ),
    "lab": ("penstock_lab.cli.lab:lab", "A private Slurm and Kubernetes: up, down, status, env."),
}
