"""Results are written after every job, and compared with the targets."""

import json
from pathlib import Path

import pytest

from bench.job import BenchmarkJob
from bench.jobs import list_jobs
from bench.results import BenchmarkResults
from bench.tables import compare_with_best_peer, format_markdown
from bench.targets import judge_targets, list_targets

PEER = {
    "versions": "celery 5",
    "settings": "prefetch 4",
    "settings for chain": "prefetch 1",
    "counts": "diamonds 2000",
}


def make_results() -> BenchmarkResults:
    results = BenchmarkResults(machine={"cores": 2}, peers={"celery": PEER})
    for rate in (900.0, 1_100.0, 1_000.0):
        figures = {"executions_per_s": rate / 2, "engine_only_per_s": rate, "floor_per_s": 2_500.0}
        results.add("diamond sync servers 2w x64", figures)
    results.add("diamond peer celery", {"executions_per_s": 50.0})
    results.add("start cli", {"cold_start_s": 0.5})
    return results


def read_verdict(
    results: BenchmarkResults, target: str, configuration: str
) -> tuple[float | None, str]:
    [row] = [
        judged
        for judged in judge_targets(results)
        if (judged["target"], judged["configuration"]) == (target, configuration)
    ]
    return row["found"], row["verdict"]


@pytest.mark.parametrize(
    ("target", "configuration", "expected"),
    [
        ("W1 engine only, ratio to the floor", "servers 2w x64", (0.4, "missed")),
        ("W1 sync functions, ratio to Celery", "servers 2w x64", (10.0, "missed")),
        ("W4 cold start, s", "cli", (0.5, "reached")),
        ("W1 engine only, ratio to the floor", "sqlite x4", (None, "not measured")),
    ],
)
def test_a_target_is_judged_by_the_median(
    target: str, configuration: str, expected: tuple[float | None, str]
) -> None:
    assert read_verdict(make_results(), target, configuration) == expected


def test_each_configuration_of_a_peer_is_compared() -> None:
    results = make_results()
    results.add("diamond sync sqlite x4", {"executions_per_s": 800.0})
    results.add("diamond peer dbos-sqlite", {"executions_per_s": 20.0})
    results.add("diamond peer dbos-sqlite-wal", {"executions_per_s": 40.0})

    ratio = "W1 sync functions, ratio to DBOS on SQLite"
    safer = f"{ratio}, default (survives a power cut, this does not)"
    as_safe = f"{ratio} with WAL (as safe as this)"
    assert read_verdict(results, safer, "sqlite x4") == (40.0, "reached")
    assert read_verdict(results, as_safe, "sqlite x4") == (20.0, "missed")


def test_an_edge_is_compared_with_that_of_a_peer_that_ran_the_same_chain() -> None:
    results = make_results()
    results.add("chain sync servers 1w x4", {"edge_ms_p50": 1.0, "engine_only_edge_ms_p50": 0.5})
    results.add("chain peer celery", {"edge_ms_p50": 2.0})

    verdict = read_verdict(
        results, "W2 sync functions, per edge, p50, ratio to Celery", "servers 1w x4"
    )

    assert verdict == (0.5, "reached")


def test_only_peers_with_durable_joins_are_compared_and_a_shorter_time_is_better() -> None:
    results = BenchmarkResults(
        peers={"celery": {"joins": "durable"}, "taskiq": {"joins": "NOT durable: …"}}
    )
    figures = {"edge_ms_p50": 0.5, "engine_only_edge_ms_p50": 0.4}
    results.add("chain sync sqlite x4", figures)
    results.add("chain peer celery", {"edge_ms_p50": 4.0})
    results.add("chain peer taskiq", {"edge_ms_p50": 2.0})

    job = "chain sync sqlite x4"
    assert compare_with_best_peer(results, job, "edge_ms_p50") == 8.0
    assert compare_with_best_peer(results, job, "engine_only_edge_ms_p50") is None
    assert compare_with_best_peer(results, "chain peer taskiq", "edge_ms_p50") is None
    assert compare_with_best_peer(results, "fan sync sqlite x4", "fan_1000_s") is None


def test_every_target_belongs_to_a_job() -> None:
    names = {job.name for job in list_jobs()}
    results = BenchmarkResults()
    for name in names:
        results.figures[name] = {
            figure: [1.0]
            for figure in (
                *("executions_per_s", "engine_only_per_s", "floor_per_s", "edge_ms_p50"),
                *("engine_only_edge_ms_p50", "engine_only_edge_ms_p99", "engine_only_fan_1000_s"),
                *("engine_only_hop_ms_p50", "engine_only_hop_ms_p99", "engine_only_latency_ms_p50"),
                *("latency_ms_p50", "map_cost_ratio", "cold_start_s", "call_ms_p50", "call_ms_p99"),
                *("calls_per_s", "waiting_mb_engine", "waiting_mb_orchestrator"),
                "waiting_mb_worker",
                *("show_cost_ratio", "show_memory_ratio", "read_cost_ratio", "read_memory_ratio"),
                "growth_ratio",
            )
        }

    unknown = [
        target.description for target in list_targets() if target.read_figure(results) is None
    ]

    assert unknown == []


def test_an_interrupted_run_keeps_its_figures(tmp_path: Path) -> None:
    path = tmp_path / "results.json"
    results = make_results()
    results.failed["diamond peer temporal"] = "took more than 900 s"

    results.write(path, judge_targets(results))
    written = json.loads(path.read_text())

    job = written["figures"]["diamond sync servers 2w x64"]
    assert job["engine_only_per_s"] == [900, 1_100, 1_000]
    assert not written["is_complete"]
    assert list(tmp_path.iterdir()) == [path]


def test_the_markdown_report_has_medians_ratios_verdicts_and_failures() -> None:
    results = make_results()
    results.failed["diamond peer temporal"] = "took more than 900 s"

    text = format_markdown(results, judge_targets(results))

    job = "diamond sync servers 2w x64"
    assert f"| {job} | executions per second | 500 | 450 | 550 |  | 10.0 |" in text
    assert f"| {job} | engine only per second | 1,000 | 900 | 1,100 | 0.40 |  |" in text
    verdict = "≥ 15 | 10.0 | **missed** |"
    assert f"| W1 sync functions, ratio to Celery | servers 2w x64 | {verdict}" in text
    assert "| diamond peer temporal | took more than 900 s |" in text
    assert "| celery | celery 5 |" in text
    assert "| prefetch 4; chain: prefetch 1; executions: diamonds 2000 |" in text
    assert "Incomplete" in text


def test_a_job_is_selected_by_all_given_words() -> None:
    job = BenchmarkJob(name="diamond servers 1w x4", run=dict)

    assert job.has_words(["servers", "diamond"])
    assert job.has_words([])
    assert not job.has_words(["servers", "x64"])


def test_the_names_of_jobs_are_unique() -> None:
    names = [job.name for job in list_jobs()]

    assert len(names) == len(set(names))
