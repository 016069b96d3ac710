"""Percentiles, medians and spreads."""

import pytest

from runnel.bench.figures import (
    compute_medians,
    compute_percentile,
    compute_spreads,
    summarize_latency,
)


@pytest.mark.parametrize(
    ("part", "expected"), [(0.5, 50.0), (0.99, 99.0), (0.999, 100.0), (1.0, 100.0)]
)
def test_a_share_is_the_least_value_that_so_many_do_not_exceed(
    part: float, expected: float
) -> None:
    values = [float(each) for each in range(100, 0, -1)]

    assert compute_percentile(values, part) == expected


def test_a_share_of_one_value_is_that_value() -> None:
    assert compute_percentile([3.0], 0.5) == compute_percentile([3.0], 0.999) == 3.0


def test_seconds_are_told_in_milliseconds() -> None:
    assert summarize_latency("edge", [0.002, 0.001, 0.004]) == {
        "edge_ms_p50": 2.0,
        "edge_ms_p99": 4.0,
    }


def test_only_figures_that_every_run_has_are_summarised() -> None:
    runs = [{"a": 1.0, "b": 9.0}, {"a": 3.0}, {"a": 2.0, "b": 8.0}]

    assert compute_medians(runs) == {"a": 2.0}
    assert compute_spreads(runs) == {"a": (1.0, 3.0)}
