"""A proxy between penstockd and any Kubernetes API that lies, delays and breaks off on demand.

The same outage can so be played on the dev cluster and on a real one. It holds no credentials: it passes on
those of whoever connects. Faults are chosen by verb and resource, switched through a unix socket that only
root can reach, and drawn from a seeded source of chance. For labs only.
"""
