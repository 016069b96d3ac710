"""Removes what a measurement has left on servers that are not its own."""

from runnel.backends.postgres.migrations import quoted
from runnel.backends.redis.lines import Lines
from runnel.benchmarks.asking import asking
from runnel.benchmarks.servers import Servers
from runnel.errors import StoreError
from runnel.ports.clock import Clock

KEYS_AT_ONCE = 1_000
CALL_S = 30.0


async def remove_traces(servers: Servers, clock: Clock) -> int:
    """All keys and tables of its name; returns how many keys there were.

    Raises StoreError, which says what is left, after all was removed from the server that answers.
    """
    try:
        return await _remove_keys(servers, clock)
    finally:
        if servers.postgres_url is not None:
            await _remove_tables(servers.postgres_url, servers.name)


async def _remove_tables(url: str, schema: str) -> None:
    try:
        async with asking(url) as connection:
            await connection.execute(f"DROP SCHEMA IF EXISTS {quoted(schema)} CASCADE")
    except StoreError as error:
        raise _left("PostgreSQL", f"the schema {schema}", error) from error


async def _remove_keys(servers: Servers, clock: Clock) -> int:
    lines = Lines(servers.redis_url, clock, call_s=CALL_S)
    removed, place = 0, b"0"
    try:
        while True:
            place, keys = await lines.call(
                "SCAN", place, "MATCH", f"{servers.name}:*", "COUNT", KEYS_AT_ONCE
            )
            if keys:
                removed += await lines.call("UNLINK", *keys)
            if place == b"0":
                return removed
    except StoreError as error:
        raise _left("Redis", f"keys that begin with {servers.name}", error) from error
    finally:
        await lines.close()


def _left(kind: str, what: str, error: StoreError) -> StoreError:
    return StoreError(f"{kind}: {what} may be left on it: {str(error).removeprefix(f'{kind}: ')}")
