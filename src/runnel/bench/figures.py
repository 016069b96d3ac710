"""What a measurement gives: numbers by name, their percentiles, medians and spreads."""

import math
from collections.abc import Mapping, Sequence
from statistics import median
from typing import TypeAlias

Figures: TypeAlias = dict[str, float]


def compute_percentile(values: Sequence[float], fraction: float) -> float:
    """The least of the values that at least this part of them does not exceed."""
    ordered = sorted(values)
    return ordered[max(0, math.ceil(fraction * len(ordered)) - 1)]


def summarize_latency(name: str, seconds: Sequence[float]) -> Figures:
    """`name_ms_p50` and `name_ms_p99`."""
    return {
        f"{name}_ms_p50": 1_000 * compute_percentile(seconds, 0.5),
        f"{name}_ms_p99": 1_000 * compute_percentile(seconds, 0.99),
    }


def compute_medians(runs: Sequence[Mapping[str, float]]) -> Figures:
    """Of each figure; one that not every run has is left out."""
    names = [name for name in runs[0] if all(name in run for run in runs)]
    return {name: median(run[name] for run in runs) for name in names}


def compute_spreads(runs: Sequence[Mapping[str, float]]) -> dict[str, tuple[float, float]]:
    """The least and the most of each figure."""
    return {
        name: (min(run[name] for run in runs), max(run[name] for run in runs))
        for name in compute_medians(runs)
    }
