"""The report of a measurement as text and as JSON."""

import pytest

from runnel.bench.report import (
    BenchmarkOptions,
    Measured,
    build_document,
    build_request,
    describe_settings,
    format_label,
    format_number,
    format_rows,
    format_title,
)

MEASURED = Measured(
    figures={
        "edge_ms_p50": 0.25,
        "engine_only_per_s": 900.0,
        "executions_per_s": 500.0,
        "nodes_per_s": 2_000.0,
    },
    spread={
        "engine_only_per_s": (900.0, 900.0),
        "edge_ms_p50": (0.25, 0.25),
        "executions_per_s": (450.0, 600.0),
        "nodes_per_s": (1_800.0, 2_400.0),
    },
)


def test_the_document_has_rates_settings_and_machine() -> None:
    document = build_document(build_request("diamond", BenchmarkOptions()), MEASURED)

    assert document["executions_per_s"] == 500.0
    assert document["nodes_per_s"] == 2_000.0
    assert document["engine_only_per_s"] == 900.0
    assert document["settings"]["count"] == 2_000
    assert document["settings"]["functions"] == "sync"
    assert document["machine"]["cores"] >= 1


def test_a_workload_without_a_rate_has_null() -> None:
    measured = Measured(figures={"cold_start_s": 0.5}, spread={"cold_start_s": (0.5, 0.5)})

    document = build_document(build_request("start", BenchmarkOptions()), measured)

    assert document["executions_per_s"] is None
    assert document["nodes_per_s"] is None
    assert document["engine_only_per_s"] is None
    assert "functions" not in document["settings"]


def test_the_rows_begin_with_the_rates() -> None:
    assert format_rows(MEASURED) == [
        ("executions per second", "500", "450", "600"),
        ("nodes per second", "2,000", "1,800", "2,400"),
        ("engine only per second", "900", "", ""),
        ("edge, ms, p50", "0.250", "", ""),
    ]


def test_passwords_are_hidden() -> None:
    options = BenchmarkOptions(
        redis_url="redis://:hush@host:6379/0", postgres_url="postgresql://u:hush@host/db"
    )
    request = build_request("diamond", options)

    assert "hush" not in format_title(request)
    assert "hush" not in str(describe_settings(request))
    assert describe_settings(request)["redis"] == "redis://***@host:6379/0"


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("fan_1000_s", "fan 1000, seconds"),
        ("map_1000_us_per_item", "map 1000, µs per item"),
        ("processor_us_engine", "processor, µs each, engine"),
        ("waiting_mb_worker", "waiting, MB, worker"),
        ("takeover_s_max", "takeover, seconds, max"),
        ("latency_ms_p999", "latency, ms, p999"),
        ("map_cost_ratio", "map cost ratio"),
        ("engine_only_edge_ms_p50", "engine only edge, ms, p50"),
    ],
)
def test_a_label_has_the_unit_of_its_figure(name: str, expected: str) -> None:
    assert format_label(name) == expected


@pytest.mark.parametrize(
    ("value", "expected"), [(12_345.6, "12,346"), (45.67, "45.7"), (1.234, "1.23"), (0.1, "0.100")]
)
def test_a_number_has_three_significant_digits_or_all_before_the_point(
    value: float, expected: str
) -> None:
    assert format_number(value) == expected
