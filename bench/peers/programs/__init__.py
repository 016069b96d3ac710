"""What runs in a peer's own environment: it imports the peer and the standard library only.

A program reads its order from the file `order.json` in the current folder, and the last line it
prints is the figures as JSON. The modules import each other by relative names, because they are
found as `programs` there and as `bench.peers.programs` here.
"""
