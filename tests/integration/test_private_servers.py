"""Private servers do what tests, benchmarks and users ask of them, and never stay behind."""

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

START_LIMIT_S = 10.0  # a hundred times what it takes: for machines that do much else


@pytest.mark.parametrize("kind", [RedisServer, PostgresServer])
def test_a_server_starts_soon(kind: type[AnyServer], missing_part: MissingPart) -> None:
    with start_or_skip(kind(), missing_part):
        pass  # the first PostgreSQL of a version is initialised, and kept
    server = kind()

    started = time.perf_counter()
    with start_or_skip(server, missing_part):
        took_s = time.perf_counter() - started

    sys.stdout.write(f"{server.kind} started in {took_s * 1_000:.0f} ms\n")
    assert took_s < START_LIMIT_S


async def test_redis_keeps_what_it_answered_through_a_kill(own_redis: RedisServer) -> None:
    async with client_of(own_redis) as client:
        for number in range(500):
            await client.set(f"key-{number}", number)

    own_redis.kill()
    own_redis.start()

    async with client_of(own_redis) as client:
        assert await client.dbsize() == 500


async def test_postgres_keeps_what_it_committed_through_a_kill(
    own_postgres: PostgresServer,
) -> None:
    await sql(own_postgres, "CREATE TABLE things (name text)")
    await sql(own_postgres, "INSERT INTO things VALUES ('kept')")

    own_postgres.kill()
    own_postgres.start()

    assert await sql(own_postgres, "SELECT name FROM things") == "kept"


async def test_a_restart_keeps_address_and_data(
    own_redis: RedisServer, own_postgres: PostgresServer
) -> None:
    before = (own_redis.url, own_postgres.url, own_redis.pid, own_postgres.pid)
    async with client_of(own_redis) as client:
        await client.set("name", "kept")
        await sql(own_postgres, "CREATE TABLE things AS SELECT 'kept' AS name")

        own_redis.restart()
        own_postgres.restart()

        assert await client.get("name") == b"kept"
    assert await sql(own_postgres, "SELECT name FROM things") == "kept"
    assert (own_redis.url, own_postgres.url) == before[:2]
    assert not {own_redis.pid, own_postgres.pid} & set(before[2:])


async def test_a_paused_redis_is_silent_until_it_is_resumed(own_redis: RedisServer) -> None:
    async with client_of(own_redis, limit_s=0.3, retries=0) as client:
        assert await client.ping()

        own_redis.pause()
        with pytest.raises(RedisTimeoutError):
            await client.ping()
        own_redis.resume()

        assert await client.ping()


async def test_a_paused_postgres_is_silent_to_those_it_serves_already(
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
    async with client_of(own_redis) as client:
        await client.set("name", "lost")

        own_redis.wipe()

        assert await client.dbsize() == 0


async def test_a_wiped_postgres_is_empty_at_the_same_address(own_postgres: PostgresServer) -> None:
    url = own_postgres.url
    await sql(own_postgres, "CREATE TABLE things (name text)")

    own_postgres.wipe()

    assert await sql(own_postgres, "SELECT to_regclass('things')") is None
    assert own_postgres.url == url


async def test_an_older_append_only_file_comes_back_under_live_clients(
    own_redis: RedisServer,
) -> None:
    async with client_of(own_redis) as client:
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


async def test_redis_is_set_up_as_production_must_be(missing_part: MissingPart) -> None:
    server = RedisServer(appendfsync="always")
    with start_or_skip(server, missing_part):
        async with client_of(server) as client:
            config = await client.config_get("append*", "maxmemory-policy")

    assert config["appendonly"] == "yes"
    assert config["appendfsync"] == "always"
    assert config["maxmemory-policy"] == "noeviction"


async def test_postgres_waits_for_the_disk_only_when_asked_to(
    shared_postgres: PostgresServer, missing_part: MissingPart
) -> None:
    server = PostgresServer(fsync=True, storage="disk")
    with start_or_skip(server, missing_part):
        answers = [await sql(server_, "SHOW fsync") for server_ in (shared_postgres, server)]

    assert answers == ["off", "on"]


async def test_two_servers_run_side_by_side(
    own_redis: RedisServer, shared_redis: RedisServer
) -> None:
    async with client_of(own_redis) as own, client_of(shared_redis) as shared:
        await own.set("side-by-side", "own")

        assert await shared.get("side-by-side") is None


async def test_nobody_gets_in_without_the_password(
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


def test_a_server_that_was_never_started_says_so() -> None:
    with pytest.raises(ServerFailedError, match=r"has not been started: call start\(\) first"):
        _ = RedisServer().url


def test_a_closed_server_leaves_no_file(own_redis: RedisServer) -> None:
    folder = own_redis.folder

    own_redis.close()

    assert not folder.exists()


@asynccontextmanager
async def client_of(
    server: RedisServer, *, limit_s: float = 5.0, retries: int = 1
) -> AsyncIterator[Redis]:
    """It connects again when it finds its connection lost."""
    retry = Retry(NoBackoff(), retries)
    async with Redis.from_url(server.url, socket_timeout=limit_s, retry=retry) as client:
        yield client


async def sql(server: PostgresServer, statement: str) -> Any:
    connection = await asyncpg.connect(server.url)
    try:
        return await connection.fetchval(statement)
    finally:
        await connection.close()
