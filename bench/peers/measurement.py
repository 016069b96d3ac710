"""Measures one workload on one peer, in a separate process."""

import json
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from bench.peers.catalogue import PEERS_BY_NAME
from bench.peers.deployment import PeerDeployment, deploy_peer
from bench.peers.environment import prepare_python, read_pinned_versions
from bench.peers.errors import PeerFailedError, UnknownPeerError
from bench.peers.peer import WORKLOADS, Peer, PeerSettings

PEERS: tuple[str, ...] = tuple(PEERS_BY_NAME)
TIMEOUT_S = 600.0
POLL_INTERVAL_S = 0.2

Figures = dict[str, float]


def measure(
    peer: str, workload: str, *, count: int | None = None, settings: Mapping[str, Any] | None = None
) -> Figures:
    """Measures a workload and returns its figures under Runnel's names. Ends all its processes.

    `settings` override the best settings of the peer. Raises PeerMissingError if the peer can't be
    installed, PeerFailedError if it did not complete the work, and UnknownPeerError.
    """
    chosen = _find_peer(peer)
    if workload not in WORKLOADS:
        raise UnknownPeerError("workload", workload, known=WORKLOADS)
    python = prepare_python(chosen.environment)
    return measure_with_python(python, chosen, workload, count=count, settings=settings or {})


def measure_with_python(
    python: Path, peer: Peer, workload: str, *, count: int | None = None, settings: PeerSettings
) -> Figures:
    """Measures a workload with the interpreter of an existing environment."""
    with deploy_peer(
        peer,
        python=python,
        settings={**peer.settings_for(workload), **settings},
        workload=workload,
        count=count or peer.counts[workload],
    ) as deployment:
        return _run_program(peer, workload, deployment)


def describe_peer(peer: str) -> dict[str, str]:
    """Returns versions and settings as text for a table."""
    chosen = _find_peer(peer)
    versions = read_pinned_versions(chosen.environment)
    return {
        "versions": ", ".join(f"{name} {versions[name]}" for name in chosen.shown),
        "durability": chosen.durability,
        "joins": chosen.joins,
        "layout": chosen.layout,
        "settings": _format_settings(chosen.settings),
        **{
            f"settings for {workload}": _format_settings(settings)
            for workload, settings in chosen.best_for.items()
        },
        "counts": _format_settings(chosen.counts),
    }


def parse_figures(output: str) -> Figures:
    """Parses the last line; raises ValueError if it has no figures."""
    lines = output.strip().splitlines()
    figures = json.loads(lines[-1]) if lines else None
    if not isinstance(figures, dict) or not figures:
        raise ValueError(f"expected figures as JSON, got {lines[-1:]}")
    return {name: float(value) for name, value in figures.items()}


def _find_peer(peer: str) -> Peer:
    if peer not in PEERS_BY_NAME:
        raise UnknownPeerError("peer", peer, known=PEERS)
    return PEERS_BY_NAME[peer]


def _run_program(peer: Peer, workload: str, deployment: PeerDeployment) -> Figures:
    program = deployment.start("program", peer.program)
    end = time.monotonic() + TIMEOUT_S
    while not program.wait_for_exit(POLL_INTERVAL_S):
        for name in deployment.find_ended():
            problem, log = f"its {name} ended", deployment.read_log(name)
            raise PeerFailedError(peer.name, workload, problem=problem, log=log)
        if time.monotonic() > end:
            raise PeerFailedError(peer.name, workload, problem=f"took more than {TIMEOUT_S:g} s")
    log = deployment.read_log("program")
    if program.exit_code:
        problem = f"ended with exit code {program.exit_code}"
        raise PeerFailedError(peer.name, workload, problem=problem, log=log)
    try:
        return parse_figures(log)
    except ValueError as error:
        raise PeerFailedError(peer.name, workload, problem="printed no figures", log=log) from error


def _format_settings(settings: PeerSettings) -> str:
    return ", ".join(f"{name} {value}" for name, value in settings.items())
