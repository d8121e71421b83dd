"""A real Kubernetes on one machine: etcd, the control plane, and kubelets with a containerd each.

What the product promises is about real Kubernetes, so its whole suite must run on one wherever somebody sits
down to work. Nothing here is needed to use the product: whoever has a cluster gives its kubeconfig.
"""
