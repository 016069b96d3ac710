"""The engine: orchestrators decide and commit, workers run tasks, services run in the
background.
"""
