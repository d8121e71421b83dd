"""Penstock: sbatch in, pods out. Slurm decides, Kubernetes runs, one truth."""

__version__ = "0.1.0"
