"""Percentiles, medians and spreads."""

import pytest

from runnel.bench.figures import (
    compute_medians,
    compute_percentile,
    compute_spreads,
    summarize_latency,
)


@pytest.mark.parametrize(
    ("fraction", "expected"), [(0.5, 50.0), (0.99, 99.0), (0.999, 100.0), (1.0, 100.0)]
)
def test_a_percentile_is_the_smallest_value_not_below_the_fraction(
    fraction: float, expected: float
) -> None:
    values = [float(number) for number in range(100, 0, -1)]

    assert compute_percentile(values, fraction) == expected


def test_a_percentile_of_one_value_is_that_value() -> None:
    assert compute_percentile([3.0], 0.5) == compute_percentile([3.0], 0.999) == 3.0


def test_latencies_are_in_milliseconds() -> None:
    assert summarize_latency("edge", [0.002, 0.001, 0.004]) == {
        "edge_ms_p50": 2.0,
        "edge_ms_p99": 4.0,
    }


def test_only_figures_of_every_run_are_summarized() -> None:
    runs = [{"a": 1.0, "b": 9.0}, {"a": 3.0}, {"a": 2.0, "b": 8.0}]

    assert compute_medians(runs) == {"a": 2.0}
    assert compute_spreads(runs) == {"a": (1.0, 3.0)}
