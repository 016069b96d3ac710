"""Benchmarks of Runnel: decorated functions, and the engine only, with nodes that do nothing.

`runnel bench` and `make bench` of the repository use this package.
`docs/explanation/performance.md` describes the workloads.
"""
