"""The in-memory state of the partitions that this process owns, its concurrency keys and routes."""

from collections import OrderedDict
from collections.abc import Sequence
from dataclasses import dataclass, field

from runnel.backends.local.inbox import LocalInbox, LocalTimers
from runnel.backends.sqlite.database import SqliteReader
from runnel.backends.sqlite.running_tasks_file import RunningTasksFile
from runnel.backends.sqlite.wakeup_socket import WakeupListener
from runnel.core.codec import decode_entry, encode_entry
from runnel.core.commands import LIMIT_PREFIX, Command
from runnel.core.concurrency_key import replay_limit
from runnel.core.events import LimitEvent, LimitHeld, LimitQueued
from runnel.core.ids import ExecutionId, get_root_id
from runnel.errors import FencedError
from runnel.ports.store import Commit, Lease


@dataclass(slots=True, eq=False)
class OwnedPartition:
    """The in-memory state of one owned partition.

    `polled_at` is the time of the last query for messages of other processes.
    """

    lease: Lease
    inbox: LocalInbox
    timers: LocalTimers
    wakeup_listener: WakeupListener
    running_tasks: RunningTasksFile
    polled_at: float


@dataclass(slots=True)
class PartitionRegistry:
    by_number: dict[int, OwnedPartition] = field(default_factory=dict)

    def get(self, lease: Lease) -> OwnedPartition:
        """Raises FencedError unless this is the current lease."""
        owned = self.find(lease)
        if owned is None:
            current = self.by_number.get(lease.partition)
            raise FencedError(
                lease.partition,
                held=f"epoch {lease.epoch}",
                current="no lease here" if current is None else f"epoch {current.lease.epoch}",
            )
        return owned

    def find(self, lease: Lease) -> OwnedPartition | None:
        owned = self.by_number.get(lease.partition)
        if owned is None or owned.lease.nonce != lease.nonce:
            return None
        return owned if owned.lease.epoch == lease.epoch else None

    def deliver(self, partition: int, command: Command) -> None:
        """Puts a worker's report into the inbox; it is only in memory until a commit consumes it.

        A report for a partition that was given up is discarded: the next owner issues the task
        again.
        """
        owned = self.by_number.get(partition)
        if owned is not None:
            owned.inbox.put(command)


# Concurrency keys are kept in memory, because their holders die with the process.
#
# They exist while the process owns a partition, and are forgotten when it owns none. From then on,
# holders and waiters belong to the process that takes the partitions over.

# A history below this size is not compacted.
COMPACT_BYTES_MIN = 16_384


def is_limit(aggregate_id: str) -> bool:
    return aggregate_id.startswith(LIMIT_PREFIX)


class LimitHistories:
    def __init__(self) -> None:
        self._histories: dict[str, _LimitHistory] = {}

    def clear(self) -> None:
        self._histories.clear()

    def keys(self) -> list[str]:
        return [id_.removeprefix(LIMIT_PREFIX) for id_ in self._histories]

    def load(self, aggregate_id: str) -> Sequence[bytes]:
        history = self._histories.get(aggregate_id)
        return () if history is None else tuple(history.entries)

    def apply(self, commit: Commit) -> None:
        for history in commit.histories:
            if is_limit(history.aggregate_id):
                self._histories.setdefault(history.aggregate_id, _LimitHistory()).add(history.entry)
        for aggregate_id in commit.closed:
            self._histories.pop(aggregate_id, None)


@dataclass(slots=True)
class _LimitHistory:
    """The history of one concurrency key.

    A key that always has waiters is never closed, so its history must be compacted.
    """

    entries: list[bytes] = field(default_factory=list)
    size_bytes: int = 0
    compacted_bytes: int = 0

    def add(self, entry: bytes) -> None:
        self.entries.append(entry)
        self.size_bytes += len(entry)
        if self.size_bytes > COMPACT_BYTES_MIN + 2 * self.compacted_bytes:
            self._compact()

    def _compact(self) -> None:
        """Replaces the history by one entry with the same holders and waiters, in order."""
        limit = replay_limit("", self.entries)
        events: list[LimitEvent] = [
            *(LimitHeld(holder=holder, limit=most) for holder, most in limit.holders.items()),
            *(LimitQueued(holder=holder, limit=most) for holder, most in limit.waiters.items()),
        ]
        self.entries = [encode_entry(decode_entry(self.entries[-1]).at, events)]
        self.size_bytes = self.compacted_bytes = len(self.entries[0])


# -- routes: an execution lives in the partition of its root -----------------------------------

CACHED_ROUTES_MAX = 50_000
PARTITION_DEFAULT = 0


class PartitionRoutes:
    """Maps executions to partitions.

    An unknown execution is created in the home partition of this process.
    """

    def __init__(self, reader: SqliteReader) -> None:
        self.home: int | None = None
        self._reader = reader
        self._partitions_by_root: OrderedDict[str, int] = OrderedDict()
        # Executions that this process has just created and that have no history yet. A query for
        # the history took 20 µs, 5 % of the cost of a small execution.
        self.unstarted: set[str] = set()

    def find(self, aggregate_id: str) -> int:
        home = PARTITION_DEFAULT if self.home is None else self.home
        if is_limit(aggregate_id):
            return home
        root = get_root_id(ExecutionId(aggregate_id))
        partition = self._partitions_by_root.get(root)
        if partition is None:
            rows = self._reader.rows("get_home", (root,))
            if not rows:
                return home
            partition = int(rows[0][0])
            self.remember(root, partition)
        return partition

    def route_new(self, root: str) -> int:
        """Returns the partition of an execution that is about to be created."""
        partition = self._partitions_by_root.get(root)
        if partition is None:
            partition = PARTITION_DEFAULT if self.home is None else self.home
            self.remember(root, partition)
        return partition

    def remember(self, root: str, partition: int) -> None:
        self._partitions_by_root[root] = partition
        if len(self._partitions_by_root) > CACHED_ROUTES_MAX:
            self._partitions_by_root.popitem(last=False)
