"""A proxy between penstockd and any Kubernetes API that injects faults on demand. For labs only.

The same outage can be simulated on the dev cluster and on a real one. The proxy has no credentials: it passes
on the client's. Faults are selected by verb and resource, switched through a unix socket that only root can
reach, and drawn from a seeded random generator.
"""
