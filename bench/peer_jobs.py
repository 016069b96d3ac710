"""Lists the jobs of peers; none if the package `bench.peers` is missing."""

import importlib
from collections.abc import Iterator
from functools import partial
from types import ModuleType

from bench.job import BenchmarkJob
from runnel.bench.figures import Figures

PEER_PREFIX = "peer"
# Our names of workloads, and the names in `bench.peers`.
PEER_WORKLOADS = {"diamond": "diamonds", "chain": "chain", "fan": "fan"}


def list_peer_jobs() -> Iterator[BenchmarkJob]:
    peers = _import_peers()
    if peers is None:
        return
    for peer in peers.PEERS:
        for ours, theirs in PEER_WORKLOADS.items():
            run = partial(_measure_peer, peer, theirs)
            yield BenchmarkJob(name=f"{ours} {PEER_PREFIX} {peer}", run=run)


def describe_peers() -> dict[str, dict[str, str]]:
    peers = _import_peers()
    return {} if peers is None else {peer: dict(peers.describe_peer(peer)) for peer in peers.PEERS}


def _measure_peer(peer: str, workload: str) -> Figures:
    """Measures a peer and returns its figures under our names; raises PeerError."""
    peers = _import_peers()
    if peers is None:
        raise RuntimeError("bench.peers is missing")
    figures: Figures = dict(peers.measure(peer, workload))
    if "diamonds_per_s" in figures:
        figures["executions_per_s"] = figures.pop("diamonds_per_s")
    return figures


def _import_peers() -> ModuleType | None:
    try:
        return importlib.import_module("bench.peers")
    except ModuleNotFoundError as error:
        if error.name != "bench.peers":
            raise
        return None
