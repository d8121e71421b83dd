"""Other releases of Slurm than the machine's own, taken from Debian's archive."""
