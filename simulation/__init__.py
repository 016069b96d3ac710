"""The whole engine in one process on virtual time, with everything going wrong: one seed, one run.

`plan` says what a seed means, `world` runs it, `network` and `process` do the damage, `commit_log` is
what the store shows, and each file of `checks` holds one thing that must never happen.
"""
