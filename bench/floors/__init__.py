"""The least that any engine of this design must do for a workload: a measure for what ours adds.

A floor runs the same graphs, with the same number of slots and batches of the same size, and
stores the same kinds of rows, keys and bytes. It leaves out whatever is not needed as long as
nothing goes wrong and nobody looks: `docs/performance.md` lists it.
"""
