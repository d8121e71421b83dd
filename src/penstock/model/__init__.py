"""Frozen data that every layer speaks: jobs, nodes, resources. No I/O."""
