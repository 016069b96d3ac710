"""The ports of a backend as one process has them: every call goes over the network."""

from collections.abc import Awaitable, Callable, Sequence
from typing import Any, cast

from runnel.core.ids import TaskToken
from runnel.ports.archive import Archive
from runnel.ports.feed import Feed
from runnel.ports.records import BlobStore, Records, RequestWindows
from runnel.ports.store import Commit, InboxEntry, InboxPosition, Lease, Mailbox, Store, TaskQueue
from simulation.network import Network
from simulation.process import SimulatedProcess
from simulation.server import SimulatedServer


class SimulatedBackend:
    """What one process sees of the store."""

    def __init__(
        self, process: SimulatedProcess, network: Network, server: SimulatedServer
    ) -> None:
        line = _StoreConnection(process, network, server)
        self.store: Store = cast("Store", _RemoteStore(line))
        self.mailbox: Mailbox = cast("Mailbox", _RemotePort(line, "mailbox"))
        self.tasks: TaskQueue = cast("TaskQueue", _RemoteTasks(line, "tasks"))
        self.archive: Archive = cast("Archive", _RemotePort(line, "archive"))
        self.blobs: BlobStore = cast("BlobStore", _RemotePort(line, "blobs"))
        self.records: Records = cast("Records", _RemotePort(line, "records"))
        self.windows: RequestWindows = cast("RequestWindows", _RemotePort(line, "windows"))
        self.feed: Feed = cast("Feed", _RemotePort(line, "feed"))

    async def claim_home_partition(self, owner: str) -> int:
        """Where an execution goes is decided by its id alone."""
        return 0

    async def close(self) -> None:
        """The store outlives those who use it."""


class _StoreConnection:
    def __init__(
        self, process: SimulatedProcess, network: Network, server: SimulatedServer
    ) -> None:
        self._process = process
        self._network = network
        self.server = server

    async def call(self, part: str, name: str, *args: Any, **named: Any) -> Any:
        def operate() -> Awaitable[Any]:
            """Looked up on arrival: the machine may be another one by then."""
            method: Callable[..., Awaitable[Any]] = getattr(
                getattr(self.server.instance, part), name
            )
            return method(*args, **named)

        return await self._network.call(self._process, name, operate)


class _RemotePort:
    """Any: each attribute is a method of the port that `part` is."""

    def __init__(self, connection: _StoreConnection, part: str) -> None:
        self._connection = connection
        self._part = part

    def __getattr__(self, name: str) -> Callable[..., Awaitable[Any]]:
        async def call(*args: Any, **named: Any) -> Any:
            return await self._connection.call(self._part, name, *args, **named)

        return call


class _RemoteTasks(_RemotePort):
    def begin(self, token: TaskToken) -> None:
        """The store lives on when a worker dies."""


class _RemoteStore(_RemotePort):
    """Knows by itself what only its owner changes, or nobody: a remote store's client would too.

    The reader of an inbox keeps its place, so that an answer that is lost loses nothing.
    """

    def __init__(self, connection: _StoreConnection) -> None:
        super().__init__(connection, "store")
        self.limits = connection.server.limits
        self.has_shared_failures = connection.server.instance.store.has_shared_failures
        self._read_positions: dict[str, InboxPosition] = {}
        self._next_due: dict[str, float | None] = {}

    async def partitions(self) -> Sequence[int]:
        return range(len(self._connection.server.state.partitions))

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
