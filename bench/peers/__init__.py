"""Other engines, measured as Runnel is: `python -m bench.peers`."""

from bench.peers.errors import PeerError
from bench.peers.measuring import PEERS, described, measure

__all__ = ["PEERS", "PeerError", "described", "measure"]
