"""The random test: a seeded storm of jobs, losses and faults over one lab, judged throughout."""
