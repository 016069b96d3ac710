"""Benchmarks of Runnel through its public client, with handlers that do nothing.

For `runnel bench` and for `make bench` of the repository. `docs/performance.md` describes the
workloads.
"""
