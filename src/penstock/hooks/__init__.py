"""What slurmctld, slurmd and pods execute.

A person waits for these at every job, so they import nothing of ours and next to nothing of Python: `python3
-IS` with `_socket` starts in 7 ms, with `socket` and `json` in 20, with a Kubernetes client in 800. They know
one thing, the path of penstockd's socket, and ask it. Installed as the package `penstock_hooks` beside one
small program per hook; penstockd imports `wire` from here so that both ends speak from the same lines.
"""
