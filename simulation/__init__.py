"""The whole engine in one process on virtual time, with everything going wrong: one seed, one run.

`plan` says what a seed means and `world` runs it. `network` and `process` do the damage, and
`commit_log` is what the store shows. Each file of `checks` holds one thing that must never happen.
"""
