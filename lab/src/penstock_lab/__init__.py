"""Starts and stops a private Slurm, a dev cluster and penstockd on one machine."""
