"""Writes docs/reference from the code: `make reference`."""
