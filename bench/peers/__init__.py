"""Measures other engines with similar workloads: `python -m bench.peers`."""

from bench.peers.errors import PeerError
from bench.peers.measurement import PEERS, describe_peer, measure

__all__ = ["PEERS", "PeerError", "describe_peer", "measure"]
