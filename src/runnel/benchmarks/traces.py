"""Removes what a measurement has left on servers that are not its own."""

import asyncpg

from runnel.backends.postgres.migrations import quoted
from runnel.backends.redis.lines import Lines
from runnel.benchmarks.servers import Servers
from runnel.ports.clock import Clock

KEYS_AT_ONCE = 1_000
CALL_S = 30.0


async def remove_traces(servers: Servers, clock: Clock) -> int:
    """All keys and tables of its name; returns how many keys there were."""
    removed = await _remove_keys(servers, clock)
    if servers.postgres_url is not None:
        connection = await asyncpg.connect(servers.postgres_url, timeout=CALL_S)
        try:
            await connection.execute(f"DROP SCHEMA IF EXISTS {quoted(servers.name)} CASCADE")
        finally:
            await connection.close()
    return removed


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
    finally:
        await lines.close()
