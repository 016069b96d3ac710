"""All ports of a Redis and the PostgreSQL that belongs to it, opened and closed together."""

from typing import Self

from runnel.backends.postgres.archive import PostgresArchive
from runnel.backends.postgres.database import CALL_S as ARCHIVE_CALL_S
from runnel.backends.postgres.database import CONNECTIONS_MAX, SCHEMA, Database
from runnel.backends.postgres.ledger import PostgresLedger
from runnel.backends.postgres.records import PostgresBlobs, PostgresRecords, PostgresRetention
from runnel.backends.postgres.restore_queries import Lost
from runnel.backends.redis.archive import RedisArchive
from runnel.backends.redis.backend import (
    CALL_S,
    JOURNAL_ENTRIES_MAX,
    LETTERS_MAX,
    PREFIX,
    RedisBackend,
)
from runnel.backends.redis.connection_pool import BLOCK_S, CALLS_MAX, Lines
from runnel.backends.redis.journal import RedisJournal
from runnel.backends.redis.keys import Keys, Layout
from runnel.backends.redis.mailbox import RedisMailbox, ServerTime
from runnel.backends.redis.records import RedisBlobs
from runnel.backends.redis.retention import RedisRetention
from runnel.backends.redis_postgres.archive import ArchivedArchive
from runnel.backends.redis_postgres.mailbox import ArchivedMailbox, Room
from runnel.backends.redis_postgres.pairing import Pairing, place_of
from runnel.backends.redis_postgres.restore import ArchiveRescue
from runnel.core.states import ExecutionState
from runnel.errors import NotFoundError
from runnel.ports.archive import Archive, Retention
from runnel.ports.clock import Clock, Ids
from runnel.ports.feed import Feed
from runnel.ports.journal import Journal, Ledger
from runnel.ports.records import BlobStore, Records, RequestWindows
from runnel.ports.store import CommitLimits, Mailbox, Store, TaskQueue

# Blobs of what runs are in Redis; the archiver copies them, and those of the past are there.


class ArchivedBlobs:
    def __init__(self, hot: BlobStore, cold: BlobStore) -> None:
        self._hot = hot
        self._cold = cold

    async def put(self, key: str, data: bytes) -> None:
        await self._hot.put(key, data)

    async def get(self, key: str) -> bytes:
        try:
            return await self._hot.get(key)
        except NotFoundError:
            return await self._cold.get(key)

    async def delete(self, prefix: str) -> int:
        """Counts one that is in both places once."""
        return max(await self._hot.delete(prefix), await self._cold.delete(prefix))


# What is kept is PostgreSQL's to delete; blobs that belong to nothing can only be in Redis.


class ArchivedRetention:
    def __init__(self, hot: RedisRetention, cold: PostgresRetention) -> None:
        self._hot = hot
        self._cold = cold

    async def delete_finished(self, state: ExecutionState, *, before: float, limit: int) -> int:
        """Redis has forgotten them long before, or does so a minute after their end."""
        return await self._cold.delete_finished(state, before=before, limit=limit)

    async def delete_ownerless(self, *, idle_s: float) -> int:
        """PostgreSQL gets a blob with its command, or with the events of an execution it knows."""
        return await self._hot.delete_ownerless(idle_s=idle_s)


_LIMITS = CommitLimits()


class ArchivedBackend:
    """`open` is how to make one. `journal`, `ledger` and the two kinds of blobs are for the
    archiver, without which the journal fills up and deciding stops.
    """

    def __init__(
        self,
        redis: RedisBackend,
        database: Database,
        *,
        rescue: ArchiveRescue,
        clock: Clock,
        journal_entries_max: int,
    ) -> None:
        lines, keys, layout = redis.lines, redis.keys, redis.layout
        ledger = PostgresLedger(database)
        self.redis = redis
        self.database = database
        self.rescue = rescue
        self.journal: Journal = RedisJournal(lines, keys)
        self.ledger: Ledger = ledger
        self.hot_blobs: BlobStore = RedisBlobs(lines, keys)
        self.cold_blobs: BlobStore = PostgresBlobs(database)
        self.retention: Retention = ArchivedRetention(redis.retention, PostgresRetention(database))
        self.records: Records = PostgresRecords(database)
        self.windows: RequestWindows = redis.windows
        self.store: Store = redis.store
        self.tasks: TaskQueue = redis.tasks
        self.feed: Feed = redis.feed
        self.archive: Archive = ArchivedArchive(
            RedisArchive(lines, keys), PostgresArchive(database)
        )
        self.blobs: BlobStore = ArchivedBlobs(self.hot_blobs, self.cold_blobs)
        self._mailbox = ArchivedMailbox(
            RedisMailbox(lines, keys, layout),
            ledger,
            layout,
            server_time=ServerTime(lines, clock),
            room=Room(self.journal, clock, journal_entries_max=journal_entries_max),
        )
        self.mailbox: Mailbox = self._mailbox

    @classmethod
    async def open(
        cls,
        redis_url: str,
        postgres_url: str,
        *,
        clock: Clock,
        ids: Ids,
        partitions: int | None = None,
        prefix: str = PREFIX,
        host: str = "",
        takes_archive: bool = False,
        schema: str = SCHEMA,
        call_s: float = CALL_S,
        calls_max: int = CALLS_MAX,
        block_s: float = BLOCK_S,
        limits: CommitLimits = _LIMITS,
        letters_max: int = LETTERS_MAX,
        journal_entries_max: int = JOURNAL_ENTRIES_MAX,
        archive_call_s: float = ARCHIVE_CALL_S,
        archive_connections_max: int = CONNECTIONS_MAX,
    ) -> Self:
        """As `RedisBackend.open` and `Database.open`, whose bounds these are.

        Raises InputError for a Redis and a PostgreSQL that do not belong together, which
        `takes_archive` changes for good. `host` is the name of this machine. While PostgreSQL can't
        be reached, a Redis that has an archive is taken at its word.
        """
        database = await Database.open(
            postgres_url,
            schema=schema,
            call_s=archive_call_s,
            connections_max=archive_connections_max,
        )
        lines = Lines(redis_url, clock, call_s=call_s, calls_max=calls_max, block_s=block_s)
        keys = Keys(prefix)
        place = place_of(lines.address, prefix, host)
        pairing = Pairing(lines, keys, database, place=place, ids=ids)
        try:
            layout = await pairing.open(partitions, takes_archive=takes_archive)
        except BaseException:
            await lines.close()
            await database.close()
            raise
        rescue = _rescue(lines, keys, layout, pairing, database)
        redis = RedisBackend(
            lines,
            keys,
            layout,
            clock=clock,
            ids=ids,
            limits=limits,
            letters_max=letters_max,
            journal_entries_max=journal_entries_max,
            rescue=rescue,
        )
        return cls(
            redis, database, rescue=rescue, clock=clock, journal_entries_max=journal_entries_max
        )

    async def claim_home(self, owner: str) -> int:
        return await self.redis.claim_home(owner)

    async def close(self) -> None:
        await self._mailbox.close()
        await self.redis.close()
        await self.database.close()


def _rescue(
    lines: Lines, keys: Keys, layout: Layout, pairing: Pairing, database: Database
) -> ArchiveRescue:
    return ArchiveRescue(
        lines,
        keys,
        layout,
        pairing=pairing,
        ledger=PostgresLedger(database),
        lost=Lost(database),
        hot_blobs=RedisBlobs(lines, keys),
        cold_blobs=PostgresBlobs(database),
    )
