"""Parsers of option values by Slurm's rules: each takes the text and returns the value or raises Problem."""
