"""One workload on one peer, in a process of its own and timed there."""

import json
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from bench.peers.catalogue import PEERS_BY_NAME
from bench.peers.deployment import Deployment, deployed
from bench.peers.environment import pinned, python_of
from bench.peers.errors import PeerFailedError, UnknownPeerError
from bench.peers.peer import WORKLOADS, Peer, Settings

PEERS: tuple[str, ...] = tuple(PEERS_BY_NAME)
LIMIT_S = 600.0
LOOK_EVERY_S = 0.2

Figures = dict[str, float]


def measure(
    peer: str, workload: str, *, count: int | None = None, settings: Mapping[str, Any] | None = None
) -> Figures:
    """Blocks until the figures are there, named as those of Runnel; all that it started has ended.

    `settings` are tried instead of those that the peer was best with. Raises PeerMissingError if
    the peer can't be installed, PeerFailedError if it did not do the work, UnknownPeerError.
    """
    found = _known(peer)
    if workload not in WORKLOADS:
        raise UnknownPeerError("workload", workload, known=WORKLOADS)
    python = python_of(found.environment)
    return measure_with(python, found, workload, count=count, settings=settings or {})


def measure_with(
    python: Path, peer: Peer, workload: str, *, count: int | None = None, settings: Settings
) -> Figures:
    """As `measure`, with the interpreter of an environment that is there."""
    with deployed(
        peer,
        python=python,
        settings={**peer.settings_for(workload), **settings},
        workload=workload,
        count=count or peer.counts[workload],
    ) as deployment:
        return _figures(peer, workload, deployment)


def described(peer: str) -> dict[str, str]:
    """Versions and settings, in words for a table."""
    found = _known(peer)
    versions = pinned(found.environment)
    return {
        "versions": ", ".join(f"{name} {versions[name]}" for name in found.shown),
        "durability": found.durability,
        "joins": found.joins,
        "layout": found.layout,
        "settings": _in_words(found.settings),
        **{
            f"settings for {workload}": _in_words(settings)
            for workload, settings in found.best_for.items()
        },
        "counts": _in_words(found.counts),
    }


def figures_in(output: str) -> Figures:
    """The last line; raises ValueError if that is not figures."""
    lines = output.strip().splitlines()
    found = json.loads(lines[-1]) if lines else None
    if not isinstance(found, dict) or not found:
        raise ValueError(f"expected figures as JSON, got {lines[-1:]}")
    return {name: float(value) for name, value in found.items()}


def _known(peer: str) -> Peer:
    if peer not in PEERS_BY_NAME:
        raise UnknownPeerError("peer", peer, known=PEERS)
    return PEERS_BY_NAME[peer]


def _figures(peer: Peer, workload: str, deployment: Deployment) -> Figures:
    program = deployment.start("program", peer.program)
    end = time.monotonic() + LIMIT_S
    while not program.ends_within(LOOK_EVERY_S):
        for name in deployment.ended():
            problem, log = f"its {name} ended", deployment.log(name)
            raise PeerFailedError(peer.name, workload, problem=problem, log=log)
        if time.monotonic() > end:
            raise PeerFailedError(peer.name, workload, problem=f"took more than {LIMIT_S:g} s")
    log = deployment.log("program")
    if program.exit_code:
        problem = f"ended with exit code {program.exit_code}"
        raise PeerFailedError(peer.name, workload, problem=problem, log=log)
    try:
        return figures_in(log)
    except ValueError as error:
        raise PeerFailedError(peer.name, workload, problem="printed no figures", log=log) from error


def _in_words(settings: Settings) -> str:
    return ", ".join(f"{name} {value}" for name, value in settings.items())
