"""The engine: orchestrators decide and commit, workers run tasks, services maintain the store."""
