"""The pure core: takes a state and a command, and returns events and effects.

The core performs no I/O. The engine performs the effects.
"""
