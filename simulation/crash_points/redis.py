"""Crash points on a Redis server: each has keys of its own, with the name of its diary's folder."""

from collections.abc import Iterator
from typing import Any

from redis import Redis

from runnel.app.engine import World
from runnel.backends.redis.backend import RedisBackend
from runnel.backends.redis.keys import Keys, decode_header
from runnel.core.commands import LIMIT_PREFIX
from runnel.core.states import EXECUTION_FINAL
from runnel.engine.clock import RealClock, RealIds
from runnel.ports.store import CommitLimits
from runnel.settings.model import Settings
from simulation.crash_points.backend import CrashingLines, Moments
from simulation.crash_points.journal import Diary
from simulation.crash_points.storage import SHUTDOWN_S, Opened, Remains, settled_in

# What the keys of a crash point hold: what is settled, and what is left to do.

SCANNED_AT_ONCE = 1_000


def read_remains(client: Redis, keys: Keys) -> Remains:
    return Remains(
        settled=list(settled_in(_histories(client, keys))),
        left_over={name: count for name, count in _left_over(client, keys) if count},
        dead_letters=_length(client, keys.letters, "XLEN"),
    )


def found(client: Redis, prefix: str) -> list[bytes]:
    """All keys that begin so."""
    return list(client.scan_iter(match=f"{prefix}*", count=SCANNED_AT_ONCE))


def _histories(client: Redis, keys: Keys) -> Iterator[tuple[str, bytes]]:
    for key in sorted(found(client, keys.history)):
        for entry in _ask(client, "LRANGE", key, 0, -1):
            yield key.decode().removeprefix(keys.history), entry


def _left_over(client: Redis, keys: Keys) -> Iterator[tuple[str, int]]:
    headers = map(decode_header, _ask(client, "HVALS", keys.headers))
    yield "unfinished executions", sum(each.state not in EXECUTION_FINAL for each in headers)
    yield "histories of limits", len(found(client, keys.history + LIMIT_PREFIX))
    partitions = found(client, keys.partition)
    owned = [_ask(client, "HEXISTS", partition, "owner") for partition in partitions]
    yield "partitions with an owner", sum(owned)
    yield "unconsumed messages", _length(client, keys.inbox, "XLEN")
    yield "timers", _length(client, keys.timers, "ZCARD")
    yield "attempts of timers", _length(client, keys.attempts, "HLEN")
    yield "running executions", _length(client, keys.running, "ZCARD")
    yield "concurrency keys", _length(client, keys.limits, "SCARD")
    yield "queued tasks", _length(client, keys.tasks, "XLEN")
    yield "tasks that are out", _length(client, keys.out, "HLEN")
    yield "held tasks", _length(client, keys.held, "HLEN")
    yield "dropped tasks", _length(client, keys.dropped, "XLEN")
    yield "workers", _length(client, keys.workers, "HLEN")
    yield "descriptions of workers", _length(client, keys.about, "HLEN")
    yield "orchestrators", _length(client, keys.orchestrators, "HLEN")


def _length(client: Redis, key: str, command: str) -> int:
    """Of one key; of all that begin so, if it is a prefix."""
    names = found(client, key) if key.endswith(":") else [key]
    return sum(_ask(client, command, name) for name in names)


# Any: what Redis answers has the shape of the command.
def _ask(client: Redis, *command: bytes | str | int) -> Any:
    return client.execute_command(*command)  # type: ignore[no-untyped-call]  # redis-py's gap


PARTITIONS = 2
# In another partition than the concurrency key `k`: what they tell each other crosses over.
EXECUTION_ID = "sweptexecution"
# Only one process lives at a time, so nobody takes the lease of one that is held up for a while.
LEASE_S = 0.1
BEAT_S = 0.02


class OneExecution(RealIds):
    """The same id in every process, so that a point is the same moment each time."""

    def execution_id(self) -> str:
        return EXECUTION_ID


class RedisKeys:
    """One server for the whole sweep; a point leaves nothing there."""

    is_shared = True

    def __init__(self, url: str) -> None:
        self._url = url

    def world(self) -> World:
        return World(RealClock(), OneExecution())

    def settings(self, diary: Diary, *, is_hasty: bool) -> Settings:
        """Who is not hasty ends before its first beat: its moments are the same each time."""
        if not is_hasty:
            return Settings(shutdown_timeout_s=SHUTDOWN_S)
        return Settings(lease_s=LEASE_S, heartbeat_interval_s=BEAT_S, shutdown_timeout_s=SHUTDOWN_S)

    async def open(
        self, diary: Diary, world: World, limits: CommitLimits, moments: Moments
    ) -> Opened:
        clock, ids = world.clock, world.ids
        plain = await RedisBackend.open(
            self._url, clock=clock, ids=ids, partitions=PARTITIONS, prefix=_prefix(diary)
        )
        lines = CrashingLines(self._url, clock, moments)
        counted = RedisBackend(lines, plain.keys, plain.layout, clock=clock, ids=ids, limits=limits)
        return Opened(counted, plain)

    def remains(self, diary: Diary) -> Remains:
        with self._client() as client:
            return read_remains(client, Keys(_prefix(diary)))

    def copy(self, source: Diary, target: Diary) -> None:
        old, new = _prefix(source).encode(), _prefix(target).encode()
        with self._client() as client:
            for key in found(client, _prefix(source)):
                client.copy(key, key.replace(old, new, 1))

    def remove(self, diary: Diary) -> None:
        with self._client() as client:
            keys = found(client, _prefix(diary))
            if keys:
                client.delete(*keys)

    def _client(self) -> Redis:
        """For one method: no connection may be open when a process is forked."""
        return Redis.from_url(self._url)


def _prefix(diary: Diary) -> str:
    return diary.folder.name
