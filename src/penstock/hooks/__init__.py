"""What slurmctld, slurmd and pods execute: standard library only, nothing of ours imported."""
