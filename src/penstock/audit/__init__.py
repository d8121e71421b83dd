"""Checks the invariants on a live site: snapshots of Slurm and Kubernetes, findings, confirmed violations."""
