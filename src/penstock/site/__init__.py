"""The site file: the description of the cluster from which everything else is derived."""
