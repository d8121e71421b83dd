"""Releases of Slurm other than the installed one, from Debian's archive."""
