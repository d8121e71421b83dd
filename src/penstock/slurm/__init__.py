"""The only code that runs Slurm commands."""
