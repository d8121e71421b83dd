"""What is left of a job for its owner: output, summary, outputs and checksums, in one folder."""
