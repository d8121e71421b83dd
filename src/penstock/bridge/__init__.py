"""Admission, launch and release of a job's pods, and the loops beside them."""
