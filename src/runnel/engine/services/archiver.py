"""Copies every commit of the partitions that this process owns into the archive."""

import asyncio
import traceback
from collections import deque
from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from itertools import accumulate
from math import inf
from typing import Protocol

from runnel.core.codec import HistoryEntry, decode_entry
from runnel.core.commands import list_command_blobs
from runnel.core.events import MapStarted
from runnel.core.values import Value
from runnel.errors import (
    ArchiveGapError,
    ArchiveRefusedError,
    BrokenInvariantError,
    FencedError,
    NotFoundError,
    StoreError,
    UnreadableFormatError,
)
from runnel.ports import telemetry as names
from runnel.ports.clock import Clock
from runnel.ports.journal import Journal, JournalEntry, Ledger, PendingCommand
from runnel.ports.records import BlobStore
from runnel.ports.store import InboxPosition, Lease
from runnel.ports.telemetry import Telemetry

BATCH_COMMITS_MAX = 100


class ArchiveProgress:
    """How far the partition of one lease is archived, and which failures were reported.

    `archived` None is asked of the archive, `batch` commits are tried at once.
    """

    __slots__ = (
        "_reported",
        "archived",
        "archived_marks",
        "batch",
        "caught_up_at",
        "forget_target",
        "has_more",
        "reported_at",
        "resend_at",
    )

    def __init__(self, now: float) -> None:
        self.archived: int | None = None
        self.caught_up_at = now
        self.reported_at: float | None = None
        self.resend_at = now
        self.archived_marks: deque[tuple[float, int]] = deque()
        self.forget_target: tuple[int, InboxPosition] | None = None
        self.batch = BATCH_COMMITS_MAX
        self.has_more = False
        self._reported: dict[str, float] = {}

    def is_report_due(self, call: str, now: float, *, every_s: float) -> bool:
        """At once when it fails for the first time, then every so often."""
        last = self._reported.get(call)
        if last is not None and now - last < every_s:
            return False
        self._reported[call] = now
        return True

    def note_archived(self, now: float, *, every_s: float) -> None:
        is_due = not self.archived_marks or now - self.archived_marks[-1][0] >= every_s
        if self.archived is not None and is_due:
            self.archived_marks.append((now, self.archived))

    def archived_before(self, moment: float) -> int | None:
        """Returns the sequence archived at that moment; None when it is unknown or was returned."""
        sequence = None
        while self.archived_marks and self.archived_marks[0][0] <= moment:
            sequence = self.archived_marks.popleft()[1]
        return sequence


# How an entry that refers to a blob looks from outside: few do, and only those are decoded.
BLOB_FIELD = b'"blob":'


def list_entry_blobs(entries: Sequence[JournalEntry]) -> Iterator[str]:
    for entry in entries:
        for history in entry.histories:
            if BLOB_FIELD in history.entry:
                # One that a later version wrote is archived without: it knows its own.
                with suppress(UnreadableFormatError):
                    yield from _list_event_blobs(decode_entry(history.entry))


def _list_event_blobs(entry: HistoryEntry) -> Iterator[str]:
    for event in entry.events:
        for name in event.__struct_fields__:
            value = getattr(event, name)
            if isinstance(value, Value) and value.blob is not None:
                yield value.blob
        if isinstance(event, MapStarted):
            yield from (value.blob for value in event.shared.values() if value.blob is not None)


# Of one transaction: at 20 Mbit/s, a second and a half.
TRANSACTION_BYTES_MAX = 4_000_000
# Each may hold an input of a quarter of a megabyte.
RESENT_COMMANDS_MAX = 100


class PartitionDuty(Protocol):
    __name__: str

    def __call__(self, lease: Lease, progress: ArchiveProgress) -> Awaitable[None]: ...


class Archiver:
    """The archive is at most `flush_s` behind while it can be reached; `archive.late` is told once
    it is `alarm_s` behind.

    Any number may run, each for the partitions of its own `leases`: a commit is archived once. An
    execution leaves the store `keep_s` after its end was archived, and what a caller asked for is
    sent again while it has had no effect for `resend_s`.
    """

    def __init__(
        self,
        journal: Journal,
        ledger: Ledger,
        clock: Clock,
        telemetry: Telemetry,
        *,
        hot_blobs: BlobStore,
        cold_blobs: BlobStore,
        leases: Callable[[], Sequence[Lease]],
        flush_s: float = 0.5,
        alarm_s: float = 10.0,
        keep_s: float = 60.0,
        resend_s: float = 10.0,
    ) -> None:
        self._journal = journal
        self._ledger = ledger
        self._clock = clock
        self._telemetry = telemetry
        self._hot_blobs = hot_blobs
        self._cold_blobs = cold_blobs
        self._leases = leases
        self._flush_s = flush_s
        self._alarm_s = alarm_s
        self._keep_s = keep_s
        self._resend_s = resend_s
        self._progress: dict[str, ArchiveProgress] = {}
        self._recent_leases: Sequence[Lease] = ()
        self._has_more = False

    async def run(self, stop: asyncio.Event) -> None:
        """Until stopped; then what is left of the partitions that were owned here is archived.

        Also of those that were given back meanwhile: whoever took one archives it at a higher
        epoch, and is not disturbed.
        """
        while not stop.is_set():
            await self.tick()
            if not self._has_more:
                await self._clock.wait(stop, self._flush_s)
        for lease in self._recent_leases:
            if not await self._archive_rest(lease):
                break

    async def tick(self) -> int:
        """One batch of each partition; returns how many commits it archived."""
        leases = self._recent_leases = self._leases()
        current = {lease.nonce for lease in leases}
        for nonce in self._progress.keys() - current:
            del self._progress[nonce]
        counts = [await self._visit(lease) for lease in leases]
        self._has_more = any(progress.has_more for progress in self._progress.values())
        oldest = min((progress.caught_up_at for progress in self._progress.values()), default=inf)
        lag_s = max(0.0, self._clock.monotonic() - oldest)
        self._telemetry.measured(names.ARCHIVE_LAG_S, lag_s)
        return sum(counts)

    async def _visit(self, lease: Lease) -> int:
        """What goes wrong with one partition is no reason to leave the others."""
        progress = self._progress.get(lease.nonce)
        if progress is None:
            progress = self._progress[lease.nonce] = ArchiveProgress(self._clock.monotonic())
        problem: Exception | None = None
        count = 0
        try:
            count = await self._archive(lease, progress)
        except Exception as caught:  # noqa: BLE001 - also a bug: the others must not wait for it
            progress.archived, progress.has_more = None, False
            problem = caught
        self._report_lag(lease, progress, problem)
        if not isinstance(problem, StoreError):  # then the archive can't be asked for more
            await self._run_duty(lease, progress, self._resend)
            await self._run_duty(lease, progress, self._forget)
        return count

    async def _run_duty(self, lease: Lease, progress: ArchiveProgress, duty: PartitionDuty) -> None:
        """Told by itself: the archive may be up to date, and this fail for ever."""
        try:
            await duty(lease, progress)
        except FencedError:
            return  # somebody else's partition by now: its lease will leave our list
        except Exception as problem:  # noqa: BLE001 - as above
            call = duty.__name__.strip("_")
            if progress.is_report_due(call, self._clock.monotonic(), every_s=self._alarm_s):
                self._telemetry.event(
                    names.STORE_FAILED,
                    call=call,
                    partition=lease.partition,
                    error=_format_problem(problem),
                )

    async def _archive_rest(self, lease: Lease) -> bool:
        """False when the archive can't be reached: the next owners do it, nobody waits here."""
        progress = ArchiveProgress(self._clock.monotonic())
        try:
            await self._archive(lease, progress)
            while progress.has_more:
                await self._archive(lease, progress)
        except FencedError:
            return True  # its next owner does
        except (StoreError, BrokenInvariantError) as error:
            self._telemetry.event(names.STORE_FAILED, call="archive", error=str(error))
            return not isinstance(error, StoreError)
        return True

    async def _archive(self, lease: Lease, progress: ArchiveProgress) -> int:
        if progress.archived is None:
            archived = (await self._ledger.cursor(lease.partition)).sequence
            # What was archived before may have come back with a store that was set back.
            await self._journal.trim(lease, upto=archived)
            progress.archived = archived
        looked_at = self._clock.monotonic()
        after = progress.archived
        entries = await self._journal.read(lease, after=after, limit=progress.batch)
        batch = _take_transaction(entries)
        is_full = len(entries) == progress.batch
        if batch:
            progress.archived = await self._append_batch(lease, progress, batch, after)
            await self._journal.trim(lease, upto=progress.archived)
        count = progress.archived - after
        progress.has_more = is_full or count < len(entries)
        if not progress.has_more:
            progress.caught_up_at = looked_at
        return count

    async def _append_batch(
        self, lease: Lease, progress: ArchiveProgress, batch: Sequence[JournalEntry], after: int
    ) -> int:
        """The last commit that was archived: one that is refused is found by halving.

        What takes too long is tried with half as much the next time.
        """
        copied: set[str] = set()
        while True:
            try:
                await self._copy_blobs(batch, copied)
                await self._ledger.append(lease.partition, batch, after=after, epoch=lease.epoch)
            except ArchiveRefusedError:
                refused = batch
            except FencedError:
                raise
            except StoreError:
                progress.batch = max(1, len(batch) // 2)
                raise
            except Exception:  # noqa: BLE001 - a bug with one of them: the others must not wait
                refused = batch
            else:
                # A quarter more, not twice as much: too much costs the time of a whole call.
                grown = len(batch) * 5 // 4 + 1
                progress.batch = min(BATCH_COMMITS_MAX, max(grown, progress.batch))
                return batch[-1].sequence
            if len(refused) == 1:
                await self._quarantine(lease, refused[0], after)
                return refused[0].sequence
            batch = refused[: len(refused) // 2]

    async def _quarantine(self, lease: Lease, commit: JournalEntry, after: int) -> None:
        quarantined = await self._ledger.append_with_quarantine(
            lease.partition, commit, after=after, epoch=lease.epoch
        )
        for row in quarantined:
            self._telemetry.event(
                names.ARCHIVE_SET_ASIDE,
                partition=lease.partition,
                commit=commit.sequence,
                execution_id=row.aggregate_id,
                reason=row.reason,
            )

    async def _copy_blobs(self, entries: Sequence[JournalEntry], copied: set[str]) -> None:
        """Before the events that refer to them; one that is gone is missed by whoever reads it."""
        for key in list_entry_blobs(entries):
            if key in copied:
                continue
            copied.add(key)
            try:
                await self._cold_blobs.put(key, await self._hot_blobs.get(key))
            except NotFoundError as error:
                self._telemetry.event(names.STORE_FAILED, call="archive", error=str(error))
            except ArchiveRefusedError as error:
                self._telemetry.event(names.ARCHIVE_SET_ASIDE, blob=key, reason=str(error))

    async def _resend(self, lease: Lease, progress: ArchiveProgress) -> None:
        now = self._clock.monotonic()
        if now < progress.resend_at:
            return
        progress.resend_at = now + self._resend_s / 2
        unapplied = await self._ledger.list_unapplied(
            lease.partition, idle_s=self._resend_s, limit=RESENT_COMMANDS_MAX
        )
        if len(unapplied) == RESENT_COMMANDS_MAX:
            progress.resend_at = now
        commands = [pending.command for pending in unapplied if pending.command is not None]
        for key in list_command_blobs(commands):
            with suppress(NotFoundError):  # whoever reads it says so
                await self._hot_blobs.put(key, await self._cold_blobs.get(key))
        await self._journal.resend(lease, commands)
        for command in commands:
            self._telemetry.event(names.COMMAND_RESENT, command=type(command).__name__)
        for pending in unapplied:
            if pending.command is None:
                await self._report_unreadable(lease, pending)

    async def _report_unreadable(self, lease: Lease, pending: PendingCommand) -> None:
        """One that a later version wrote is asked for again: that one may run tomorrow."""
        self._telemetry.event(
            names.MESSAGE_UNREADABLE,
            partition=lease.partition,
            command=pending.id,
            problem=pending.problem,
        )
        if not pending.is_newer:
            await self._ledger.mark_unreadable(pending)

    async def _forget(self, lease: Lease, progress: ArchiveProgress) -> None:
        """What was archived long enough ago, once all that had come by then was read."""
        now = self._clock.monotonic()
        progress.note_archived(now, every_s=self._keep_s / 10)
        if progress.forget_target is None:
            upto = progress.archived_before(now - self._keep_s)
            if upto is None:
                return
            progress.forget_target = upto, await self._journal.read_inbox_end(lease.partition)
        upto, position = progress.forget_target
        if await self._journal.forget(lease, upto=upto, inbox_position=position) == 0:
            progress.forget_target = None

    def _report_lag(
        self, lease: Lease, progress: ArchiveProgress, problem: Exception | None
    ) -> None:
        """One who is fenced is late for ever if the partition is still its own: so it is told."""
        now = self._clock.monotonic()
        lag_s = now - progress.caught_up_at
        if lag_s <= self._alarm_s:
            if progress.reported_at is not None:
                self._telemetry.event(names.ARCHIVE_CAUGHT_UP, partition=lease.partition)
            progress.reported_at = None
        elif progress.reported_at is None or now - progress.reported_at >= self._alarm_s:
            progress.reported_at = now
            self._telemetry.event(
                _EVENT_NAMES.get(type(problem), names.ARCHIVE_LATE),
                partition=lease.partition,
                lag_s=lag_s,
                error="" if problem is None else _format_problem(problem),
            )


# What will not be right by itself has a name of its own.
_EVENT_NAMES: Mapping[type, str] = {
    FencedError: names.ARCHIVE_FENCED,
    ArchiveGapError: names.ARCHIVE_GAP,
}


def _take_transaction(entries: Sequence[JournalEntry]) -> Sequence[JournalEntry]:
    """One at least, and not more bytes than one transaction should take."""
    sizes = accumulate(entry.size_bytes for entry in entries)
    fitting = sum(1 for size in sizes if size <= TRANSACTION_BYTES_MAX)
    return entries[: max(1, fitting)]


def _format_problem(problem: Exception) -> str:
    """With a traceback for what is a bug."""
    if isinstance(problem, StoreError | BrokenInvariantError):
        return str(problem)
    return "".join(traceback.format_exception(problem))
