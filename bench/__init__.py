"""Benchmarks of the repository: `python -m bench`. README.md describes the method."""
