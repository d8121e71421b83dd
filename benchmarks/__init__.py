"""What Penstock costs, measured: every figure against a baseline in the same run (docs/benchmarks.md)."""
