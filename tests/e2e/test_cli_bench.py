"""`runnel bench` prints rates and leaves no data behind."""

import asyncio
import json
import signal
from pathlib import Path
from typing import Any

import asyncpg
import pytest
import redis

from runnel.app.private_servers.postgres import PostgresServer
from runnel.app.private_servers.redis import RedisServer
from runnel.cli.main import run_command
from runnel.settings.variables import VARIABLES
from tests.conftest import MissingPart
from tests.e2e.program import Program
from tests.servers import require_binary
from tests.waiting import wait_until

# The executions that a benchmark runs before it measures.
WARM_UP_EXECUTIONS = 320

pytestmark = [pytest.mark.e2e, pytest.mark.slow, pytest.mark.timeout(120)]


@pytest.fixture(autouse=True)
def _empty_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Runs each test in an empty folder without any setting."""
    monkeypatch.chdir(tmp_path)
    for name in VARIABLES:
        monkeypatch.delenv(name, raising=False)


@pytest.fixture
def program(tmp_path: Path) -> Program:
    return Program(tmp_path)


def run_bench(capsys: pytest.CaptureFixture[str], *arguments: str) -> dict[str, Any]:
    code = run_command(["bench", *arguments, "--json"])
    out, err = capsys.readouterr()
    assert code == 0, err
    result: dict[str, Any] = json.loads(out)
    return result


def check_rates(result: dict[str, Any]) -> None:
    assert result["executions_per_s"] > 0
    assert result["nodes_per_s"] == pytest.approx(4 * result["executions_per_s"])
    assert result["engine_only_per_s"] > 0


def test_json_is_one_object_with_rates_and_settings(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    result = run_bench(capsys, "diamond", "--backend", "sqlite", "--count", "20")

    check_rates(result)
    assert result["settings"]["count"] == 20
    assert result["settings"]["durability"] == "process"
    assert result["settings"]["concurrency"] == 4
    assert list(tmp_path.iterdir()) == []


def test_async_functions_are_measured_on_request(capsys: pytest.CaptureFixture[str]) -> None:
    arguments = ("--backend", "memory", "--count", "20", "--functions", "async")

    result = run_bench(capsys, *arguments)

    check_rates(result)
    assert result["settings"]["functions"] == "async"


def test_private_servers_are_started_when_none_are_named(
    capsys: pytest.CaptureFixture[str], missing_part: MissingPart
) -> None:
    for kind in (RedisServer, PostgresServer):
        require_binary(kind, missing_part)

    result = run_bench(capsys, "--backend", "redis", "--count", "20", "--repetitions", "1")

    check_rates(result)
    assert result["settings"]["redis"].startswith("private")
    assert (result["settings"]["orchestrators"], result["settings"]["workers"]) == (1, 1)


def test_a_benchmark_leaves_no_data_on_named_servers(
    capsys: pytest.CaptureFixture[str], own_redis: RedisServer, own_postgres: PostgresServer
) -> None:
    urls = ("--redis-url", own_redis.url, "--postgres-url", own_postgres.url)
    before = asyncio.run(list_schemas(own_postgres))

    with redis.Redis.from_url(own_redis.url) as client:
        client.set("runnel-bench-other:kept", "1")
        result = run_bench(capsys, *urls, "--count", "20", "--repetitions", "1", "--workers", "2")
        remaining_keys = client.keys("*")

    check_rates(result)
    assert result["settings"]["redis"].startswith("redis://***@")
    assert remaining_keys == [b"runnel-bench-other:kept"]
    assert asyncio.run(list_schemas(own_postgres)) == before


@pytest.mark.parametrize(
    ("number", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143), (signal.SIGHUP, 129)]
)
async def test_an_interrupted_benchmark_leaves_no_data_on_named_servers(
    program: Program,
    own_redis: RedisServer,
    own_postgres: PostgresServer,
    *,
    number: signal.Signals,
    code: int,
) -> None:
    urls = ("--redis-url", own_redis.url, "--postgres-url", own_postgres.url)
    before = await list_schemas(own_postgres)

    with redis.Redis.from_url(own_redis.url) as client:
        async with program.running("bench", *urls, "--count", "20000") as running:
            await wait_until(lambda: is_measuring(client), deadline_s=60)
            running.send(number)
            exit_code, _, err = await running.wait()
        remaining_keys = client.keys("*")

    assert (exit_code, "error" in err, remaining_keys) == (code, False, [])
    assert await list_schemas(own_postgres) == before


@pytest.mark.parametrize("ends", ["redis", "postgres"])
async def test_a_server_that_dies_in_the_middle_is_named_and_the_other_one_is_cleaned(
    program: Program, own_redis: RedisServer, own_postgres: PostgresServer, *, ends: str
) -> None:
    urls = ("--redis-url", own_redis.url, "--postgres-url", own_postgres.url)
    before = await list_schemas(own_postgres)
    ending, name = (own_redis, "Redis") if ends == "redis" else (own_postgres, "PostgreSQL")

    with redis.Redis.from_url(own_redis.url) as client:
        async with program.running("bench", *urls, "--count", "20000") as running:
            await wait_until(lambda: is_measuring(client), deadline_s=60)
            await asyncio.to_thread(ending.kill)
            code, _, err = await running.wait()
        remaining = await list_schemas(own_postgres) if ends == "redis" else client.keys("*")

    assert code == 1
    assert f"error: can't use the {name} at " in err
    assert "may be left on it" in err
    assert "bug of Runnel" not in err
    assert remaining == (before if ends == "redis" else [])


def test_without_json_a_table_is_printed(capsys: pytest.CaptureFixture[str]) -> None:
    code = run_command(["bench", "--backend", "memory", "--count", "10"])

    out, err = capsys.readouterr()
    assert code == 0, err
    assert "executions per second" in out
    assert "nodes per second" in out
    assert "engine only per second" in out
    assert "diamond on memory: 10 executions" in err


def test_a_cold_start_is_measured_with_a_new_process(capsys: pytest.CaptureFixture[str]) -> None:
    result = run_bench(capsys, "start", "--count", "1")

    assert result["figures"]["cold_start_s"] > 0
    assert result["executions_per_s"] is None


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (("lozenge",), "expected a workload (diamond, "),
        (("--backend", "mysql"), "--backend: expected one of memory, sqlite, redis, got 'mysql'"),
        (("--redis-url", "nowhere"), "--redis-url: expected a URL such as redis://"),
        (("--count", "0"), "--count: expected at least 1, got 0"),
    ],
)
def test_wrong_input_is_answered_with_one_sentence(
    capsys: pytest.CaptureFixture[str], arguments: tuple[str, ...], sentence: str
) -> None:
    code = run_command(["bench", *arguments])

    out, err = capsys.readouterr()
    assert (code, out) == (2, "")
    assert err.startswith("error: ")
    assert sentence in err
    assert err.count("\n") == 1


def test_an_unreachable_server_is_named_without_its_password(
    capsys: pytest.CaptureFixture[str],
) -> None:
    code = run_command(["bench", "--redis-url", "redis://:hush@127.0.0.1:1/0", "--count", "1"])

    err = capsys.readouterr().err
    assert code == 1
    assert "can't use the Redis at redis://***@127.0.0.1:1/0" in err
    assert "hush" not in err


def is_measuring(client: redis.Redis) -> bool:
    return len(client.keys("runnel-bench-*:history:*")) > WARM_UP_EXECUTIONS


async def list_schemas(postgres: PostgresServer) -> list[str]:
    connection = await asyncpg.connect(postgres.url)
    try:
        rows = await connection.fetch(
            "SELECT nspname FROM pg_namespace WHERE nspname NOT LIKE 'pg!_%' ESCAPE '!' ORDER BY 1"
        )
    finally:
        await connection.close()
    return [row[0] for row in rows]
