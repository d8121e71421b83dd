"""What belongs to whom and how a pod ended: decided once, for penstockd, `penstock check` and the doctor."""
