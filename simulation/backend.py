"""The backend of a simulated process: every call to a port crosses the simulated network."""

from collections.abc import Awaitable, Callable, Sequence
from typing import Any, cast

from runnel.core.ids import TaskToken
from runnel.ports.archive import Archive
from runnel.ports.feed import Feed
from runnel.ports.records import RandomAccessBlobStore, Records, RequestWindows
from runnel.ports.store import (
    Commit,
    InboxEntry,
    InboxPosition,
    Lease,
    Mailbox,
    Store,
    Submission,
    TaskQueue,
)
from simulation.network import Network
from simulation.process import SimulatedProcess
from simulation.server import SimulatedServer


class SimulatedBackend:
    """The backend of one simulated process: it calls the ports of the store over the network."""

    def __init__(
        self, process: SimulatedProcess, network: Network, server: SimulatedServer
    ) -> None:
        connection = _StoreConnection(process, network, server)
        self.store: Store = cast("Store", _RemoteStore(connection))
        self.mailbox: Mailbox = cast("Mailbox", _RemotePort(connection, "mailbox"))
        self.tasks: TaskQueue = cast("TaskQueue", _RemoteTasks(connection, "tasks"))
        self.archive: Archive = cast("Archive", _RemotePort(connection, "archive"))
        self.blobs: RandomAccessBlobStore = cast(
            "RandomAccessBlobStore", _RemotePort(connection, "blobs")
        )
        self.records: Records = cast("Records", _RemotePort(connection, "records"))
        self.windows: RequestWindows = cast("RequestWindows", _RemotePort(connection, "windows"))
        self.feed: Feed = cast("Feed", _RemotePort(connection, "feed"))

    async def claim_home_partition(self, owner: str, *, submits: Submission | None = None) -> int:
        """Returns 0, which has no effect: the execution id alone determines the partition."""
        return 0

    async def close(self) -> None:
        """Does nothing: the store outlives its clients."""


class _StoreConnection:
    def __init__(
        self, process: SimulatedProcess, network: Network, server: SimulatedServer
    ) -> None:
        self._process = process
        self._network = network
        self.server = server

    async def call(self, part: str, name: str, *args: Any, **named: Any) -> Any:
        def operate() -> Awaitable[Any]:
            """Calls the method of the port.

            Looks the method up on arrival, because a rollback may have replaced the store.
            """
            method: Callable[..., Awaitable[Any]] = getattr(
                getattr(self.server.instance, part), name
            )
            return method(*args, **named)

        return await self._network.call(self._process, name, operate)


class _RemotePort:
    """A proxy of the port `part`: each attribute calls the method of the same name in the store."""

    def __init__(self, connection: _StoreConnection, part: str) -> None:
        self._connection = connection
        self._part = part

    def __getattr__(self, name: str) -> Callable[..., Awaitable[Any]]:
        async def call(*args: Any, **named: Any) -> Any:
            return await self._connection.call(self._part, name, *args, **named)

        return call


class _RemoteTasks(_RemotePort):
    def begin(self, token: TaskToken) -> None:
        """Does nothing: the store has recorded the start and survives the death of a worker."""

    def end(self, token: TaskToken) -> None:
        """Does nothing, as `begin`."""


class _RemoteStore(_RemotePort):
    """A proxy of the Store port that caches constants and values that only the owner changes.

    The reader of an inbox keeps its own position, so a lost response loses no entry.
    """

    def __init__(self, connection: _StoreConnection) -> None:
        super().__init__(connection, "store")
        self.limits = connection.server.limits
        self.has_shared_failures = connection.server.instance.store.has_shared_failures
        self._read_positions: dict[str, InboxPosition] = {}
        self._next_due: dict[str, float | None] = {}

    async def partitions(self) -> Sequence[int]:
        return range(len(self._connection.server.state.partitions))

    async def partitions_with_work(self) -> Sequence[int]:
        return await self.partitions()

    async def route(self, aggregate_id: str, *, is_new: bool = False) -> int:
        return self._connection.server.state.route(aggregate_id)

    async def restore(self, lease: Lease) -> Lease:
        return lease

    async def read_inbox(self, lease: Lease, *, limit: int, wait_s: float) -> Sequence[InboxEntry]:
        after = self._read_positions.get(lease.nonce)
        entries: Sequence[InboxEntry] = await self._connection.call(
            "store", "read_after", lease, after, limit=limit, wait_s=wait_s
        )
        if entries:
            self._read_positions[lease.nonce] = entries[-1].position
        return entries

    async def next_due(self, lease: Lease) -> float | None:
        if lease.nonce not in self._next_due:
            self._next_due[lease.nonce] = await self._connection.call("store", "next_due", lease)
        return self._next_due[lease.nonce]

    async def commit(self, lease: Lease, commit: Commit) -> None:
        if commit.timers_set or commit.timers_cleared:
            self._next_due.pop(lease.nonce, None)
        await self._connection.call("store", "commit", lease, commit)
