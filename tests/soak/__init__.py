"""The random test: seeded jobs, outages and faults on one lab, with the invariants checked throughout."""
