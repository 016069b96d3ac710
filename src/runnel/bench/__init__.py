"""Benchmarks of Runnel through its public client, with handlers that do nothing.

`runnel bench` and `make bench` of the repository use this package.
`docs/explanation/performance.md` describes the workloads.
"""
