"""Implementations of the ports; nothing outside this package asks which one it has."""
