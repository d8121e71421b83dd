"""Programs that slurmctld, slurmd and pods run.

They run for every job while somebody waits, so they import nothing of Penstock's and as little of Python as
possible: `python3 -IS` with `_socket` starts in 7 ms, with `socket` and `json` in 20 ms, with a Kubernetes
client in 800 ms. They only ask penstockd over its socket. They are installed as the package
`penstock_hooks` next to one small program per hook; penstockd imports `wire` from here, so both ends share
one protocol implementation.
"""
