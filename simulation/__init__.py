"""A deterministic simulation of a whole deployment with injected faults.

Each seed determines one run. The real engine runs in one process on virtual time. `plan` derives a
plan from a seed, and `world` runs it. `network` and `process` inject faults. `commit_log` follows
the commits of the store. Each file of `checks` checks one invariant.
"""
