"""The state that a process keeps in memory: its partitions, routes, tasks and concurrency keys."""

from collections import OrderedDict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

from runnel.backends.local.inbox import LocalInbox, LocalTimers
from runnel.backends.local.task_board import TaskBoard
from runnel.backends.local.tasks import LocalMembership
from runnel.backends.sqlite.database import SqliteReader
from runnel.backends.sqlite.running_tasks_file import RunningTasksFile
from runnel.backends.sqlite.wakeup_socket import WakeupListener
from runnel.core.codec import decode_entry, encode_entry
from runnel.core.commands import (
    LIMIT_PREFIX,
    AcquireLimit,
    Command,
    LimitCommand,
    LimitGranted,
    ReleaseLimit,
)
from runnel.core.concurrency_key import replay_limit
from runnel.core.events import LimitEvent, LimitHeld, LimitQueued, LimitReleased
from runnel.core.ids import ExecutionId, TaskToken, get_root_id
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
        """Returns the partition of the lease; raises FencedError unless `lease` is the current
        lease.
        """
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
        """Puts a worker's report into the in-memory inbox of the partition.

        Discards a report for a partition that this process no longer owns, because the next owner
        issues the task again.
        """
        owned = self.by_number.get(partition)
        if owned is not None:
            owned.inbox.put(command)


# -- routes: an execution is in the partition of its root execution -----------------------------

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
        # Executions that this process has just created and that have no history yet. This set
        # avoids a query for the history, which took 20 µs, or 5 % of the cost of a small execution.
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


# Concurrency keys are kept in memory, because their holders die with the process.
#
# The keys are deleted when the process no longer owns any partition. The process that takes the
# partitions over then manages holders and waiters.

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

    The history is deleted when the key has neither holders nor waiters. A busy key may never
    reach that state, so its history is compacted.
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
        """Replaces the history by one entry with the same holders and waiters in the same order."""
        limit = replay_limit("", self.entries)
        events: list[LimitEvent] = [
            *(LimitHeld(holder=holder, limit=most) for holder, most in limit.holders.items()),
            *(LimitQueued(holder=holder, limit=most) for holder, most in limit.waiters.items()),
        ]
        self.entries = [encode_entry(decode_entry(self.entries[-1]).at, events)]
        self.size_bytes = self.compacted_bytes = len(self.entries[0])


# Messages between concurrency keys and the executions that request them. These messages are kept in
# memory, like the keys.
#
# Stored messages would outlive the keys. If a process were killed and the next process read a
# stored grant, one more attempt would run than the key allows.

LIMIT_COMMANDS = (AcquireLimit, ReleaseLimit, LimitGranted)


class LimitMessages:
    """Delivers messages from and to concurrency keys.

    All keys are in the home partition. An execution that requests a key can be in any partition
    that this process owns.
    """

    def __init__(self, owned: PartitionRegistry, routes: PartitionRoutes) -> None:
        self._owned = owned
        self._routes = routes
        # The keys that the attempts of each partition hold or wait for, without the home partition.
        self._keys_by_holder: dict[int, dict[TaskToken, str]] = {}
        self._undelivered: list[Command] = []

    def send(self, sender: OwnedPartition, commit: Commit) -> None:
        """Delivers those messages of the commit that concern concurrency keys.

        A grant for a partition that this process no longer owns is lost. The next owner of that
        partition requests the key again.
        """
        grants = [command for command in commit.messages if isinstance(command, LimitGranted)]
        void_holders = _find_void_holders(sender, commit) if grants else ()
        for grant in grants:
            if grant.holder not in void_holders:
                self._owned.deliver(self._routes.find(grant.aggregate_id), grant)
        for command in commit.messages:
            if isinstance(command, AcquireLimit | ReleaseLimit):
                self._record_request(sender.lease.partition, command)
                self._deliver_to_key(command)

    def leave_partition(self, partition: int, unconsumed: Iterable[Command]) -> None:
        """Releases the keys of all attempts of a partition that this process no longer owns.

        Keeps unconsumed messages to keys for the next owner of the home partition.
        """
        self._undelivered += [
            command for command in unconsumed if isinstance(command, LimitCommand)
        ]
        for holder, key in self._keys_by_holder.pop(partition, {}).items():
            self._deliver_to_key(ReleaseLimit(key=key, holder=holder))

    def take_undelivered(self) -> list[Command]:
        """Removes and returns the messages that the next owner of the home partition must process
        first.
        """
        undelivered, self._undelivered = self._undelivered, []
        return undelivered

    def clear(self) -> None:
        self._keys_by_holder.clear()
        self._undelivered.clear()

    def _record_request(self, sender: int, command: AcquireLimit | ReleaseLimit) -> None:
        keys_by_holder = self._keys_by_holder.setdefault(sender, {})
        if isinstance(command, AcquireLimit):
            keys_by_holder[command.holder] = command.key
        else:
            keys_by_holder.pop(command.holder, None)

    def _deliver_to_key(self, command: LimitCommand) -> None:
        owned = self._owned.by_number.get(self._routes.find(command.aggregate_id))
        if owned is None:
            self._undelivered.append(command)
        else:
            owned.inbox.put(command)


def _find_void_holders(sender: OwnedPartition, commit: Commit) -> set[TaskToken]:
    """Returns the holders that release the key in the same commit that grants it, or right after.

    A partition that was given up and acquired again has the same attempts. These attempts request
    the key again, and must not receive the response to their first request.
    """
    void: set[TaskToken] = set()
    for history in commit.histories:
        if is_limit(history.aggregate_id):
            for event in decode_entry(history.entry).events:
                if isinstance(event, LimitHeld):
                    void.discard(event.holder)
                elif isinstance(event, LimitQueued | LimitReleased):
                    void.add(event.holder)
    void.update(
        command.holder
        for command in sender.inbox.list_unconsumed()
        if isinstance(command, ReleaseLimit)
    )
    return void


# -- all in-memory state of this process --------------------------------------------------------


class SqliteProcessState:
    """The in-memory state of one process: owned partitions, tasks, routes, concurrency keys."""

    def __init__(self, reader: SqliteReader) -> None:
        self.owned = PartitionRegistry()
        self.board = TaskBoard(self.owned.deliver)
        self.membership = LocalMembership()
        self.routes = PartitionRoutes(reader)
        self.limit_histories = LimitHistories()
        self.limit_messages = LimitMessages(self.owned, self.routes)
