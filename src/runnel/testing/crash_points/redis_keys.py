"""Crash points on a Redis server: each has keys of its own, with the name of its diary's folder."""

from redis import Redis

from runnel.backends.redis import RedisBackend
from runnel.backends.redis.keys import Keys
from runnel.ports.store import CommitLimits
from runnel.runtime.clock import RealClock, RealIds
from runnel.runtime.engine import World
from runnel.settings import Settings
from runnel.testing.crash_points.crashing_lines import CrashingLines
from runnel.testing.crash_points.diary import Diary
from runnel.testing.crash_points.moments import Moments
from runnel.testing.crash_points.redis_remains import found, read_remains
from runnel.testing.crash_points.storage import SHUTDOWN_S, Opened, Remains

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
