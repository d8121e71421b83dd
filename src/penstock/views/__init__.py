"""What commands show, as values joined from Slurm, Kubernetes, penstockd and the NAS. Nothing here prints or
exits, so that a web server can show the same.
"""
