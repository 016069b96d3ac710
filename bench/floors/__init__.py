"""Floors: the minimum work that an engine of this design must do for a workload.

A floor runs the same graphs with the same slots and batch sizes, and stores the same kinds of rows,
keys and bytes. It leaves out everything that is only needed for failures or observers:
`docs/explanation/performance.md` lists it. The ratio to the floor shows the cost of the engine.
"""
