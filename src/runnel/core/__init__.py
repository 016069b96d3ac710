"""The pure core: takes a state and a command, and returns events and effects.

The core performs no I/O and no effects. The engine does.
"""
