"""All ports of one Redis or Valkey server, opened and closed together."""

from typing import Self

from runnel.backends.redis.archive import RedisArchive
from runnel.backends.redis.connection_pool import BLOCK_S, CALLS_MAX, Lines
from runnel.backends.redis.feed import RedisFeed
from runnel.backends.redis.keys import Keys, Layout, open_layout
from runnel.backends.redis.leases import Leases
from runnel.backends.redis.mailbox import RedisMailbox
from runnel.backends.redis.records import RedisBlobs, RedisRecords, RedisWindows
from runnel.backends.redis.retention import RedisRetention
from runnel.backends.redis.store import NO_ARCHIVE, RedisStore, Rescue
from runnel.backends.redis.tasks import Losses, RedisTasks
from runnel.ports.archive import Archive
from runnel.ports.clock import Clock, Ids
from runnel.ports.feed import Feed
from runnel.ports.records import BlobStore, Records, RequestWindows
from runnel.ports.store import CommitLimits, Mailbox, Store, TaskQueue

PREFIX = "runnel"
CALL_S = 5.0
LETTERS_MAX = 10_000
# Commits that a partition keeps for its archive at most: with PostgreSQL down for longer than
# that takes, deciding stops.
JOURNAL_ENTRIES_MAX = 100_000
_LIMITS = CommitLimits()


class RedisBackend:
    """Redis 6.2 or newer, or Valkey; `open` is how to make one."""

    def __init__(
        self,
        lines: Lines,
        keys: Keys,
        layout: Layout,
        *,
        clock: Clock,
        ids: Ids,
        limits: CommitLimits = _LIMITS,
        letters_max: int = LETTERS_MAX,
        journal_entries_max: int = JOURNAL_ENTRIES_MAX,
        rescue: Rescue = NO_ARCHIVE,
    ) -> None:
        self.lines = lines
        self.keys = keys
        self.layout = layout
        self._leases = Leases(lines, keys, ids, incarnation=layout.incarnation)
        losses = Losses(lines, keys)
        self.store: Store = RedisStore(
            lines,
            keys,
            layout,
            leases=self._leases,
            losses=losses,
            limits=limits,
            letters_max=letters_max,
            clock=clock,
            journal_entries_max=journal_entries_max,
            rescue=rescue,
        )
        self._mailbox = RedisMailbox(lines, keys, layout)
        self.mailbox: Mailbox = self._mailbox
        self.tasks: TaskQueue = RedisTasks(lines, keys, clock, losses)
        self.archive: Archive = RedisArchive(lines, keys)
        self.blobs: BlobStore = RedisBlobs(lines, keys)
        self.records: Records = RedisRecords(lines, keys)
        self.windows: RequestWindows = RedisWindows(lines, keys)
        self.feed: Feed = RedisFeed(lines, keys)
        self.retention = RedisRetention(lines, keys, layout)

    @classmethod
    async def open(
        cls,
        url: str,
        *,
        clock: Clock,
        ids: Ids,
        partitions: int | None = None,
        prefix: str = PREFIX,
        call_s: float = CALL_S,
        calls_max: int = CALLS_MAX,
        block_s: float = BLOCK_S,
        limits: CommitLimits = _LIMITS,
        letters_max: int = LETTERS_MAX,
    ) -> Self:
        """`partitions` is for a store that is opened for the first time: it can't be changed.

        Without it, the stored number is taken. A call that takes longer than `call_s` fails; at
        most `calls_max` are under way at a time, and each wait, of at most `block_s`, has a
        connection besides. Each queue keeps about `letters_max` dead letters: the oldest go first.
        """
        lines = Lines(url, clock, call_s=call_s, calls_max=calls_max, block_s=block_s)
        keys = Keys(prefix)
        try:
            layout = await open_layout(lines, keys, partitions)
        except BaseException:
            await lines.close()
            raise
        return cls(
            lines, keys, layout, clock=clock, ids=ids, limits=limits, letters_max=letters_max
        )

    async def claim_home(self, owner: str) -> int:
        """The lowest free partition, or 0: where an execution goes is decided by its id alone."""
        for partition in range(self.layout.partitions):
            if await self._leases.observe(partition) is None:
                return partition
        return 0

    async def close(self) -> None:
        await self._mailbox.close()
        await self.lines.close()
