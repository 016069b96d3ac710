"""The ports of a backend as one process has them: every call goes over the network."""

from collections.abc import Awaitable, Callable, Sequence
from typing import Any, cast

from runnel.core.ids import Token
from runnel.ports.archive import Archive
from runnel.ports.feed import Feed
from runnel.ports.records import BlobStore, Records, RequestWindows
from runnel.ports.store import Commit, InboxEntry, Lease, Mailbox, Position, Store, TaskQueue
from simulation.network import Network
from simulation.process import Process
from simulation.server import Server


class SimulatedBackend:
    """What one process sees of the store."""

    def __init__(self, process: Process, network: Network, server: Server) -> None:
        line = _Line(process, network, server)
        self.store: Store = cast("Store", _RemoteStore(line))
        self.mailbox: Mailbox = cast("Mailbox", _Remote(line, "mailbox"))
        self.tasks: TaskQueue = cast("TaskQueue", _RemoteTasks(line, "tasks"))
        self.archive: Archive = cast("Archive", _Remote(line, "archive"))
        self.blobs: BlobStore = cast("BlobStore", _Remote(line, "blobs"))
        self.records: Records = cast("Records", _Remote(line, "records"))
        self.windows: RequestWindows = cast("RequestWindows", _Remote(line, "windows"))
        self.feed: Feed = cast("Feed", _Remote(line, "feed"))

    async def claim_home(self, owner: str) -> int:
        """Where an execution goes is decided by its id alone."""
        return 0

    async def close(self) -> None:
        """The store outlives those who use it."""


class _Line:
    def __init__(self, process: Process, network: Network, server: Server) -> None:
        self._process = process
        self._network = network
        self.server = server

    async def call(self, part: str, name: str, *args: Any, **named: Any) -> Any:
        def operate() -> Awaitable[Any]:
            """Looked up on arrival: the machine may be another one by then."""
            method: Callable[..., Awaitable[Any]] = getattr(
                getattr(self.server.machine, part), name
            )
            return method(*args, **named)

        return await self._network.call(self._process, name, operate)


class _Remote:
    """Any: each attribute is a method of the port that `part` is."""

    def __init__(self, line: _Line, part: str) -> None:
        self._line = line
        self._part = part

    def __getattr__(self, name: str) -> Callable[..., Awaitable[Any]]:
        async def call(*args: Any, **named: Any) -> Any:
            return await self._line.call(self._part, name, *args, **named)

        return call


class _RemoteTasks(_Remote):
    def begin(self, token: Token) -> None:
        """The store lives on when a worker dies."""


class _RemoteStore(_Remote):
    """Knows by itself what only its owner changes, or nobody: a remote store's client would too.

    The reader of an inbox keeps its place, so that an answer that is lost loses nothing.
    """

    def __init__(self, line: _Line) -> None:
        super().__init__(line, "store")
        self.limits = line.server.limits
        self.fails_together = line.server.machine.store.fails_together
        self._read: dict[str, Position] = {}
        self._due: dict[str, float | None] = {}

    async def partitions(self) -> Sequence[int]:
        return range(len(self._line.server.state.partitions))

    async def route(self, aggregate_id: str, *, is_new: bool = False) -> int:
        return self._line.server.state.route(aggregate_id)

    async def restore(self, lease: Lease) -> Lease:
        return lease

    async def read_inbox(self, lease: Lease, *, limit: int, wait_s: float) -> Sequence[InboxEntry]:
        after = self._read.get(lease.nonce)
        entries: Sequence[InboxEntry] = await self._line.call(
            "store", "read_after", lease, after, limit=limit, wait_s=wait_s
        )
        if entries:
            self._read[lease.nonce] = entries[-1].position
        return entries

    async def next_due(self, lease: Lease) -> float | None:
        if lease.nonce not in self._due:
            self._due[lease.nonce] = await self._line.call("store", "next_due", lease)
        return self._due[lease.nonce]

    async def commit(self, lease: Lease, commit: Commit) -> None:
        if commit.timers_set or commit.timers_cleared:
            self._due.pop(lease.nonce, None)
        await self._line.call("store", "commit", lease, commit)
