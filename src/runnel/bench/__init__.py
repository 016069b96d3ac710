"""Measures Runnel from outside, with handlers that do nothing.

For `runnel bench` and for the repository's own `make bench`. `docs/explanation/performance.md` says what each
workload does.
"""
