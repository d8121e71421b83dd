"""Benchmarks of Penstock's costs, each with a baseline in the same run (docs/benchmarks.md)."""
