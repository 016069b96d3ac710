"""Benchmarks of Runnel through its public client, with handlers that do nothing.

For `runnel bench` and for `make bench` of the repository. The workloads are described
in `docs/explanation/performance.md`.
"""
