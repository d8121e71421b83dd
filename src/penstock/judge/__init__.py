"""What belongs to live jobs and how a pod ended; used by penstockd, `penstock check` and the doctor."""
