"""What people and programs are shown of a site, as values. A module joins what Slurm, Kubernetes, penstockd
and the NAS say. Nothing here prints or exits: that is for the command line, or for a web server.
"""
