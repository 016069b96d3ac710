"""An archiver between a fake journal and a fake ledger that tests control."""

from collections.abc import Sequence

from runnel.backends.blob_files import MemoryBlobs
from runnel.core.commands import Command
from runnel.engine.services.archiver import Archiver, ArchiverOptions
from runnel.errors import ArchiveGapError, ArchiveRefusedError, StoreError
from runnel.ports.journal import ArchiveCursor, JournalEntry, PendingCommand, QuarantinedAggregate
from runnel.ports.store import HistoryRecord, InboxPosition, Lease
from runnel.ports.telemetry import NullTelemetry
from runnel.testing.clock import FakeClock

LEASE = Lease(partition=0, owner="one", epoch=3, nonce="n", sequence=0)


class RecordingTelemetry(NullTelemetry):
    def __init__(self) -> None:
        self.events: list[str] = []

    def event(self, name: str, **fields: object) -> None:
        self.events.append(name)


class FakeJournal:
    def __init__(self) -> None:
        self.entries: list[JournalEntry] = []
        self.resent: list[Command] = []
        self.forgotten: list[tuple[int, InboxPosition]] = []
        self.left = 0
        self.is_read = True
        self.problem: Exception | None = None

    def add(self, count: int, *histories: HistoryRecord) -> None:
        first = self.entries[-1].sequence + 1 if self.entries else 1
        self.entries += [
            JournalEntry(sequence=first + number, histories=histories) for number in range(count)
        ]

    async def read(self, lease: Lease, *, after: int, limit: int) -> Sequence[JournalEntry]:
        if self.problem is not None:
            raise self.problem
        entries = [entry for entry in self.entries if entry.sequence > after][:limit]
        if entries and entries[0].sequence != after + 1:
            raise ArchiveGapError(0, archived=after, first=entries[0].sequence)
        return entries

    async def trim(self, lease: Lease, *, upto: int) -> None:
        self.entries = [entry for entry in self.entries if entry.sequence > upto]

    async def length(self, partition: int) -> int:
        return len(self.entries)

    async def read_inbox_end(self, partition: int) -> InboxPosition:
        return InboxPosition("7-0")

    async def resend(self, lease: Lease, commands: Sequence[Command]) -> None:
        self.resent += commands

    async def forget(self, lease: Lease, *, upto: int, inbox_position: InboxPosition) -> int | None:
        self.forgotten.append((upto, inbox_position))
        return self.left if self.is_read else None


class FakeLedger:
    def __init__(self) -> None:
        self.archived: list[int] = []
        self.batches: list[int] = []
        self.lost: list[PendingCommand] = []
        self.lost_problem: Exception | None = None
        self.marked: list[int] = []
        self.refused: set[int] = set()
        self.slow_above = 10**9
        self.problem: Exception | None = None

    async def cursor(self, partition: int) -> ArchiveCursor:
        if self.problem is not None:
            raise self.problem
        return ArchiveCursor(self.archived[-1] if self.archived else 0, 1)

    async def append(
        self, partition: int, entries: Sequence[JournalEntry], *, after: int, epoch: int
    ) -> None:
        if self.problem is not None:
            raise self.problem
        self.batches.append(len(entries))
        if self.refused & {entry.sequence for entry in entries}:
            raise ArchiveRefusedError("PostgreSQL: too big")
        if len(entries) > self.slow_above:
            raise StoreError("PostgreSQL: TimeoutError: no answer in time")
        assert after == (self.archived[-1] if self.archived else 0)
        self.archived += [entry.sequence for entry in entries]

    async def append_with_quarantine(
        self, partition: int, entry: JournalEntry, *, after: int, epoch: int
    ) -> Sequence[QuarantinedAggregate]:
        if self.problem is not None:
            raise self.problem
        self.archived.append(entry.sequence)
        return [QuarantinedAggregate(f"x{entry.sequence}", "no")]

    async def list_unapplied(
        self, partition: int, *, idle_s: float, limit: int, after: int = 0
    ) -> Sequence[PendingCommand]:
        if self.lost_problem is not None:
            raise self.lost_problem
        lost, self.lost = self.lost[:limit], self.lost[limit:]
        return lost

    async def mark_unreadable(self, pending: PendingCommand) -> None:
        self.marked.append(pending.id)


class ArchiverHarness:
    def __init__(self) -> None:
        self.clock = FakeClock()
        self.journal, self.ledger, self.telemetry = (
            FakeJournal(),
            FakeLedger(),
            RecordingTelemetry(),
        )
        self.hot, self.cold = MemoryBlobs(), MemoryBlobs()
        self.leases = [LEASE]
        self.archiver = Archiver(
            self.journal,
            self.ledger,
            self.clock,
            self.telemetry,
            hot_blobs=self.hot,
            cold_blobs=self.cold,
            leases=lambda: self.leases,
            options=ArchiverOptions(alarm_s=10.0, keep_s=60.0, resend_s=10.0),
        )

    async def ticks(self, count: int, *, seconds: float = 1.0) -> None:
        for _ in range(count):
            await self.archiver.tick()
            await self.clock.advance(seconds)
