"""Copies every commit of the partitions that this process owns into the archive."""

import asyncio
import traceback
from collections import deque
from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from itertools import accumulate
from math import inf
from typing import Protocol

import msgspec

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
    """The progress of archiving one leased partition, and the times of its failure reports.

    `archived` is the last archived sequence. `archived` is None until the archiver has read it from
    the archive. `batch` is the number of commits per archive call. `fenced_at` is the time of the
    first of the present FencedErrors.
    """

    __slots__ = (
        "_reported",
        "archived",
        "archived_marks",
        "batch",
        "caught_up_at",
        "fenced_at",
        "forget_target",
        "has_more",
        "reported_at",
        "resend_at",
    )

    def __init__(self, now: float) -> None:
        self.archived: int | None = None
        self.caught_up_at = now
        self.fenced_at: float | None = None
        self.reported_at: float | None = None
        self.resend_at = now
        self.archived_marks: deque[tuple[float, int]] = deque()
        self.forget_target: tuple[int, InboxPosition] | None = None
        self.batch = BATCH_COMMITS_MAX
        self.has_more = False
        self._reported: dict[str, float] = {}

    def is_report_due(self, call: str, now: float, *, every_s: float) -> bool:
        """Returns True for the first failure of `call`, and again for a failure at least `every_s`
        later.
        """
        last = self._reported.get(call)
        if last is not None and now - last < every_s:
            return False
        self._reported[call] = now
        return True

    def note_archived(self, now: float, *, every_s: float) -> None:
        is_due = not self.archived_marks or now - self.archived_marks[-1][0] >= every_s
        if self.archived is not None and is_due:
            self.archived_marks.append((now, self.archived))

    def archived_before(self, at: float) -> int | None:
        """Returns the last sequence that was archived at the time `at`.

        Returns None if that sequence is unknown or was already returned.
        """
        sequence = None
        while self.archived_marks and self.archived_marks[0][0] <= at:
            sequence = self.archived_marks.popleft()[1]
        return sequence


# The bytes that occur in every entry with a blob. Few entries contain these bytes, and only those
# are decoded.
BLOB_FIELD = b'"blob":'


def list_entry_blobs(entries: Sequence[JournalEntry]) -> Iterator[str]:
    for entry in entries:
        for history in entry.histories:
            if BLOB_FIELD in history.entry:
                # An entry that a later version of Runnel wrote is archived without its blobs,
                # because only that version can list them.
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


# The most bytes in one transaction. A transfer of 4 MB takes about 1.5 s at 20 Mbit/s.
TRANSACTION_BYTES_MAX = 4_000_000
# Bounds the memory of one call, because each command may hold an input of 0.25 MB.
RESENT_COMMANDS_MAX = 100


class PartitionDuty(Protocol):
    """A step of the archiver that runs for each partition after its commits were archived."""

    __name__: str

    def __call__(self, lease: Lease, progress: ArchiveProgress) -> Awaitable[None]: ...


class ArchiverOptions(msgspec.Struct, frozen=True, kw_only=True):
    """The intervals of an archiver.

    While the archive can be reached, a commit is archived at most `flush_s` later. The archiver
    reports `archive.late` if a commit is not archived after `alarm_s`. The archiver deletes an
    execution from the store `keep_s` after its end was archived. The archiver sends a caller's
    command again if the command has had no effect for `resend_s`.
    """

    flush_s: float = 0.5
    alarm_s: float = 10.0
    keep_s: float = 60.0
    resend_s: float = 10.0


DEFAULT_OPTIONS = ArchiverOptions()


class Archiver:
    """Copies each commit of the partitions of `leases` into the archive, exactly once.

    Several archivers may run at the same time, each for its own leases.
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
        options: ArchiverOptions = DEFAULT_OPTIONS,
    ) -> None:
        self._journal = journal
        self._ledger = ledger
        self._clock = clock
        self._telemetry = telemetry
        self._hot_blobs = hot_blobs
        self._cold_blobs = cold_blobs
        self._leases = leases
        self._options = options
        self._progress: dict[str, ArchiveProgress] = {}
        self._recent_leases: Sequence[Lease] = ()
        self._has_more = False

    async def run(self, stop: asyncio.Event) -> None:
        """Archives until stopped; then archives the remaining commits of this process's partitions.

        The remaining commits include those of partitions that this process has just released. A new
        owner archives such a partition at a higher epoch, which fences this archiver off.
        """
        while not stop.is_set():
            await self.tick()
            if not self._has_more:
                await self._clock.wait(stop, self._options.flush_s)
        for lease in self._recent_leases:
            if not await self._archive_rest(lease):
                break

    async def tick(self) -> int:
        """Archives one batch of each partition; returns the number of archived commits."""
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
        """Archives one batch of a partition; returns the number of commits.

        A failure does not affect other partitions.
        """
        progress = self._progress.get(lease.nonce)
        if progress is None:
            progress = self._progress[lease.nonce] = ArchiveProgress(self._clock.monotonic())
        problem: Exception | None = None
        count = 0
        try:
            count = await self._archive(lease, progress)
        except Exception as caught:  # noqa: BLE001 - a bug with one partition must not stop others
            progress.archived, progress.has_more = None, False
            problem = caught
        self._report_lag(lease, progress, problem)
        if not isinstance(problem, StoreError):  # after a StoreError, the archive is not available
            await self._run_duty(lease, progress, self._resend)
            await self._run_duty(lease, progress, self._forget)
        return count

    async def _run_duty(self, lease: Lease, progress: ArchiveProgress, duty: PartitionDuty) -> None:
        """Runs a duty for one partition and reports its failure separately from the archive's
        lag.
        """
        try:
            await duty(lease, progress)
        except FencedError:
            return  # another process owns the partition, so `leases` will soon omit it
        except Exception as problem:  # noqa: BLE001 - as in `_visit`
            call = duty.__name__.strip("_")
            if progress.is_report_due(call, self._clock.monotonic(), every_s=self._options.alarm_s):
                self._telemetry.event(
                    names.STORE_FAILED,
                    call=call,
                    partition=lease.partition,
                    error=_format_problem(problem),
                )

    async def _archive_rest(self, lease: Lease) -> bool:
        """Archives the remaining commits of a partition.

        Returns False if the archive can't be reached. The next owner archives any commits that
        remain.
        """
        progress = ArchiveProgress(self._clock.monotonic())
        try:
            await self._archive(lease, progress)
            while progress.has_more:
                await self._archive(lease, progress)
        except FencedError:
            return True  # the next owner of the partition archives the rest
        except (StoreError, BrokenInvariantError) as error:
            self._telemetry.event(names.STORE_FAILED, call="archive", error=str(error))
            return not isinstance(error, StoreError)
        return True

    async def _archive(self, lease: Lease, progress: ArchiveProgress) -> int:
        if progress.archived is None:
            archived = (await self._ledger.cursor(lease.partition)).sequence
            # After a rollback, the store may contain commits again that are already archived.
            await self._journal.trim(lease, upto=archived)
            progress.archived = archived
        read_at = self._clock.monotonic()
        after = progress.archived
        try:
            entries = await self._journal.read(lease, after=after, limit=progress.batch)
        except ArchiveGapError as gap:
            progress.archived = await self._find_archived(lease, gap)
            return await self._archive(lease, progress)
        batch = _take_transaction(entries)
        is_full = len(entries) == progress.batch
        if batch:
            progress.archived = await self._append_batch(lease, progress, batch, after)
            await self._journal.trim(lease, upto=progress.archived)
        count = progress.archived - after
        progress.has_more = is_full or count < len(entries)
        if not progress.has_more:
            progress.caught_up_at = read_at
        return count

    async def _find_archived(self, lease: Lease, gap: ArchiveGapError) -> int:
        """Returns the last archived sequence if it disproves the gap; otherwise raises `gap`.

        A former owner may have archived and deleted commits after this archiver read the sequence.
        Commits are deleted only after they are archived, so a gap is proven if the archive still
        lacks a commit after the journal was read.
        """
        archived = (await self._ledger.cursor(lease.partition)).sequence
        if archived < gap.first - 1:
            raise gap
        return archived

    async def _append_batch(
        self, lease: Lease, progress: ArchiveProgress, batch: Sequence[JournalEntry], after: int
    ) -> int:
        """Archives as many commits of the batch as possible; returns the last archived sequence.

        If the archive refuses a batch, this method halves the batch until it finds the refused
        commit. After a failed call, the next call has half as many commits.
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
            except Exception:  # noqa: BLE001 - a bug with one commit must not block the others
                refused = batch
            else:
                # The batch grows by a quarter instead of doubling, because a batch that is too
                # large wastes the time of a call.
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
        """Copies the blobs of the entries into the archive, before the events that refer to them.

        The archiver reports and skips a missing blob.
        """
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
        resend_s = self._options.resend_s
        progress.resend_at = now + resend_s / 2
        unapplied = await self._ledger.list_unapplied(
            lease.partition, idle_s=resend_s, limit=RESENT_COMMANDS_MAX
        )
        if len(unapplied) == RESENT_COMMANDS_MAX:
            progress.resend_at = now
        commands = [pending.command for pending in unapplied if pending.command is not None]
        for key in list_command_blobs(commands):
            with suppress(NotFoundError):  # the task that reads the blob reports that it is missing
                await self._hot_blobs.put(key, await self._cold_blobs.get(key))
        await self._journal.resend(lease, commands)
        for command in commands:
            self._telemetry.event(names.COMMAND_RESENT, command=type(command).__name__)
        for pending in unapplied:
            if pending.command is None:
                await self._report_unreadable(lease, pending)

    async def _report_unreadable(self, lease: Lease, pending: PendingCommand) -> None:
        """Reports a command that can't be read, and excludes it from later calls of
        `list_unapplied`.

        A command that a later version of Runnel wrote is not excluded, because that version may run
        again.
        """
        self._telemetry.event(
            names.MESSAGE_UNREADABLE,
            partition=lease.partition,
            command=pending.id,
            problem=pending.problem,
        )
        if not pending.is_newer:
            await self._ledger.mark_unreadable(pending)

    async def _forget(self, lease: Lease, progress: ArchiveProgress) -> None:
        """Deletes executions from the store `keep_s` after their end was archived.

        The owner must first have read all inbox entries that existed at that time.
        """
        now = self._clock.monotonic()
        keep_s = self._options.keep_s
        progress.note_archived(now, every_s=keep_s / 10)
        if progress.forget_target is None:
            upto = progress.archived_before(now - keep_s)
            if upto is None:
                return
            progress.forget_target = upto, await self._journal.read_inbox_end(lease.partition)
        upto, position = progress.forget_target
        if await self._journal.forget(lease, upto=upto, inbox_position=position) == 0:
            progress.forget_target = None

    def _report_lag(
        self, lease: Lease, progress: ArchiveProgress, problem: Exception | None
    ) -> None:
        """Reports every `alarm_s` that the archive is late, and once that it has caught up.

        FencedError is reported only after `alarm_s`: a fenced archiver that still owns its
        partition never catches up. An archiver whose partition has a later owner stops earlier.
        """
        now = self._clock.monotonic()
        lag_s = now - progress.caught_up_at
        alarm_s = self._options.alarm_s
        if not isinstance(problem, FencedError):
            progress.fenced_at = None
        elif progress.fenced_at is None:
            progress.fenced_at = now
        if progress.fenced_at is not None and now - progress.fenced_at <= alarm_s:
            return
        if lag_s <= alarm_s:
            if progress.reported_at is not None:
                self._telemetry.event(names.ARCHIVE_CAUGHT_UP, partition=lease.partition)
            progress.reported_at = None
        elif progress.reported_at is None or now - progress.reported_at >= alarm_s:
            progress.reported_at = now
            self._telemetry.event(
                _EVENT_NAMES.get(type(problem), names.ARCHIVE_LATE),
                partition=lease.partition,
                lag_s=lag_s,
                error="" if problem is None else _format_problem(problem),
            )


# The event names of failures that only an operator can end.
_EVENT_NAMES: Mapping[type, str] = {
    FencedError: names.ARCHIVE_FENCED,
    ArchiveGapError: names.ARCHIVE_GAP,
}


def _take_transaction(entries: Sequence[JournalEntry]) -> Sequence[JournalEntry]:
    """Returns the first entries that fit into one transaction; always at least one entry."""
    sizes = accumulate(entry.size_bytes for entry in entries)
    fitting = sum(1 for size in sizes if size <= TRANSACTION_BYTES_MAX)
    return entries[: max(1, fitting)]


def _format_problem(problem: Exception) -> str:
    """Returns the message of a store error, and the traceback of any other error, which is a
    bug.
    """
    if isinstance(problem, StoreError | BrokenInvariantError):
        return str(problem)
    return "".join(traceback.format_exception(problem))
