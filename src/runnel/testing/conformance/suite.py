"""Fixtures and values that all rules share: the backend, the owner of a partition, a fake clock."""

from collections.abc import Sequence

import msgspec
import pytest

from runnel.core.commands import CancelExecution, Command, TaskCompleted
from runnel.core.effects import DeadLetter, TaskMessage, TimerKey, TimerKind
from runnel.core.ids import NO_ITEM, ExecutionId, NodeId, Nonce, TaskToken
from runnel.core.retry import ErrorInfo
from runnel.core.states import ExecutionState
from runnel.core.values import EMPTY_OBJECT, make_inline_value
from runnel.ports import Backend
from runnel.ports.archive import Archive
from runnel.ports.feed import Feed
from runnel.ports.store import (
    Commit,
    ExecutionHeader,
    InboxEntry,
    InboxPosition,
    Lease,
    Mailbox,
    Store,
    TaskQueue,
    TimerRecord,
)
from runnel.testing.clock import FakeClock, FakeIds
from runnel.testing.harness import Harness

# -- minimal values of each kind, which differ only by a name -----------------------------------

ROOT_ID = ExecutionId("x1")
LIMIT_ID = "limit:gpu"


def make_token(node: str, *, attempt: int = 1, execution_id: ExecutionId = ROOT_ID) -> TaskToken:
    return TaskToken(execution_id, NodeId(node), NO_ITEM, attempt, Nonce("n"))


def make_task(node: str, *, queue: str = "default", attempt: int = 1) -> TaskMessage:
    return TaskMessage(
        token=make_token(node, attempt=attempt),
        handler="h",
        queue=queue,
        config=msgspec.Raw(b"{}"),
        execution_input=EMPTY_OBJECT,
        workflow="w",
        version=1,
        execution_started_at=1.0,
        timeout_s=300.0,
        issued_at=1.0,
    )


def make_completion(node: str, *, attempt: int = 1, output: str = "out") -> TaskCompleted:
    return TaskCompleted(token=make_token(node, attempt=attempt), output=make_inline_value(output))


def make_message(text: str) -> CancelExecution:
    """Returns a command that tests recognize by its text."""
    return CancelExecution(execution_id=ROOT_ID, reason=text)


def make_header(
    execution_id: str = ROOT_ID,
    *,
    state: ExecutionState = ExecutionState.RUNNING,
    created_at: float = 1.0,
    workflow: str = "w",
    parent: str | None = None,
) -> ExecutionHeader:
    return ExecutionHeader(
        execution_id=ExecutionId(execution_id),
        workflow=workflow,
        version=1,
        definition="hash",
        state=state,
        created_at=created_at,
        parent_id=None if parent is None else ExecutionId(parent),
        labels={"team": "a"},
    )


def make_timer(node: str, *, due: float, attempt: int = 1) -> TimerRecord:
    return TimerRecord(key=make_timer_key(node), due=due, attempt=attempt)


def make_timer_key(node: str) -> TimerKey:
    return TimerKey(ROOT_ID, NodeId(node), NO_ITEM, TimerKind.RETRY)


def make_dead_letter(node: str, *, rejected_at: float = 1.0) -> DeadLetter:
    return DeadLetter(
        token=make_token(node),
        queue="default",
        handler="h",
        config=msgspec.Raw(b'{"big":12345678901234567890,"empty":[]}'),
        error=ErrorInfo("ValueError", "no"),
        reason="failed",
        rejected_at=rejected_at,
    )


READ_LIMIT = 1_000


class LeaseOwner:
    """A test double of an orchestrator, which holds a lease and commits in sequence."""

    def __init__(self, store: Store, lease: Lease) -> None:
        self.store = store
        self.lease = lease
        self.partition = lease.partition
        self.sequence = lease.sequence

    async def commit(self, commit: Commit) -> None:
        """Writes the commit with the next sequence; the sequence of `commit` is ignored."""
        numbered = Commit(
            **{name: getattr(commit, name) for name in Commit.__struct_fields__}
            | {"sequence": self.sequence + 1}
        )
        await self.store.commit(self.lease, numbered)
        self.sequence += 1

    async def consume(self, position: InboxPosition) -> None:
        await self.commit(Commit(sequence=0, consumed=position))

    async def read(self, *, limit: int = READ_LIMIT, wait_s: float = 0) -> Sequence[InboxEntry]:
        return await self.store.read_inbox(self.lease, limit=limit, wait_s=wait_s)

    async def read_commands(self) -> list[Command | None]:
        return [entry.command for entry in await self.read()]


class ConformanceFixtures:
    """Fixtures of the suite. The test class of a backend provides the `harness` fixture."""

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
    async def owner(self, backend: Backend) -> LeaseOwner:
        await backend.claim_home_partition("one")
        partition = await backend.store.route(ROOT_ID)
        return LeaseOwner(backend.store, await backend.store.acquire(partition, "one"))


async def take_over(harness: Harness, former: LeaseOwner, name: str = "two") -> LeaseOwner:
    """Simulates the death of the former owner; returns a new owner that has acquired
    its partition.
    """
    await harness.abandon_lease(former.lease)
    store = former.store
    record = await store.observe(former.partition)
    return LeaseOwner(store, await store.acquire(former.partition, name, expected=record))


async def hand_over(former: LeaseOwner, name: str = "two") -> LeaseOwner:
    """Releases the partition of the former owner; returns a new owner that has acquired the
    partition.
    """
    await former.store.release(former.lease)
    return LeaseOwner(former.store, await former.store.acquire(former.partition, name))
