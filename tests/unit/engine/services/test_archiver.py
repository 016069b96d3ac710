"""The archiver brings each commit over once, says when it can't, and clears up behind itself."""

import asyncio
from collections.abc import Sequence

from runnel.backends.blobs import MemoryBlobs
from runnel.core.codec import encode_entry
from runnel.core.commands import Command
from runnel.core.events import NodeCompleted
from runnel.core.ids import NodeId
from runnel.core.values import blob
from runnel.engine.services.archiver import COMMITS_MAX, Archiver
from runnel.errors import BrokenInvariantError, FencedError, StoreError
from runnel.ports import telemetry as names
from runnel.ports.journal import JournalEntry
from runnel.ports.ledger import Cursor
from runnel.ports.store import History, Lease, Position
from runnel.testing.clock import FakeClock
from runnel.testing.conformance.values import message

LEASE = Lease(partition=0, owner="one", epoch=3, nonce="n", sequence=0)


class Told:
    def __init__(self) -> None:
        self.events: list[str] = []

    def event(self, name: str, **fields: object) -> None:
        self.events.append(name)

    def committed(self, *_args: object) -> None: ...

    def started(self, *_args: object) -> None: ...


class FakeJournal:
    def __init__(self) -> None:
        self.entries: list[JournalEntry] = []
        self.resent: list[Command] = []
        self.forgotten: list[tuple[int, Position]] = []
        self.left = 0
        self.is_read = True
        self.problem: Exception | None = None

    def add(self, count: int, *histories: History) -> None:
        first = self.entries[-1].sequence + 1 if self.entries else 1
        self.entries += [
            JournalEntry(sequence=first + number, histories=histories) for number in range(count)
        ]

    async def read(self, lease: Lease, *, after: int, limit: int) -> Sequence[JournalEntry]:
        if self.problem is not None:
            raise self.problem
        return [entry for entry in self.entries if entry.sequence > after][:limit]

    async def trim(self, lease: Lease, *, upto: int) -> None:
        self.entries = [entry for entry in self.entries if entry.sequence > upto]

    async def length(self, partition: int) -> int:
        return len(self.entries)

    async def inbox_end(self, partition: int) -> Position:
        return Position("7-0")

    async def resend(self, lease: Lease, commands: Sequence[Command]) -> None:
        self.resent += commands

    async def forget(self, lease: Lease, *, upto: int, read: Position) -> int | None:
        self.forgotten.append((upto, read))
        return self.left if self.is_read else None


class FakeLedger:
    def __init__(self) -> None:
        self.archived: list[int] = []
        self.lost: list[Command] = []
        self.problem: Exception | None = None

    async def cursor(self, partition: int) -> Cursor:
        if self.problem is not None:
            raise self.problem
        return Cursor(self.archived[-1] if self.archived else 0, 1)

    async def append(
        self, partition: int, entries: Sequence[JournalEntry], *, after: int, epoch: int
    ) -> None:
        if self.problem is not None:
            raise self.problem
        assert after == (self.archived[-1] if self.archived else 0)
        self.archived += [entry.sequence for entry in entries]

    async def unapplied(self, partition: int, *, idle_s: float, limit: int) -> Sequence[Command]:
        lost, self.lost = self.lost, []
        return lost


class Bench:
    def __init__(self) -> None:
        self.clock = FakeClock()
        self.journal, self.ledger, self.told = FakeJournal(), FakeLedger(), Told()
        self.hot, self.cold = MemoryBlobs(), MemoryBlobs()
        self.leases = [LEASE]
        self.archiver = Archiver(
            self.journal,
            self.ledger,
            self.clock,
            self.told,
            hot_blobs=self.hot,
            cold_blobs=self.cold,
            leases=lambda: self.leases,
            alarm_s=10.0,
            keep_s=60.0,
            resend_s=10.0,
        )

    async def ticks(self, count: int, *, seconds: float = 1.0) -> None:
        for _ in range(count):
            await self.archiver.tick()
            await self.clock.advance(seconds)


async def test_commits_are_archived_in_order_and_then_trimmed() -> None:
    bench = Bench()
    bench.journal.add(COMMITS_MAX + 5)

    counts = [await bench.archiver.tick() for _ in range(3)]

    assert counts == [COMMITS_MAX, 5, 0]
    assert bench.ledger.archived == list(range(1, COMMITS_MAX + 6))
    assert bench.journal.entries == []


async def test_what_came_back_with_a_store_that_was_set_back_is_trimmed_and_not_archived() -> None:
    bench = Bench()
    bench.ledger.archived = [1, 2, 3]
    bench.journal.add(2)

    assert await bench.archiver.tick() == 0
    assert bench.journal.entries == []
    assert bench.ledger.archived == [1, 2, 3]


async def test_an_archive_that_fails_is_asked_again_where_it_is() -> None:
    bench = Bench()
    bench.journal.add(2)
    bench.ledger.problem = StoreError("gone")
    await bench.ticks(1)
    # The answer was lost, the transaction was not.
    bench.ledger.problem, bench.ledger.archived = None, [1, 2]
    bench.journal.add(1)

    await bench.ticks(1)

    assert bench.ledger.archived == [1, 2, 3]


async def test_being_late_is_told_once_in_a_while_and_its_end_once() -> None:
    bench = Bench()
    bench.journal.add(1)
    bench.ledger.problem = StoreError("gone")

    await bench.ticks(26)
    late = list(bench.told.events)
    bench.ledger.problem = None
    await bench.ticks(2)

    assert late == [names.ARCHIVE_LATE, names.ARCHIVE_LATE]
    assert bench.told.events == [*late, names.ARCHIVE_CAUGHT_UP]


async def test_a_journal_that_goes_on_elsewhere_is_told_and_left_alone() -> None:
    bench = Bench()
    bench.journal.problem = BrokenInvariantError("a gap")

    await bench.ticks(12)

    assert bench.told.events == [names.ARCHIVE_LATE]


async def test_a_bug_with_one_partition_does_not_end_the_others() -> None:
    bench = Bench()
    bench.journal.add(1)
    bench.ledger.problem = RuntimeError("a bug")

    await bench.ticks(12)
    bench.ledger.problem = None
    await bench.ticks(1)

    assert bench.told.events == [names.ARCHIVE_LATE, names.ARCHIVE_CAUGHT_UP]
    assert bench.ledger.archived == [1]


async def test_an_entry_of_a_later_version_is_archived_without_its_blobs() -> None:
    bench = Bench()
    bench.journal.add(1, History(aggregate_id="x1", entry=b'[99,1.0,[{"blob":"x"}]]'))

    await bench.archiver.tick()

    assert bench.ledger.archived == [1]
    assert bench.told.events == []


async def test_the_last_commits_are_archived_after_the_partition_was_given_back() -> None:
    bench = Bench()
    stop = asyncio.Event()

    async with asyncio.TaskGroup() as group:
        group.create_task(bench.archiver.run(stop))
        await bench.clock.until_asleep()
        bench.journal.add(COMMITS_MAX + 1)
        bench.leases = []
        stop.set()

    assert len(bench.ledger.archived) == COMMITS_MAX + 1


async def test_a_whole_batch_is_followed_by_the_next_without_a_pause() -> None:
    bench = Bench()
    stop = asyncio.Event()
    bench.journal.add(2 * COMMITS_MAX + 1)

    async with asyncio.TaskGroup() as group:
        group.create_task(bench.archiver.run(stop))
        await bench.clock.until_asleep()
        archived = len(bench.ledger.archived)
        stop.set()

    assert archived == 2 * COMMITS_MAX + 1


async def test_a_former_owner_is_silent() -> None:
    bench = Bench()
    bench.journal.add(1)
    bench.ledger.problem = FencedError(0, held="epoch 3", current="epoch 4")

    await bench.ticks(3)

    assert bench.told.events == []


async def test_blobs_are_archived_before_the_events_that_name_them() -> None:
    bench = Bench()
    await bench.hot.put("x1/a", b"large")
    event = NodeCompleted(node=NodeId("a"), output=blob("x1/a", 5))
    gone = NodeCompleted(node=NodeId("b"), output=blob("x1/gone", 5))
    entry = encode_entry(1.0, [event, gone])
    bench.journal.add(1, History(aggregate_id="x1", entry=entry))

    await bench.archiver.tick()

    assert await bench.cold.get("x1/a") == b"large"
    assert bench.told.events == [names.STORE_FAILED]
    assert bench.ledger.archived == [1]


async def test_what_had_no_effect_is_sent_again() -> None:
    bench = Bench()
    await bench.archiver.tick()
    bench.ledger.lost = [message("lost")]

    await bench.ticks(4)
    assert bench.journal.resent == []
    await bench.ticks(2)

    assert bench.journal.resent == [message("lost")]
    assert bench.told.events == [names.COMMAND_RESENT]


async def test_what_ended_is_forgotten_a_while_after_it_was_archived() -> None:
    bench = Bench()
    bench.journal.add(5)

    await bench.ticks(60)
    assert bench.journal.forgotten == []
    await bench.ticks(1)

    assert bench.journal.forgotten == [(5, Position("7-0"))]


async def test_nothing_is_forgotten_before_the_inbox_was_read() -> None:
    bench = Bench()
    bench.journal.is_read = False
    bench.journal.add(5)
    await bench.ticks(63)
    asked = len(bench.journal.forgotten)
    bench.journal.is_read, bench.journal.left = True, 3

    await bench.ticks(2)
    bench.journal.left = 0
    await bench.ticks(1)

    assert asked == 3
    assert bench.journal.forgotten == [(5, Position("7-0"))] * 6
