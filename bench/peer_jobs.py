"""The peers in the same run; none where `bench.peers` is missing."""

import importlib
from collections.abc import Iterator
from functools import partial
from types import ModuleType

from bench.job import Job
from runnel.bench.setup import Figures

PREFIX = "peer"
# The name of our workload, and that of the same one there.
WORKLOADS = {"diamond": "diamonds", "chain": "chain", "fan": "fan"}


def peer_jobs() -> Iterator[Job]:
    peers = _peers()
    if peers is None:
        return
    for peer in peers.PEERS:
        for ours, theirs in WORKLOADS.items():
            run = partial(_measure, peer, theirs)
            yield Job(name=f"{ours} {PREFIX} {peer}", run=run)


def described_peers() -> dict[str, dict[str, str]]:
    peers = _peers()
    return {} if peers is None else {peer: dict(peers.described(peer)) for peer in peers.PEERS}


def _measure(peer: str, workload: str) -> Figures:
    """With our names; raises what the peer's module raises, in one sentence."""
    peers = _peers()
    if peers is None:
        raise RuntimeError("bench.peers is missing")
    figures: Figures = dict(peers.measure(peer, workload))
    if "diamonds_per_s" in figures:
        figures["executions_per_s"] = figures.pop("diamonds_per_s")
    return figures


def _peers() -> ModuleType | None:
    try:
        return importlib.import_module("bench.peers")
    except ModuleNotFoundError as error:
        if error.name != "bench.peers":
            raise
        return None
