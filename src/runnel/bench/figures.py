"""The figures of a measurement by name, and functions for percentiles, medians and spreads."""

import math
from collections.abc import Mapping, Sequence
from statistics import median
from typing import TypeAlias

Figures: TypeAlias = dict[str, float]


def compute_percentile(values: Sequence[float], fraction: float) -> float:
    """Returns the smallest of the values that is at least as large as `fraction` of all values."""
    ordered = sorted(values)
    return ordered[max(0, math.ceil(fraction * len(ordered)) - 1)]


def summarize_latency(name: str, seconds: Sequence[float]) -> Figures:
    """Returns the figures `name_ms_p50` and `name_ms_p99`."""
    return {
        f"{name}_ms_p50": 1_000 * compute_percentile(seconds, 0.5),
        f"{name}_ms_p99": 1_000 * compute_percentile(seconds, 0.99),
    }


_ENGINE_ONLY_NAMES = {
    "executions_per_s": "engine_only_per_s",
    "nodes_per_s": "engine_only_nodes_per_s",
}


def name_engine_only(figures: Mapping[str, float]) -> Figures:
    """Renames the rates of nodes that do nothing.

    `executions_per_s` and `nodes_per_s` are always rates of functions that compute a result.
    """
    return {_ENGINE_ONLY_NAMES.get(name, name): value for name, value in figures.items()}


def compute_medians(runs: Sequence[Mapping[str, float]]) -> Figures:
    """Returns the median of each figure that every run has."""
    names = [name for name in runs[0] if all(name in run for run in runs)]
    return {name: median(run[name] for run in runs) for name in names}


def compute_spreads(runs: Sequence[Mapping[str, float]]) -> dict[str, tuple[float, float]]:
    """Returns the minimum and the maximum of each figure."""
    return {
        name: (min(run[name] for run in runs), max(run[name] for run in runs))
        for name in compute_medians(runs)
    }
