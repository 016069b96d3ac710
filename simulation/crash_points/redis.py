"""Storage of crash points on a Redis server.

The keys of each crash point begin with the name of its folder.
"""

from collections.abc import Iterator
from typing import Any

from redis import Redis

from runnel.app.embedded_engine import ClockAndIds
from runnel.backends.redis.backend import RedisBackend
from runnel.backends.redis.keys import RedisKeyNames
from runnel.backends.redis.options import RedisOptions
from runnel.backends.row_codec import decode_header
from runnel.core.commands import LIMIT_PREFIX
from runnel.core.states import FINAL_EXECUTION_STATES
from runnel.engine.clock import RandomIdGenerator, RealClock
from runnel.ports.store import CommitLimits
from runnel.settings.model import Settings
from simulation.crash_points.backend import CrashingRedisConnectionPool, CrashPointCounter
from simulation.crash_points.journal import RunJournal
from simulation.crash_points.storage import (
    SHUTDOWN_S,
    OpenedBackends,
    StorageSummary,
    find_settled_keys,
)

SCAN_COUNT = 1_000


def read_storage_summary(client: Redis, keys: RedisKeyNames) -> StorageSummary:
    return StorageSummary(
        settled=list(find_settled_keys(_read_histories(client, keys))),
        left_over={name: count for name, count in _count_left_over(client, keys) if count},
        dead_letters=_count_entries(client, keys.letters, "XLEN"),
    )


def find_keys(client: Redis, prefix: str) -> list[bytes]:
    """Returns all keys that start with `prefix`."""
    return list(client.scan_iter(match=f"{prefix}*", count=SCAN_COUNT))


def _read_histories(client: Redis, keys: RedisKeyNames) -> Iterator[tuple[str, bytes]]:
    for key in sorted(find_keys(client, keys.history)):
        for entry in _execute(client, "LRANGE", key, 0, -1):
            yield key.decode().removeprefix(keys.history), entry


def _count_left_over(client: Redis, keys: RedisKeyNames) -> Iterator[tuple[str, int]]:
    headers = map(decode_header, _execute(client, "HVALS", keys.headers))
    yield (
        "unfinished executions",
        sum(header.state not in FINAL_EXECUTION_STATES for header in headers),
    )
    yield "histories of limits", len(find_keys(client, keys.history + LIMIT_PREFIX))
    partitions = find_keys(client, keys.partition)
    owned = [_execute(client, "HEXISTS", partition, "owner") for partition in partitions]
    yield "partitions with an owner", sum(owned)
    yield "unconsumed messages", _count_entries(client, keys.inbox, "XLEN")
    yield "timers", _count_entries(client, keys.timers, "ZCARD")
    yield "attempts of timers", _count_entries(client, keys.attempts, "HLEN")
    yield "running executions", _count_entries(client, keys.running, "ZCARD")
    yield "concurrency keys", _count_entries(client, keys.limits, "SCARD")
    yield "queued tasks", _count_entries(client, keys.arrivals, "ZCARD")
    yield "tasks in lanes", _count_entries(client, keys.lanes, "ZCARD")
    yield "tasks in flight", _count_entries(client, keys.task_locations, "HLEN")
    yield "held tasks", _count_entries(client, keys.held, "HLEN")
    yield "dropped tasks", _count_entries(client, keys.dropped, "XLEN")
    yield "workers", _count_entries(client, keys.workers, "HLEN")
    yield "descriptions of workers", _count_entries(client, keys.about, "HLEN")
    yield "orchestrators", _count_entries(client, keys.orchestrators, "HLEN")


def _count_entries(client: Redis, key: str, command: str) -> int:
    """Returns the number of entries of a key.

    A key that ends in a colon is a prefix of several keys.
    """
    names = find_keys(client, key) if key.endswith(":") else [key]
    return sum(_execute(client, command, name) for name in names)


# The result is Any, because the type of the reply depends on the command.
def _execute(client: Redis, *command: bytes | str | int) -> Any:
    return client.execute_command(*command)  # type: ignore[no-untyped-call]  # redis-py's gap


PARTITIONS = 2
# The id of an execution in another partition than the concurrency key `k`, so that their messages
# cross partitions.
EXECUTION_ID = "sweptexecution"
# Short timeouts are safe: only one process is alive at a time, so no other process takes the lease
# of a stalled process.
LEASE_S = 0.1
HEARTBEAT_INTERVAL_S = 0.02


class FixedExecutionIds(RandomIdGenerator):
    """Generates the same execution id in every process, so that crash points are always
    the same.
    """

    def execution_id(self) -> str:
        return EXECUTION_ID


class RedisKeyStorage:
    """The storage of a sweep on one Redis server.

    The keys of each crash point are removed after it.
    """

    is_shared = True

    def __init__(self, url: str) -> None:
        self._url = url

    def make_world(self) -> ClockAndIds:
        return ClockAndIds(RealClock(), FixedExecutionIds())

    def settings(self, journal: RunJournal, *, detects_failures_fast: bool) -> Settings:
        """Returns settings with default timeouts, or with short ones if `detects_failures_fast`.

        With default timeouts, a process ends before its first heartbeat, so its crash points are
        always the same.
        """
        if not detects_failures_fast:
            return Settings(shutdown_timeout_s=SHUTDOWN_S)
        return Settings(
            lease_s=LEASE_S,
            heartbeat_interval_s=HEARTBEAT_INTERVAL_S,
            shutdown_timeout_s=SHUTDOWN_S,
        )

    async def open(
        self,
        journal: RunJournal,
        world: ClockAndIds,
        limits: CommitLimits,
        points: CrashPointCounter,
    ) -> OpenedBackends:
        clock, ids = world.clock, world.ids
        options = RedisOptions(partitions=PARTITIONS, prefix=_get_prefix(journal), limits=limits)
        plain = await RedisBackend.open(self._url, options, clock=clock, ids=ids)
        pool = CrashingRedisConnectionPool(self._url, clock, points)
        counted = RedisBackend(
            pool, plain.keys, plain.layout, clock=clock, ids=ids, options=options
        )
        return OpenedBackends(counted, plain)

    def summarize(self, journal: RunJournal, *, engine: str) -> StorageSummary:
        with self._client() as client:
            return read_storage_summary(client, RedisKeyNames(_get_prefix(journal)))

    def copy(self, source: RunJournal, target: RunJournal) -> None:
        old, new = _get_prefix(source).encode(), _get_prefix(target).encode()
        with self._client() as client:
            for key in find_keys(client, _get_prefix(source)):
                client.copy(key, key.replace(old, new, 1))

    def remove(self, journal: RunJournal) -> None:
        with self._client() as client:
            keys = find_keys(client, _get_prefix(journal))
            if keys:
                client.delete(*keys)

    def _client(self) -> Redis:
        """Opens a client for one method, because no connection may be open during a fork."""
        return Redis.from_url(self._url)


def _get_prefix(journal: RunJournal) -> str:
    return journal.folder.name
