"""Results are stored after every job and compared with the targets."""

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


def found() -> BenchmarkResults:
    results = BenchmarkResults(machine={"cores": 2}, peers={"celery": PEER})
    for rate in (900.0, 1_100.0, 1_000.0):
        results.add("diamond servers 1w x64", {"executions_per_s": rate, "floor_per_s": 2_500.0})
    results.add("diamond peer celery", {"executions_per_s": 50.0})
    results.add("start cli", {"cold_start_s": 0.5})
    return results


def verdict(results: BenchmarkResults, target: str, configuration: str) -> tuple[float | None, str]:
    [row] = [
        each
        for each in judge_targets(results)
        if (each["target"], each["configuration"]) == (target, configuration)
    ]
    return row["found"], row["verdict"]


@pytest.mark.parametrize(
    ("target", "configuration", "expected"),
    [
        ("W1 of the floor", "servers 1w x64", (0.4, "missed")),
        ("W1 times Celery", "servers 1w x64", (20.0, "missed")),
        ("W4 cold start, s", "cli", (0.5, "reached")),
        ("W1 of the floor", "sqlite x4", (None, "not measured")),
    ],
)
def test_a_target_is_judged_by_the_median(
    target: str, configuration: str, expected: tuple[float | None, str]
) -> None:
    assert verdict(found(), target, configuration) == expected


def test_a_peer_is_compared_in_each_way_that_it_can_be_run() -> None:
    results = found()
    results.add("diamond sqlite x4", {"executions_per_s": 3_000.0})
    results.add("diamond peer dbos-sqlite", {"executions_per_s": 20.0})
    results.add("diamond peer dbos-sqlite-wal", {"executions_per_s": 40.0})

    safer = "W1 times DBOS on SQLite, as it comes, which survives a power cut"
    as_safe = "W1 times DBOS on SQLite with WAL, as safe as this"
    assert verdict(results, safer, "sqlite x4") == (150.0, "reached")
    assert verdict(results, as_safe, "sqlite x4") == (75.0, "missed")


def test_only_peers_with_durable_joins_are_compared_and_less_time_is_better() -> None:
    results = BenchmarkResults(
        peers={"celery": {"joins": "durable"}, "taskiq": {"joins": "NOT durable: …"}}
    )
    results.add("chain sqlite x4", {"edge_ms_p50": 0.5, "hop_ms_p50": 0.4})
    results.add("chain peer celery", {"edge_ms_p50": 4.0})
    results.add("chain peer taskiq", {"edge_ms_p50": 2.0})

    assert compare_with_best_peer(results, "chain sqlite x4", "edge_ms_p50") == 8.0
    assert compare_with_best_peer(results, "chain sqlite x4", "hop_ms_p50") is None
    assert compare_with_best_peer(results, "chain peer taskiq", "edge_ms_p50") is None
    assert compare_with_best_peer(results, "fan sqlite x4", "fan_1000_s") is None


def test_every_target_is_about_a_job_that_is_run() -> None:
    names = {job.name for job in list_jobs()}
    results = BenchmarkResults()
    for name in names:
        results.figures[name] = {
            figure: [1.0]
            for figure in (
                *("executions_per_s", "floor_per_s", "edge_ms_p50", "edge_ms_p99", "hop_ms_p50"),
                *("hop_ms_p99", "fan_1000_s", "map_cost_ratio", "cold_start_s"),
                *("waiting_mb_engine", "waiting_mb_orchestrator", "waiting_mb_worker"),
            )
        }

    unknown = [
        each.description
        for each in list_targets()
        if each.read_figure(results) is None and "times" not in each.description.split()[:2]
    ]

    assert unknown == []


def test_an_interrupted_run_has_what_it_had(tmp_path: Path) -> None:
    path = tmp_path / "results.json"
    results = found()
    results.failed["diamond peer temporal"] = "took more than 900 s"

    results.write(path, judge_targets(results))
    kept = json.loads(path.read_text())

    assert kept["figures"]["diamond servers 1w x64"]["executions_per_s"] == [900, 1_100, 1_000]
    assert not kept["is_complete"]
    assert list(tmp_path.iterdir()) == [path]


def test_people_read_medians_ratios_verdicts_and_what_is_missing() -> None:
    results = found()
    results.failed["diamond peer temporal"] = "took more than 900 s"

    text = format_markdown(results, judge_targets(results))

    assert (
        "| diamond servers 1w x64 | executions per second | 1,000 | 900 | 1,100 | 0.40 | 20.0 |"
        in text
    )
    assert "| W1 times Celery | servers 1w x64 | ≥ 25 | 20.0 | **missed** |" in text
    assert "| diamond peer temporal | took more than 900 s |" in text
    assert "| celery | celery 5 |" in text
    assert "| prefetch 4; chain: prefetch 1; executions: diamonds 2000 |" in text
    assert "Not complete" in text


def test_a_job_is_chosen_by_all_of_the_words() -> None:
    job = BenchmarkJob(name="diamond servers 1w x4", run=dict)

    assert job.has_words(["servers", "diamond"])
    assert job.has_words([])
    assert not job.has_words(["servers", "x64"])


def test_jobs_have_names_of_their_own() -> None:
    names = [job.name for job in list_jobs()]

    assert len(names) == len(set(names))
