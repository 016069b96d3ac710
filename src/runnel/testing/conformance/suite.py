"""What all rules share: the backend under test, the owner of its partition, fake time."""

from collections.abc import Sequence

import pytest

from runnel.core.commands import Command
from runnel.ports.archive import Archive
from runnel.ports.backend import Backend
from runnel.ports.feed import Feed
from runnel.ports.store import Commit, InboxEntry, Lease, Mailbox, Position, Store, TaskQueue
from runnel.testing.clock import FakeClock, FakeIds
from runnel.testing.conformance.values import ROOT
from runnel.testing.harness import Harness

ALL = 1_000


class Owner:
    """Commits in sequence, as an orchestrator does."""

    def __init__(self, store: Store, lease: Lease) -> None:
        self.store = store
        self.lease = lease
        self.partition = lease.partition
        self.sequence = lease.sequence

    async def commit(self, commit: Commit) -> None:
        """The sequence of `commit` is filled in."""
        numbered = Commit(
            **{name: getattr(commit, name) for name in Commit.__struct_fields__}
            | {"sequence": self.sequence + 1}
        )
        await self.store.commit(self.lease, numbered)
        self.sequence += 1

    async def consume(self, position: Position) -> None:
        await self.commit(Commit(sequence=0, consumed=position))

    async def read(self, *, limit: int = ALL, wait_s: float = 0) -> Sequence[InboxEntry]:
        return await self.store.read_inbox(self.lease, limit=limit, wait_s=wait_s)

    async def commands(self) -> list[Command | None]:
        return [entry.command for entry in await self.read()]


class Suite:
    """A backend's test class gives the `harness` fixture; asyncio_mode must be "auto"."""

    @pytest.fixture
    def clock(self) -> FakeClock:
        return FakeClock()

    @pytest.fixture
    def ids(self) -> FakeIds:
        return FakeIds()

    @pytest.fixture
    def backend(self, harness: Harness) -> Backend:
        return harness.backend

    @pytest.fixture
    def store(self, backend: Backend) -> Store:
        return backend.store

    @pytest.fixture
    def mailbox(self, backend: Backend) -> Mailbox:
        return backend.mailbox

    @pytest.fixture
    def tasks(self, backend: Backend) -> TaskQueue:
        return backend.tasks

    @pytest.fixture
    def archive(self, backend: Backend) -> Archive:
        return backend.archive

    @pytest.fixture
    def feed(self, backend: Backend) -> Feed:
        return backend.feed

    @pytest.fixture
    async def owner(self, backend: Backend) -> Owner:
        await backend.claim_home("one")
        partition = await backend.store.route(ROOT)
        return Owner(backend.store, await backend.store.acquire(partition, "one"))


async def take_over(harness: Harness, former: Owner, name: str = "two") -> Owner:
    """The former owner dies, somebody else judges it dead and takes its partition."""
    await harness.abandon(former.lease)
    store = former.store
    over = await store.observe(former.partition)
    return Owner(store, await store.acquire(former.partition, name, over=over))


async def hand_over(former: Owner, name: str = "two") -> Owner:
    """The former owner gives its partition back in peace."""
    await former.store.release(former.lease)
    return Owner(former.store, await former.store.acquire(former.partition, name))
