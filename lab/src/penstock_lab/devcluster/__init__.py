"""A Kubernetes API for one machine, whose pods are local processes.

A small API server (versioned store, watches, patches, selectors, quotas, garbage collection) with a first-fit
scheduler and one agent per node. An agent runs each container as a process of this host, in its own
namespaces where permitted, with the pod's uid, environment, volumes and memory limit. Demos and tests with it
need neither a registry nor a container runtime, and start in a second.

It is not for production. There is no networking and there are no images: every pod's image is this host's
userland, mounted read-only. There is no RBAC beyond admin and viewer, there are no probes and no controllers
for kinds that are only stored (Deployment, Job and so on), deletion always propagates in the background, only
the latest log of a container is kept, and state is in memory only. Every difference from real Kubernetes is a
bug.

The modules, lowest first. All run in one event loop, so the code between two awaits is atomic:

    statuses kindtable patches quotas   data and pure functions
    objectstore   objects, a version counter, bounded history; watches: selectors and watches
    objects       create, update, delete, bind, events; apiadmission: defaults and validation
    garbage       owner references, namespaces, pods of lost nodes, quota status
    scheduler     binds pods with the default schedulerName
    agent         the kubelet: worker (one pod), podstatus, containers, podlogs, podprocesses (and cgroups),
                  podinit (becomes the container), nodeobjects, podexec
    faults        faults on demand
    app           HTTP: apirequests, handlers, tables, discovery, protobuf
"""
