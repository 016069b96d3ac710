"""Opens and closes all ports of one Redis or Valkey server."""

from typing import Self

from runnel.backends.redis.archive import RedisArchive
from runnel.backends.redis.connection_pool import RedisConnectionPool
from runnel.backends.redis.feed import RedisFeed
from runnel.backends.redis.keys import RedisKeyNames, RedisLayout, open_layout
from runnel.backends.redis.leases import RedisLeases
from runnel.backends.redis.mailbox import RedisMailbox
from runnel.backends.redis.options import DEFAULT_REDIS_OPTIONS, RedisOptions
from runnel.backends.redis.records import RedisBlobs, RedisRecords, RedisRequestWindows
from runnel.backends.redis.retention import RedisRetention
from runnel.backends.redis.store import NO_RESTORER, PartitionRestorer, RedisStore
from runnel.backends.redis.tasks import LostTaskReporter, RedisTaskQueue
from runnel.ports.archive import Archive
from runnel.ports.clock import Clock, IdGenerator
from runnel.ports.feed import Feed
from runnel.ports.records import RandomAccessBlobStore, Records, RequestWindows
from runnel.ports.store import Mailbox, Store, Submission, TaskQueue


class RedisBackend:
    """Implements all ports on one Redis server (6.2 or newer) or Valkey server.

    Use `open` to create it.
    """

    def __init__(
        self,
        pool: RedisConnectionPool,
        keys: RedisKeyNames,
        layout: RedisLayout,
        *,
        clock: Clock,
        ids: IdGenerator,
        options: RedisOptions = DEFAULT_REDIS_OPTIONS,
        restorer: PartitionRestorer = NO_RESTORER,
    ) -> None:
        self.pool = pool
        self.keys = keys
        self.layout = layout
        self.options = options
        self._leases = RedisLeases(pool, keys, ids, incarnation=layout.incarnation)
        loss_reporter = LostTaskReporter(pool, keys)
        self.store: Store = RedisStore(
            pool,
            keys,
            layout,
            options,
            leases=self._leases,
            loss_reporter=loss_reporter,
            clock=clock,
            restorer=restorer,
        )
        self._mailbox = RedisMailbox(pool, keys, layout)
        self.mailbox: Mailbox = self._mailbox
        self.tasks: TaskQueue = RedisTaskQueue(pool, keys, clock, loss_reporter)
        self.archive: Archive = RedisArchive(pool, keys)
        self.blobs: RandomAccessBlobStore = RedisBlobs(pool, keys)
        self.records: Records = RedisRecords(pool, keys)
        self.windows: RequestWindows = RedisRequestWindows(pool, keys)
        self.feed: Feed = RedisFeed(pool, keys)
        self.retention = RedisRetention(pool, keys, layout)

    @classmethod
    async def open(
        cls,
        url: str,
        options: RedisOptions = DEFAULT_REDIS_OPTIONS,
        *,
        clock: Clock,
        ids: IdGenerator,
    ) -> Self:
        """Connects to the server and reads or creates the layout of the store.

        Raises InputError if the stored number of partitions differs from the options.
        """
        pool = RedisConnectionPool(url, clock, options)
        keys = RedisKeyNames(options.prefix)
        try:
            layout = await open_layout(pool, keys, options.partitions)
        except BaseException:
            await pool.close()
            raise
        return cls(pool, keys, layout, clock=clock, ids=ids, options=options)

    async def claim_home_partition(self, owner: str, *, submits: Submission | None = None) -> int:
        """Returns the lowest free partition, or 0 if no partition is free.

        The result does not affect new executions: the id of an execution decides its partition.
        """
        for partition in range(self.layout.partitions):
            if await self._leases.observe(partition) is None:
                return partition
        return 0

    async def close(self) -> None:
        await self._mailbox.close()
        await self.pool.close()
