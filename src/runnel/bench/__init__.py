"""Measures Runnel from outside, with handlers that do nothing, next to a floor on the same machine.

For `runnel bench` and for the repository's own `make bench`. `docs/performance.md` says what each
workload and each floor does.
"""
