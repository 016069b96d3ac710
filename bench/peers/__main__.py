"""Measures other engines. Without arguments, it runs every workload on every peer."""

import argparse
import json
import os
import sys
from typing import Any

from bench.numbers import parse_positive
from bench.peers.errors import PeerError, PeerMissingError
from bench.peers.measurement import PEERS, describe_peer, measure
from bench.peers.peer import WORKLOADS


def main(arguments: list[str] | None = None) -> int:
    """Returns 1 if a requested figure is missing."""
    chosen = _build_parser().parse_args(arguments)
    peers = [chosen.peer] if chosen.peer else PEERS
    workloads = [chosen.workload] if chosen.workload else WORKLOADS
    tried = dict(chosen.set)
    results: dict[str, dict[str, Any]] = {}
    problems = []
    for peer in peers:
        results[peer] = {"described": describe_peer(peer), "figures": {}}
        for workload in workloads:
            try:
                figures = measure(peer, workload, count=chosen.count, settings=tried)
            except PeerError as error:
                print(error, file=sys.stderr)
                problems.append(str(error))
                if isinstance(error, PeerMissingError):
                    break
                continue
            results[peer]["figures"] |= figures
            _print_figures(peer, figures)
    if chosen.json:
        print(json.dumps({"peers": results, "problems": problems, "tried": tried}, indent=1))
    return 1 if problems else 0


def parse_setting(text: str) -> tuple[str, Any]:
    """Parses `name=value`; the value is JSON or else text."""
    name, separator, value = text.partition("=")
    if not separator:
        raise argparse.ArgumentTypeError(f"expected name=value, got {text!r}")
    try:
        return name, json.loads(value)
    except ValueError:
        return name, value


def _build_parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m bench.peers", description=__doc__)
    parser.add_argument("--peer", choices=PEERS)
    parser.add_argument("--workload", choices=WORKLOADS)
    parser.add_argument(
        "--count", type=parse_positive, help="number of executions (default: set per peer)"
    )
    parser.add_argument(
        "--set",
        type=parse_setting,
        action="append",
        default=[],
        metavar="NAME=VALUE",
        help="override a setting; the defaults gave the best figures of the peer",
    )
    parser.add_argument("--json", action="store_true")
    return parser


def _print_figures(peer: str, figures: dict[str, float]) -> None:
    load = os.getloadavg()[0]
    for figure, value in figures.items():
        print(f"{peer:16} {figure:16} {value:10.2f}   (load {load:.1f})", file=sys.stderr)


if __name__ == "__main__":
    sys.exit(main())
