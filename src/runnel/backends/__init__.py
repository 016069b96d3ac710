"""Implementations of the ports. Code outside this package never checks which backend it uses."""
