"""The pure core: takes a state and a command and returns what should happen.

It performs nothing.
"""
