"""The moving parts: orchestrators decide and commit, workers run, services watch."""
