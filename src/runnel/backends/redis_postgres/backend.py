"""Opens and closes all ports of a pair of one Redis server and one PostgreSQL server."""

from collections.abc import Sequence
from typing import Self

from runnel.backends.postgres.archive import PostgresArchive
from runnel.backends.postgres.database import (
    DEFAULT_POSTGRES_OPTIONS,
    PostgresDatabase,
    PostgresOptions,
)
from runnel.backends.postgres.ledger import PostgresLedger
from runnel.backends.postgres.records import PostgresBlobs, PostgresRecords, PostgresRetention
from runnel.backends.postgres.restore_queries import RestoreQueries
from runnel.backends.redis.archive import RedisArchive
from runnel.backends.redis.backend import RedisBackend
from runnel.backends.redis.connection_pool import RedisConnectionPool
from runnel.backends.redis.journal import RedisJournal
from runnel.backends.redis.keys import RedisKeyNames, RedisLayout
from runnel.backends.redis.mailbox import RedisMailbox, ServerClock
from runnel.backends.redis.options import DEFAULT_REDIS_OPTIONS, RedisOptions
from runnel.backends.redis.records import RedisBlobs
from runnel.backends.redis.retention import RedisRetention
from runnel.backends.redis_postgres.archive import RedisPostgresArchive
from runnel.backends.redis_postgres.archive_ownership import Pairing, format_redis_location
from runnel.backends.redis_postgres.mailbox import AdmissionControl, RedisPostgresMailbox
from runnel.backends.redis_postgres.restore import ArchiveRestorer
from runnel.core.states import ExecutionState
from runnel.errors import NotFoundError
from runnel.ports.archive import Archive, Retention
from runnel.ports.clock import Clock, IdGenerator
from runnel.ports.feed import Feed
from runnel.ports.journal import Journal, Ledger
from runnel.ports.records import RandomAccessBlobStore, Records, RequestWindows
from runnel.ports.store import Mailbox, Store, Submission, TaskQueue

# -- blobs: in Redis for running executions, in the archive for finished ones -------------------


class RedisPostgresBlobs:
    def __init__(self, hot: RandomAccessBlobStore, cold: RandomAccessBlobStore) -> None:
        self._hot = hot
        self._cold = cold

    async def put(self, key: str, data: bytes) -> None:
        await self._hot.put(key, data)

    async def get(self, key: str) -> bytes:
        try:
            return await self._hot.get(key)
        except NotFoundError:
            return await self._cold.get(key)

    async def read_parts(
        self, keys: Sequence[str], *, start: int, size: int
    ) -> Sequence[bytes | None]:
        parts = dict(
            zip(keys, await self._hot.read_parts(keys, start=start, size=size), strict=True)
        )
        missing = [key for key, part in parts.items() if part is None]
        if missing:
            cold_parts = await self._cold.read_parts(missing, start=start, size=size)
            parts.update(zip(missing, cold_parts, strict=True))
        return [parts[key] for key in keys]

    async def delete(self, prefix: str) -> int:
        """Deletes blobs in both stores and returns their number; a blob that is in both counts
        once.
        """
        return max(await self._hot.delete(prefix), await self._cold.delete(prefix))


# -- retention: executions in PostgreSQL, orphaned blobs in Redis ------------------------------


class RedisPostgresRetention:
    def __init__(self, hot: RedisRetention, cold: PostgresRetention) -> None:
        self._hot = hot
        self._cold = cold

    async def delete_finished(self, state: ExecutionState, *, before: float, limit: int) -> int:
        """Deletes executions in PostgreSQL.

        The archiver removes them from Redis within a minute after their end.
        """
        return await self._cold.delete_finished(state, before=before, limit=limit)

    async def delete_orphaned_blobs(self, *, idle_s: float) -> int:
        """Deletes orphaned blobs in Redis.

        PostgreSQL has no orphaned blobs, because each blob is stored together with its command or
        with the events of its execution.
        """
        return await self._hot.delete_orphaned_blobs(idle_s=idle_s)


class RedisPostgresBackend:
    """Implements all ports with a Redis and a PostgreSQL server. Use `open` to create an instance.

    `journal`, `ledger` and the two blob stores are for the archiver. If no archiver runs, the
    journal fills up and orchestrators can't commit any more.
    """

    def __init__(
        self,
        redis: RedisBackend,
        database: PostgresDatabase,
        *,
        restorer: ArchiveRestorer,
        clock: Clock,
    ) -> None:
        pool, keys, layout = redis.pool, redis.keys, redis.layout
        ledger = PostgresLedger(database)
        self.redis = redis
        self.database = database
        self.restorer = restorer
        self.journal: Journal = RedisJournal(pool, keys)
        self.ledger: Ledger = ledger
        self.hot_blobs: RandomAccessBlobStore = RedisBlobs(pool, keys)
        self.cold_blobs: RandomAccessBlobStore = PostgresBlobs(database)
        self.retention: Retention = RedisPostgresRetention(
            redis.retention, PostgresRetention(database)
        )
        self.records: Records = PostgresRecords(database)
        self.windows: RequestWindows = redis.windows
        self.store: Store = redis.store
        self.tasks: TaskQueue = redis.tasks
        self.feed: Feed = redis.feed
        self.archive: Archive = RedisPostgresArchive(
            RedisArchive(pool, keys), PostgresArchive(database)
        )
        self.blobs: RandomAccessBlobStore = RedisPostgresBlobs(self.hot_blobs, self.cold_blobs)
        self._mailbox = RedisPostgresMailbox(
            RedisMailbox(pool, keys, layout),
            ledger,
            layout,
            server_clock=ServerClock(pool, clock),
            admission=AdmissionControl(
                self.journal, clock, journal_entries_max=redis.options.journal_entries_max
            ),
        )
        self.mailbox: Mailbox = self._mailbox

    @classmethod
    async def open(
        cls,
        redis_url: str,
        postgres_url: str,
        redis_options: RedisOptions = DEFAULT_REDIS_OPTIONS,
        postgres_options: PostgresOptions = DEFAULT_POSTGRES_OPTIONS,
        *,
        clock: Clock,
        ids: IdGenerator,
        host: str = "",
        takes_archive: bool = False,
    ) -> Self:
        """Connects to both servers and checks that they are a pair.

        Raises InputError if they are not a pair. With `takes_archive`, pairs the two servers
        permanently instead. `host` is the name of this machine. While PostgreSQL can't be reached,
        a Redis that is paired with an archive is accepted without the check.
        """
        database = await PostgresDatabase.open(postgres_url, postgres_options)
        pool = RedisConnectionPool(redis_url, clock, redis_options)
        keys = RedisKeyNames(redis_options.prefix)
        location = format_redis_location(pool.address, redis_options.prefix, host)
        pairing = Pairing(pool, keys, database, redis_location=location, ids=ids)
        try:
            layout = await pairing.open(redis_options.partitions, takes_archive=takes_archive)
        except BaseException:
            await pool.close()
            await database.close()
            raise
        restorer = _make_restorer(pool, keys, layout, pairing, database)
        redis = RedisBackend(
            *(pool, keys, layout),
            clock=clock,
            ids=ids,
            options=redis_options,
            restorer=restorer,
        )
        return cls(redis, database, restorer=restorer, clock=clock)

    async def claim_home_partition(self, owner: str, *, submits: Submission | None = None) -> int:
        return await self.redis.claim_home_partition(owner, submits=submits)

    async def close(self) -> None:
        await self._mailbox.close()
        await self.redis.close()
        await self.database.close()


def _make_restorer(
    pool: RedisConnectionPool,
    keys: RedisKeyNames,
    layout: RedisLayout,
    pairing: Pairing,
    database: PostgresDatabase,
) -> ArchiveRestorer:
    return ArchiveRestorer(
        pool,
        keys,
        layout,
        pairing=pairing,
        ledger=PostgresLedger(database),
        queries=RestoreQueries(database),
        hot_blobs=RedisBlobs(pool, keys),
        cold_blobs=PostgresBlobs(database),
    )
