"""The site file: one description of the cluster, read strictly, turned into what everything else needs."""
