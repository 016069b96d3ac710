"""Benchmarks: `python -m bench`; the method is in README.md."""
