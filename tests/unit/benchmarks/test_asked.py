"""What makes no sense is refused in one sentence; what is not said has a default."""

import pytest

from runnel.bench.report import Options, asked
from runnel.errors import InputError

REDIS = "redis://host:6379/0"
POSTGRES = "postgresql://host/runnel"


def test_without_a_word_it_is_sqlite_with_the_count_of_the_workload() -> None:
    found = asked("diamond", Options())

    assert (found.backend, found.durability, found.count) == ("sqlite", "process", 2_000)
    assert (found.concurrency, found.workers, found.repetitions) == (4, 1, 3)


@pytest.mark.parametrize(
    ("workload", "given"),
    [
        ("diamond", Options(redis_url=REDIS)),
        ("diamond", Options(redis_url=REDIS, postgres_url=POSTGRES)),
        ("takeover", Options()),
        ("archive", Options()),
    ],
)
def test_what_needs_servers_is_on_redis(workload: str, given: Options) -> None:
    assert asked(workload, given).backend == "redis"


@pytest.mark.parametrize(
    ("workload", "given", "sentence"),
    [
        ("lozenge", Options(), "expected a workload (diamond, chain, "),
        ("diamond", Options(backend="mysql"), "--backend: expected one of memory, sqlite, redis"),
        ("diamond", Options(durability="none"), "--durability: expected process or power"),
        ("diamond", Options(backend="memory", durability="power"), "only SQLite has a choice"),
        ("diamond", Options(workers=2), "--workers: sqlite has one"),
        ("diamond", Options(backend="sqlite", redis_url=REDIS), "--redis-url: expected --backend"),
        ("diamond", Options(postgres_url=POSTGRES), "--postgres-url: expected --backend redis"),
        ("diamond", Options(backend="redis", postgres_url=POSTGRES), "expected --redis-url with"),
        ("diamond", Options(count=100_001), "--count: expected at most 100000, got 100001"),
        ("diamond", Options(concurrency=10**9), "--concurrency: expected at most 10000"),
        ("diamond", Options(backend="redis", workers=65), "--workers: expected at most 64, got 65"),
        ("start", Options(repetitions=2), "--repetitions: 'start' has no choice of it"),
        ("takeover", Options(workers=2), "--workers: 'takeover' has no choice of it"),
        ("takeover", Options(backend="sqlite"), "'takeover' needs servers"),
        ("start", Options(backend="memory"), "'start' begins with nothing"),
        ("start", Options(redis_url=REDIS), "on no server: give no URL"),
        ("archive", Options(redis_url=REDIS), "it takes private servers only"),
    ],
)
def test_what_makes_no_sense_is_refused(workload: str, given: Options, sentence: str) -> None:
    with pytest.raises(InputError) as caught:
        asked(workload, given)

    assert sentence in str(caught.value)
