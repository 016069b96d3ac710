"""What makes no sense is refused in one sentence; what is not said has a default."""

import pytest

from runnel.bench.report import BenchmarkOptions, build_request
from runnel.errors import InputError

REDIS = "redis://host:6379/0"
POSTGRES = "postgresql://host/runnel"


def test_without_a_word_it_is_sqlite_with_the_count_of_the_workload() -> None:
    found = build_request("diamond", BenchmarkOptions())

    assert (found.backend, found.durability, found.count) == ("sqlite", "process", 2_000)
    assert (found.concurrency, found.workers, found.repetitions) == (4, 1, 3)


@pytest.mark.parametrize(
    ("workload", "given"),
    [
        ("diamond", BenchmarkOptions(redis_url=REDIS)),
        ("diamond", BenchmarkOptions(redis_url=REDIS, postgres_url=POSTGRES)),
        ("takeover", BenchmarkOptions()),
        ("archive", BenchmarkOptions()),
    ],
)
def test_what_needs_servers_is_on_redis(workload: str, given: BenchmarkOptions) -> None:
    assert build_request(workload, given).backend == "redis"


@pytest.mark.parametrize(
    ("workload", "given", "sentence"),
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
            "only SQLite has a choice",
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
        ("start", BenchmarkOptions(repetitions=2), "--repetitions: 'start' has no choice of it"),
        ("takeover", BenchmarkOptions(workers=2), "--workers: 'takeover' has no choice of it"),
        ("takeover", BenchmarkOptions(backend="sqlite"), "'takeover' needs servers"),
        ("start", BenchmarkOptions(backend="memory"), "'start' begins with nothing"),
        ("start", BenchmarkOptions(redis_url=REDIS), "on no server: give no URL"),
        ("archive", BenchmarkOptions(redis_url=REDIS), "it takes private servers only"),
    ],
)
def test_what_makes_no_sense_is_refused(
    workload: str, given: BenchmarkOptions, sentence: str
) -> None:
    with pytest.raises(InputError) as caught:
        build_request(workload, given)

    assert sentence in str(caught.value)
