"""A Kubernetes API for one machine, whose pods are local processes: for demos and tests only."""
