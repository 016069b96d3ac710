"""All ports of one Redis or Valkey server, opened and closed together."""

from typing import Self

from runnel.backends.redis.archive import RedisArchive
from runnel.backends.redis.connection_pool import BLOCK_S_MAX, CALLS_MAX, RedisConnectionPool
from runnel.backends.redis.feed import RedisFeed
from runnel.backends.redis.keys import RedisKeyNames, RedisLayout, open_layout
from runnel.backends.redis.leases import RedisLeases
from runnel.backends.redis.mailbox import RedisMailbox
from runnel.backends.redis.records import RedisBlobs, RedisRecords, RedisRequestWindows
from runnel.backends.redis.retention import RedisRetention
from runnel.backends.redis.store import NO_RESTORER, PartitionRestorer, RedisStore
from runnel.backends.redis.tasks import LostTaskReporter, RedisTaskQueue
from runnel.ports.archive import Archive
from runnel.ports.clock import Clock, IdGenerator
from runnel.ports.feed import Feed
from runnel.ports.records import BlobStore, Records, RequestWindows
from runnel.ports.store import CommitLimits, Mailbox, Store, TaskQueue

PREFIX_DEFAULT = "runnel"
CALL_TIMEOUT_S = 5.0
LETTERS_MAX = 10_000
# Commits that a partition keeps for its archive at most: with PostgreSQL down for longer than
# that takes, deciding stops.
JOURNAL_ENTRIES_MAX = 100_000
_LIMITS = CommitLimits()


class RedisBackend:
    """Redis 6.2 or newer, or Valkey; `open` is how to make one."""

    def __init__(
        self,
        pool: RedisConnectionPool,
        keys: RedisKeyNames,
        layout: RedisLayout,
        *,
        clock: Clock,
        ids: IdGenerator,
        limits: CommitLimits = _LIMITS,
        letters_max: int = LETTERS_MAX,
        journal_entries_max: int = JOURNAL_ENTRIES_MAX,
        restorer: PartitionRestorer = NO_RESTORER,
    ) -> None:
        self.pool = pool
        self.keys = keys
        self.layout = layout
        self._leases = RedisLeases(pool, keys, ids, incarnation=layout.incarnation)
        losses = LostTaskReporter(pool, keys)
        self.store: Store = RedisStore(
            pool,
            keys,
            layout,
            leases=self._leases,
            loss_reporter=losses,
            limits=limits,
            letters_max=letters_max,
            clock=clock,
            journal_entries_max=journal_entries_max,
            restorer=restorer,
        )
        self._mailbox = RedisMailbox(pool, keys, layout)
        self.mailbox: Mailbox = self._mailbox
        self.tasks: TaskQueue = RedisTaskQueue(pool, keys, clock, losses)
        self.archive: Archive = RedisArchive(pool, keys)
        self.blobs: BlobStore = RedisBlobs(pool, keys)
        self.records: Records = RedisRecords(pool, keys)
        self.windows: RequestWindows = RedisRequestWindows(pool, keys)
        self.feed: Feed = RedisFeed(pool, keys)
        self.retention = RedisRetention(pool, keys, layout)

    @classmethod
    async def open(
        cls,
        url: str,
        *,
        clock: Clock,
        ids: IdGenerator,
        partitions: int | None = None,
        prefix: str = PREFIX_DEFAULT,
        call_timeout_s: float = CALL_TIMEOUT_S,
        calls_max: int = CALLS_MAX,
        block_s: float = BLOCK_S_MAX,
        limits: CommitLimits = _LIMITS,
        letters_max: int = LETTERS_MAX,
    ) -> Self:
        """`partitions` is for a store that is opened for the first time: it can't be changed.

        Without it, the stored number is taken. A call that takes longer than `call_timeout_s`
        fails; at most `calls_max` are under way at a time, and each wait, of at most `block_s`, has
        a connection besides. Each queue keeps about `letters_max` dead letters: the oldest go
        first.
        """
        lines = RedisConnectionPool(
            url, clock, call_timeout_s=call_timeout_s, calls_max=calls_max, block_s=block_s
        )
        keys = RedisKeyNames(prefix)
        try:
            layout = await open_layout(lines, keys, partitions)
        except BaseException:
            await lines.close()
            raise
        return cls(
            lines, keys, layout, clock=clock, ids=ids, limits=limits, letters_max=letters_max
        )

    async def claim_home_partition(self, owner: str) -> int:
        """The lowest free partition, or 0: where an execution goes is decided by its id alone."""
        for partition in range(self.layout.partitions):
            if await self._leases.observe(partition) is None:
                return partition
        return 0

    async def close(self) -> None:
        await self._mailbox.close()
        await self.pool.close()
