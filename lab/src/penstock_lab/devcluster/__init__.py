"""A Kubernetes API for one machine, whose pods are local processes.

What it is: a small API server (versioned store, watches, patches, selectors, quotas, garbage collection)
with a first-fit scheduler and one agent per node. An agent runs each container as a process of this host,
in namespaces of its own where that is permitted, with the pod's uid, environment, volumes and memory limit.
It exists so that demos and tests need neither a registry nor a container runtime, start in a second and
leave nothing behind.

What it is not: a Kubernetes for work. There is no networking and there are no images: the "image" of every
pod is this host's own userland, mounted read-only. There is no RBAC beyond admin and viewer, no probes, no
controllers for the kinds that are only stored (Deployment, Job and so on), deletion always goes on in the
background, of a container's logs only the last is kept, and the state lives in memory.
Where it differs from real Kubernetes, it is wrong.

How it hangs together, lower parts first. Every part runs in one event loop, so that a step between two
awaits is atomic:

    statuses kinds patches resources    data and pure functions
    store         objects, one counter of versions, bounded history; watching: selectors and watches
    objects       what create, update, delete and bind mean, and events; rules: what is filled in and refused
    collector     owner references, namespaces, pods of nodes that are gone, quotas' status
    scheduler     binds pods with the default schedulerName
    agent         kubelet's part: worker (one pod), podstatus, containers (what is to be started), logs,
                  processes (and cgroups), podinit (the program that becomes a container), nodes, execs
    faults        what can be broken on demand
    server        the wiring and HTTP: requests, handlers, tables, discovery, protobuf
"""
