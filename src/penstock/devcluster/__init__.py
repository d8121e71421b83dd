"""A Kubernetes API for one machine, whose pods are local processes.

What it is: a small API server (versioned store, watches, patches, selectors, quotas, garbage collection)
with a first-fit scheduler and one agent per node. An agent runs each container as a process of this host,
in namespaces of its own where that is permitted, with the pod's uid, environment, volumes and memory limit.
It exists so that demos and tests need neither a registry nor a container runtime, start in a second and
leave nothing behind.

What it is not: a Kubernetes for work. There is no networking and there are no images: the "image" of every
pod is this host's own userland, mounted read-only. There is no RBAC beyond admin and viewer, no probes, no
controllers for the kinds that are only stored (Deployment, Job and so on), and the state lives in memory.
Where it differs from real Kubernetes, it is wrong.

How it hangs together, lower parts first. Every part runs in one event loop, so that a step between two
awaits is atomic:

    kinds quantities selectors patches statuses times   data and pure functions
    store         objects, one counter of versions, bounded history
    objects       what create, update and delete mean; with defaults, validation, quota
    collector     owner references, namespaces, pods of nodes that are gone
    scheduler     binds pods with the default schedulerName; nodes counts what is taken
    agent         kubelet's part: worker (one pod), podstatus, volumes, environment, description, logs,
                  cgroups, children (processes) and podinit (the program that becomes a container)
    faults        what can be broken on demand; events says what happened
    app           HTTP: auth, routing, queries, handlers, apply, watching, tables, discovery, protobuf, admin
    server        the wiring; testing the same inside a test
"""
