"""Proves the invariants on a live site: looks at both worlds, judges, and counts only what stays."""
