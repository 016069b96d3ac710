"""Programs that run in a peer's environment. They import only the peer and the standard library.

A program reads its order from the file `order.json` in the current folder. Its last line of output
is the figures as JSON. The modules use relative imports, because their package is `programs` there
and `bench.peers.programs` here.
"""
