"""A backend in the memory of one process, for tests, experiments and the simulation.

Several orchestrators and workers of the process can share the backend. All data is lost when the
process ends.
"""

from runnel.backends.blob_files import MemoryBlobs
from runnel.backends.local.feed import LocalFeed
from runnel.backends.local.tasks import (
    LocalRequestWindows,
    LocalResultCache,
    LocalTaskQueue,
    LocalTokenBuckets,
    TokenTaker,
)
from runnel.backends.memory.archive import MemoryArchive, MemoryRecords
from runnel.backends.memory.store import MemoryMailbox, MemoryState, MemoryStore
from runnel.ports.archive import Archive
from runnel.ports.clock import Clock, IdGenerator
from runnel.ports.feed import Feed
from runnel.ports.records import RandomAccessBlobStore, Records, RequestWindows
from runnel.ports.store import CommitLimits, Mailbox, Store, Submission, TaskQueue

_LIMITS = CommitLimits(serializes_tasks=False)


class MemoryBackend:
    """Implements all ports in memory.

    Without `take_token`, rate tokens come from buckets in memory.
    """

    def __init__(
        self,
        clock: Clock,
        ids: IdGenerator,
        partitions: int = 1,
        limits: CommitLimits = _LIMITS,
        *,
        take_token: TokenTaker | None = None,
    ) -> None:
        self.state = MemoryState(partitions, incarnation=repr(clock.now()))
        self.store: Store = MemoryStore(self.state, clock=clock, ids=ids, limits=limits)
        self.blobs: RandomAccessBlobStore = MemoryBlobs()
        self.mailbox: Mailbox = MemoryMailbox(self.state, self.blobs)
        self.tasks: TaskQueue = LocalTaskQueue(
            self.state.board,
            clock,
            take_token or LocalTokenBuckets(clock).take,
            LocalResultCache(clock),
        )
        self.archive: Archive = MemoryArchive(self.state)
        self.records: Records = MemoryRecords(self.state)
        self.windows: RequestWindows = LocalRequestWindows(clock)
        self.feed: Feed = LocalFeed(self.state.change_log, clock)

    async def claim_home_partition(self, owner: str, *, submits: Submission | None = None) -> int:
        """Returns the lowest free partition, or 0 if no partition is free.

        The result does not affect new executions: the id of an execution decides its partition.
        """
        partitions = self.state.partitions
        free = (partition.number for partition in partitions if partition.lease is None)
        return next(free, 0)

    async def close(self) -> None:
        """Does nothing: the memory is freed with the object."""
