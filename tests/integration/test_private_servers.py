"""Private servers start, pause, restart and stop on request, and keep or drop their data."""

import asyncio
import sys
import threading
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import asyncpg
import pytest
from redis.asyncio import Redis
from redis.asyncio.retry import Retry
from redis.backoff import NoBackoff
from redis.exceptions import AuthenticationError
from redis.exceptions import TimeoutError as RedisTimeoutError

from runnel.app.private_servers.postgres import PostgresServer
from runnel.app.private_servers.redis import RedisServer
from runnel.errors import ServerFailedError
from tests.conftest import MissingPart
from tests.servers import AnyServer, require_binary, start_or_skip

START_LIMIT_S = 10.0  # a hundred times the usual figure, for busy machines


@pytest.mark.parametrize("kind", [RedisServer, PostgresServer])
def test_a_server_starts_within_the_limit(kind: type[AnyServer], missing_part: MissingPart) -> None:
    with start_or_skip(kind(), missing_part):
        pass  # creates the PostgreSQL template that later starts copy
    server = kind()

    started = time.perf_counter()
    with start_or_skip(server, missing_part):
        took_s = time.perf_counter() - started

    sys.stdout.write(f"{server.kind} started in {took_s * 1_000:.0f} ms\n")
    assert took_s < START_LIMIT_S


async def test_redis_keeps_acknowledged_writes_after_a_kill(own_redis: RedisServer) -> None:
    async with open_client(own_redis) as client:
        for number in range(500):
            await client.set(f"key-{number}", number)

    own_redis.kill()
    own_redis.start()

    async with open_client(own_redis) as client:
        assert await client.dbsize() == 500


async def test_postgres_keeps_commits_after_a_kill(
    own_postgres: PostgresServer,
) -> None:
    await run_sql(own_postgres, "CREATE TABLE things (name text)")
    await run_sql(own_postgres, "INSERT INTO things VALUES ('kept')")

    own_postgres.kill()
    own_postgres.start()

    assert await run_sql(own_postgres, "SELECT name FROM things") == "kept"


async def test_a_restart_keeps_address_and_data(
    own_redis: RedisServer, own_postgres: PostgresServer
) -> None:
    before = (own_redis.url, own_postgres.url, own_redis.pid, own_postgres.pid)
    async with open_client(own_redis) as client:
        await client.set("name", "kept")
        await run_sql(own_postgres, "CREATE TABLE things AS SELECT 'kept' AS name")

        own_redis.restart()
        own_postgres.restart()

        assert await client.get("name") == b"kept"
    assert await run_sql(own_postgres, "SELECT name FROM things") == "kept"
    assert (own_redis.url, own_postgres.url) == before[:2]
    assert not {own_redis.pid, own_postgres.pid} & set(before[2:])


async def test_a_paused_redis_does_not_answer_until_it_is_resumed(own_redis: RedisServer) -> None:
    async with open_client(own_redis, limit_s=0.3, retries=0) as client:
        assert await client.ping()

        own_redis.pause()
        with pytest.raises(RedisTimeoutError):
            await client.ping()
        own_redis.resume()

        assert await client.ping()


async def test_a_paused_postgres_does_not_answer_open_connections(
    own_postgres: PostgresServer,
) -> None:
    connection = await asyncpg.connect(own_postgres.url)
    own_postgres.pause()
    question = asyncio.ensure_future(connection.fetchval("SELECT 42"))

    answered, waiting = await asyncio.wait([question], timeout=0.3)
    own_postgres.resume()

    assert (answered, waiting) == (set(), {question})
    assert await question == 42
    await connection.close()


@pytest.mark.parametrize("kind", [RedisServer, PostgresServer])
def test_a_paused_server_can_be_stopped(kind: type[AnyServer], missing_part: MissingPart) -> None:
    server = kind()
    with start_or_skip(server, missing_part):
        server.pause()

        server.stop()

        assert not server.is_running


async def test_a_wiped_redis_is_empty_at_the_same_address(own_redis: RedisServer) -> None:
    async with open_client(own_redis) as client:
        await client.set("name", "lost")

        own_redis.wipe()

        assert await client.dbsize() == 0


async def test_a_wiped_postgres_is_empty_at_the_same_address(own_postgres: PostgresServer) -> None:
    url = own_postgres.url
    await run_sql(own_postgres, "CREATE TABLE things (name text)")

    own_postgres.wipe()

    assert await run_sql(own_postgres, "SELECT to_regclass('things')") is None
    assert own_postgres.url == url


async def test_an_older_append_only_file_can_be_restored_under_open_clients(
    own_redis: RedisServer,
) -> None:
    async with open_client(own_redis) as client:
        await client.set("step", 1)
        first = own_redis.save_aof()
        await client.set("step", 2)
        second = own_redis.save_aof()
        await client.set("step", 3)

        own_redis.restore_aof(first)
        after_first = await client.get("step")
        own_redis.restore_aof(second)
        after_second = await client.get("step")

    assert (after_first, after_second) == (b"1", b"2")


async def test_redis_has_the_durability_settings_of_production(missing_part: MissingPart) -> None:
    server = RedisServer(appendfsync="always")
    with start_or_skip(server, missing_part):
        async with open_client(server) as client:
            config = await client.config_get("append*", "maxmemory-policy")

    assert config["appendonly"] == "yes"
    assert config["appendfsync"] == "always"
    assert config["maxmemory-policy"] == "noeviction"


async def test_postgres_uses_fsync_only_on_request(
    shared_postgres: PostgresServer, missing_part: MissingPart
) -> None:
    server = PostgresServer(fsync=True, storage="disk")
    with start_or_skip(server, missing_part):
        answers = [await run_sql(checked, "SHOW fsync") for checked in (shared_postgres, server)]

    assert answers == ["off", "on"]


async def test_two_servers_run_side_by_side(
    own_redis: RedisServer, shared_redis: RedisServer
) -> None:
    async with open_client(own_redis) as own, open_client(shared_redis) as shared:
        await own.set("side-by-side", "own")

        assert await shared.get("side-by-side") is None


async def test_a_connection_without_the_password_is_refused(
    shared_redis: RedisServer, shared_postgres: PostgresServer
) -> None:
    async with Redis(port=shared_redis.port, retry=Retry(NoBackoff(), 0)) as client:
        with pytest.raises(AuthenticationError):
            await client.ping()
    with pytest.raises(asyncpg.InvalidPasswordError):
        await asyncpg.connect(
            host="127.0.0.1", port=shared_postgres.port, user="postgres", password="guessed"
        )


def test_a_server_outlives_the_thread_that_started_it(missing_part: MissingPart) -> None:
    require_binary(RedisServer, missing_part)
    server = RedisServer()
    thread = threading.Thread(target=server.start)

    thread.start()
    thread.join()

    with server:
        assert server.is_running
        assert "ready to accept connections" in server.log.lower()


def test_a_server_that_was_not_started_raises_an_error() -> None:
    with pytest.raises(ServerFailedError, match=r"has not been started: call start\(\) first"):
        _ = RedisServer().url


def test_a_closed_server_leaves_no_file(own_redis: RedisServer) -> None:
    folder = own_redis.folder

    own_redis.close()

    assert not folder.exists()


@asynccontextmanager
async def open_client(
    server: RedisServer, *, limit_s: float = 5.0, retries: int = 1
) -> AsyncIterator[Redis]:
    """Opens a client that reconnects after a lost connection."""
    retry = Retry(NoBackoff(), retries)
    async with Redis.from_url(server.url, socket_timeout=limit_s, retry=retry) as client:
        yield client


async def run_sql(server: PostgresServer, statement: str) -> Any:
    connection = await asyncpg.connect(server.url)
    try:
        return await connection.fetchval(statement)
    finally:
        await connection.close()
