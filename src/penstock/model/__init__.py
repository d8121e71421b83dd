"""Frozen data for all layers: jobs, nodes, resources. No I/O."""
