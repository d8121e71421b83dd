"""A real Kubernetes on one machine: etcd, the control plane, and kubelets with a containerd each.

The product is meant for real Kubernetes, so its whole test suite must run on one on any developer's machine.
Nothing here is needed to use the product: an existing cluster is given by its kubeconfig.
"""
