"""Brings every commit of the partitions that are owned here into the archive."""

import asyncio
import traceback
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress

from runnel.core.codec import Entry, decode_entry
from runnel.core.commands import blob_of
from runnel.core.values import Value
from runnel.errors import (
    BrokenInvariantError,
    FencedError,
    NotFoundError,
    StoreError,
    UnreadableFormatError,
)
from runnel.ports import telemetry as names
from runnel.ports.blobs import BlobStore
from runnel.ports.clock import Clock
from runnel.ports.journal import Journal, JournalEntry
from runnel.ports.ledger import Ledger
from runnel.ports.store import Lease, Position
from runnel.ports.telemetry import Telemetry

COMMITS_MAX = 100
RESENT_MAX = 500
# How an entry that refers to a blob looks from outside: few do, and only those are decoded.
BLOB_MARK = b'"blob":'


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
        self._progress: dict[str, _Progress] = {}
        self._recent: Sequence[Lease] = ()
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
        for lease in self._recent:
            if not await self._archive_rest(lease):
                break

    async def tick(self) -> int:
        """One batch of each partition; returns how many commits it archived."""
        leases = self._recent = self._leases()
        current = {lease.nonce for lease in leases}
        for nonce in self._progress.keys() - current:
            del self._progress[nonce]
        counts = [await self._visit(lease) for lease in leases]
        self._has_more = COMMITS_MAX in counts
        return sum(counts)

    async def _visit(self, lease: Lease) -> int:
        """What goes wrong with one partition is no reason to leave the others."""
        progress = self._progress.get(lease.nonce)
        if progress is None:
            progress = self._progress[lease.nonce] = _Progress(self._clock.monotonic())
        error = ""
        count = 0
        try:
            count = await self._archive(lease, progress)
            await self._resend(lease, progress)
            await self._forget(lease, progress)
        except FencedError:
            # Somebody else's partition by now: its lease will leave our list.
            progress.archived = None
        except (StoreError, BrokenInvariantError) as problem:
            progress.archived = None
            error = str(problem)
        except Exception as problem:  # noqa: BLE001 - a bug: the others must not wait for it
            progress.archived = None
            error = "".join(traceback.format_exception(problem))
        self._tell(lease, progress, error)
        return count

    async def _archive_rest(self, lease: Lease) -> bool:
        """False when the archive can't be reached: the next owners do it, nobody waits here."""
        progress = _Progress(self._clock.monotonic())
        try:
            while await self._archive(lease, progress) == COMMITS_MAX:
                pass
        except FencedError:
            return True  # its next owner does
        except (StoreError, BrokenInvariantError) as error:
            self._telemetry.event(names.STORE_FAILED, call="archive", error=str(error))
            return not isinstance(error, StoreError)
        return True

    async def _archive(self, lease: Lease, progress: "_Progress") -> int:
        if progress.archived is None:
            archived = (await self._ledger.cursor(lease.partition)).sequence
            # What was archived before may have come back with a store that was set back.
            await self._journal.trim(lease, upto=archived)
            progress.archived = archived
        looked_at = self._clock.monotonic()
        after = progress.archived
        entries = await self._journal.read(lease, after=after, limit=COMMITS_MAX)
        if entries:
            await self._copy_blobs(entries)
            await self._ledger.append(lease.partition, entries, after=after, epoch=lease.epoch)
            progress.archived = entries[-1].sequence
            await self._journal.trim(lease, upto=progress.archived)
        if len(entries) < COMMITS_MAX:
            progress.caught_up_at = looked_at
        return len(entries)

    async def _copy_blobs(self, entries: Sequence[JournalEntry]) -> None:
        """Before the events that refer to them; one that is gone is missed by whoever reads it."""
        for key in dict.fromkeys(_blobs_in(entries)):
            try:
                data = await self._hot_blobs.get(key)
            except NotFoundError as error:
                self._telemetry.event(names.STORE_FAILED, call="archive", error=str(error))
            else:
                await self._cold_blobs.put(key, data)

    async def _resend(self, lease: Lease, progress: "_Progress") -> None:
        now = self._clock.monotonic()
        if now < progress.resend_at:
            return
        progress.resend_at = now + self._resend_s / 2
        commands = await self._ledger.unapplied(
            lease.partition, idle_s=self._resend_s, limit=RESENT_MAX
        )
        for key in filter(None, map(blob_of, commands)):
            with suppress(NotFoundError):  # whoever reads it says so
                await self._hot_blobs.put(key, await self._cold_blobs.get(key))
        await self._journal.resend(lease, commands)
        for command in commands:
            self._telemetry.event(names.COMMAND_RESENT, command=type(command).__name__)

    async def _forget(self, lease: Lease, progress: "_Progress") -> None:
        """What was archived long enough ago, once all that had come by then was read."""
        now = self._clock.monotonic()
        progress.note_archived(now, every_s=self._keep_s / 10)
        if progress.read is None:
            upto = progress.archived_before(now - self._keep_s)
            if upto is None:
                return
            progress.read = upto, await self._journal.inbox_end(lease.partition)
        upto, position = progress.read
        if await self._journal.forget(lease, upto=upto, read=position) == 0:
            progress.read = None

    def _tell(self, lease: Lease, progress: "_Progress", error: str) -> None:
        now = self._clock.monotonic()
        lag_s = now - progress.caught_up_at
        if lag_s <= self._alarm_s:
            if progress.told_at is not None:
                self._telemetry.event(names.ARCHIVE_CAUGHT_UP, partition=lease.partition)
            progress.told_at = None
        elif progress.told_at is None or now - progress.told_at >= self._alarm_s:
            progress.told_at = now
            self._telemetry.event(
                names.ARCHIVE_LATE, partition=lease.partition, lag_s=lag_s, error=error
            )


class _Progress:
    """How far one lease has got; `archived` None is asked of the archive."""

    __slots__ = ("archived", "caught_up_at", "marks", "read", "resend_at", "told_at")

    def __init__(self, now: float) -> None:
        self.archived: int | None = None
        self.caught_up_at = now
        self.told_at: float | None = None
        self.resend_at = now
        self.marks: deque[tuple[float, int]] = deque()
        self.read: tuple[int, Position] | None = None

    def note_archived(self, now: float, *, every_s: float) -> None:
        is_due = not self.marks or now - self.marks[-1][0] >= every_s
        if self.archived is not None and is_due:
            self.marks.append((now, self.archived))

    def archived_before(self, then: float) -> int | None:
        """How far it was then; None when that is not known any more, or was told before."""
        found = None
        while self.marks and self.marks[0][0] <= then:
            found = self.marks.popleft()[1]
        return found


def _blobs_in(entries: Sequence[JournalEntry]) -> Iterator[str]:
    for entry in entries:
        for history in entry.histories:
            if BLOB_MARK in history.entry:
                # One that a later version wrote is archived without: it knows its own.
                with suppress(UnreadableFormatError):
                    yield from _blobs_of(decode_entry(history.entry))


def _blobs_of(entry: Entry) -> Iterator[str]:
    for event in entry.events:
        for name in event.__struct_fields__:
            value = getattr(event, name)
            if isinstance(value, Value) and value.blob is not None:
                yield value.blob
