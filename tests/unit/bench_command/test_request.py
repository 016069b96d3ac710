"""Requests of `runnel bench`: defaults, and errors for options that do not fit together."""

import pytest

from runnel.bench.report import BenchmarkOptions, build_request
from runnel.errors import InputError

REDIS = "redis://host:6379/0"
POSTGRES = "postgresql://host/runnel"


def test_the_default_is_sqlite_with_the_count_of_the_workload() -> None:
    request = build_request("diamond", BenchmarkOptions())

    assert (request.backend, request.durability, request.count) == ("sqlite", "process", 2_000)
    assert (request.concurrency, request.workers, request.repetitions) == (4, 1, 3)
    assert request.functions == "sync"


@pytest.mark.parametrize(
    ("workload", "options"),
    [
        ("diamond", BenchmarkOptions(redis_url=REDIS)),
        ("diamond", BenchmarkOptions(redis_url=REDIS, postgres_url=POSTGRES)),
        ("takeover", BenchmarkOptions()),
        ("archive", BenchmarkOptions()),
    ],
)
def test_a_workload_that_needs_servers_runs_on_redis(
    workload: str, options: BenchmarkOptions
) -> None:
    assert build_request(workload, options).backend == "redis"


@pytest.mark.parametrize(
    ("workload", "options", "sentence"),
    [
        ("lozenge", BenchmarkOptions(), "expected a workload (diamond, chain, "),
        (
            "diamond",
            BenchmarkOptions(backend="mysql"),
            "--backend: expected one of memory, sqlite, redis",
        ),
        ("diamond", BenchmarkOptions(durability="none"), "--durability: expected process or power"),
        (
            "diamond",
            BenchmarkOptions(backend="memory", durability="power"),
            "only SQLite has this option",
        ),
        ("diamond", BenchmarkOptions(workers=2), "--workers: sqlite has one"),
        (
            "diamond",
            BenchmarkOptions(backend="sqlite", redis_url=REDIS),
            "--redis-url: expected --backend",
        ),
        (
            "diamond",
            BenchmarkOptions(postgres_url=POSTGRES),
            "--postgres-url: expected --backend redis",
        ),
        (
            "diamond",
            BenchmarkOptions(backend="redis", postgres_url=POSTGRES),
            "expected --redis-url with",
        ),
        (
            "diamond",
            BenchmarkOptions(count=100_001),
            "--count: expected at most 100000, got 100001",
        ),
        ("diamond", BenchmarkOptions(concurrency=10**9), "--concurrency: expected at most 10000"),
        (
            "diamond",
            BenchmarkOptions(backend="redis", workers=65),
            "--workers: expected at most 64, got 65",
        ),
        (
            "graph",
            BenchmarkOptions(functions="sync"),
            "--functions: only diamond, chain, fan run functions, not 'graph'",
        ),
        (
            "diamond",
            BenchmarkOptions(functions="both"),
            "--functions: expected sync or async, got 'both'",
        ),
        ("start", BenchmarkOptions(repetitions=2), "--repetitions: 'start' does not accept"),
        ("takeover", BenchmarkOptions(workers=2), "--workers: 'takeover' does not accept"),
        ("takeover", BenchmarkOptions(backend="sqlite"), "'takeover' needs servers"),
        ("start", BenchmarkOptions(backend="memory"), "'start' runs on SQLite only"),
        ("start", BenchmarkOptions(redis_url=REDIS), "without a server: give no URL"),
        ("archive", BenchmarkOptions(redis_url=REDIS), "it uses private servers"),
    ],
)
def test_options_that_do_not_fit_together_are_refused(
    workload: str, options: BenchmarkOptions, sentence: str
) -> None:
    with pytest.raises(InputError) as caught:
        build_request(workload, options)

    assert sentence in str(caught.value)
