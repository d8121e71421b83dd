"""What becomes of a Slurm command typed inside a pod: its words are read and planned here, without I/O."""
