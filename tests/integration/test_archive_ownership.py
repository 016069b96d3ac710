"""An archive belongs to one Redis: any other Redis is refused and changes nothing."""

import asyncio

import pytest

from runnel.app.private_servers import redis as redis_wire
from runnel.app.private_servers.postgres import PostgresServer
from runnel.app.private_servers.redis import RedisServer
from runnel.backends.postgres.database import PostgresOptions
from runnel.backends.redis.options import RedisOptions
from runnel.backends.redis_postgres.archive_ownership import format_redis_location
from runnel.backends.redis_postgres.backend import RedisPostgresBackend
from runnel.engine.clock import RandomIdGenerator, RealClock
from runnel.errors import InputError, PartitionUnavailableError
from tests.core_driver import make_node, make_workflow
from tests.engines import WorkHandler
from tests.redis_postgres import fetch_rows, make_schema_name, open_archived_engine
from tests.redis_server import flush_server, get_password

CHAIN = make_workflow(make_node("a"), make_node("b", "a"))


async def open_pair(
    redis: RedisServer,
    postgres: PostgresServer,
    schema: str,
    *,
    prefix: str = "runnel",
    takes_archive: bool = False,
) -> RedisPostgresBackend:
    return await RedisPostgresBackend.open(
        redis.url,
        postgres.url,
        RedisOptions(partitions=1, prefix=prefix),
        PostgresOptions(schema=schema),
        clock=RealClock(),
        ids=RandomIdGenerator(),
        host="here",
        takes_archive=takes_archive,
    )


async def test_another_prefix_with_the_same_archive_is_refused(
    shared_redis: RedisServer, shared_postgres: PostgresServer
) -> None:
    flush_server(shared_redis)
    schema = make_schema_name()
    first = await open_pair(shared_redis, shared_postgres, schema)

    place = f"127.0.0.1:{shared_redis.port}/0 on here"
    sentence = (
        f"the archive in the schema '{schema}' belongs to the Redis at {place} with the prefix "
        f"runnel, not to the one at {place} with the prefix b: "
    )
    with pytest.raises(InputError, match=sentence):
        await open_pair(shared_redis, shared_postgres, schema, prefix="b")

    assert redis_wire.send_command(shared_redis.port, get_password(shared_redis), "KEYS b*") == "*0"
    again = await open_pair(shared_redis, shared_postgres, schema)
    other = await open_pair(shared_redis, shared_postgres, make_schema_name(), prefix="b")
    for backend in (first, again, other):
        await backend.close()


async def test_an_empty_redis_at_another_address_gets_an_archive_only_with_the_option(
    own_redis: RedisServer, shared_redis: RedisServer, shared_postgres: PostgresServer
) -> None:
    flush_server(shared_redis)
    schema = make_schema_name()
    work = WorkHandler()
    gate = work.gate("b")
    async with open_archived_engine(own_redis, shared_postgres, work, schema=schema) as running:
        ids = await running.submit_all([CHAIN] * 5)
        await work.entered["b"].wait()
        await running.archive_all()
    await asyncio.to_thread(own_redis.kill)

    with pytest.raises(InputError, match="belongs to the Redis at"):
        async with open_archived_engine(shared_redis, shared_postgres, work, schema=schema):
            raise AssertionError
    taken = await RedisPostgresBackend.open(
        shared_redis.url,
        shared_postgres.url,
        postgres_options=PostgresOptions(schema=schema),
        clock=RealClock(),
        ids=RandomIdGenerator(),
        takes_archive=True,
    )
    gate.set()
    async with open_archived_engine(shared_redis, shared_postgres, work, schema=schema) as running:
        assert set(await running.ends(ids)) == {"COMPLETED"}
        await asyncio.to_thread(own_redis.start)
        with pytest.raises(InputError, match="belongs to the Redis at"):
            async with open_archived_engine(own_redis, shared_postgres, work, schema=schema):
                raise AssertionError
    await taken.close()


async def test_a_redis_that_lost_its_archive_gives_no_lease_after_a_restart(
    own_redis: RedisServer, shared_redis: RedisServer, shared_postgres: PostgresServer
) -> None:
    flush_server(shared_redis)
    schema = make_schema_name()
    former = await open_pair(own_redis, shared_postgres, schema)
    taken = await open_pair(shared_redis, shared_postgres, schema, takes_archive=True)

    await asyncio.to_thread(own_redis.restart)
    with pytest.raises(PartitionUnavailableError, match="belongs to the Redis at"):
        await former.store.acquire(0, "one")
    await asyncio.to_thread(own_redis.wipe)
    with pytest.raises(PartitionUnavailableError, match="belongs to the Redis at"):
        await former.store.acquire(0, "one")

    await former.close()
    await taken.close()


async def test_a_redis_with_two_known_addresses_is_accepted_at_either(
    own_redis: RedisServer, shared_postgres: PostgresServer
) -> None:
    schema = make_schema_name()

    async def open_as(host: str) -> RedisPostgresBackend:
        url = own_redis.url.replace("127.0.0.1", host)
        return await RedisPostgresBackend.open(
            url,
            shared_postgres.url,
            postgres_options=PostgresOptions(schema=schema),
            clock=RealClock(),
            ids=RandomIdGenerator(),
        )

    for host in ("127.0.0.1", "localhost"):
        await (await open_as(host)).close()
    await asyncio.to_thread(own_redis.wipe)

    backend = await open_as("127.0.0.1")

    [(places,)] = await fetch_rows(backend, "SELECT redis_places FROM meta")
    assert [place.partition(":")[0] for place in places] == ["127.0.0.1", "localhost"]
    await backend.close()


@pytest.mark.parametrize(
    ("address", "expected"),
    [
        ("redis.internal:6379/0", "redis.internal:6379/0 with the prefix p"),
        ("localhost:6379/1", "localhost:6379/1 on here with the prefix p"),
        ("[::1]:6379/1", "[::1]:6379/1 on here with the prefix p"),
        ("/run/redis.sock/0", "/run/redis.sock/0 on here with the prefix p"),
    ],
)
def test_a_local_address_includes_the_name_of_its_machine(address: str, expected: str) -> None:
    assert format_redis_location(address, "p", "here") == expected
