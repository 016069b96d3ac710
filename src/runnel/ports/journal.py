"""The journal of a store's commits, and the ledger that archives them.

Every commit of a partition is in its journal, by sequence, until it is trimmed: nothing is trimmed
or forgotten that was not archived before.
"""

from collections.abc import Sequence
from typing import Protocol

import msgspec

from runnel.core.commands import Command
from runnel.core.effects import DeadLetter
from runnel.ports.store import ExecutionHeader, HistoryRecord, InboxPosition, Lease


class JournalEntry(msgspec.Struct, frozen=True, kw_only=True):
    """What of one commit must last."""

    sequence: int
    histories: Sequence[HistoryRecord] = ()
    headers: Sequence[ExecutionHeader] = ()
    closed: Sequence[str] = ()
    dead_letters: Sequence[DeadLetter] = ()

    @property
    def size_bytes(self) -> int:
        """Of what may be large."""
        return sum(len(history.entry) for history in self.histories) + sum(
            len(bytes(letter.config)) for letter in self.dead_letters
        )


class Journal(Protocol):
    async def read(self, lease: Lease, *, after: int, limit: int) -> Sequence[JournalEntry]:
        """The commits behind `after`, in order and without a gap.

        Raises BrokenInvariantError when the next one is missing, FencedError when the store has
        restarted since the lease was acquired.
        """

    async def trim(self, lease: Lease, *, upto: int) -> None:
        """The archive has all commits up to this one."""

    async def length(self, partition: int) -> int:
        """How many commits wait for the archive."""

    async def read_inbox_end(self, partition: int) -> InboxPosition:
        """The position of the last message that has come, read or not."""

    async def resend(self, lease: Lease, commands: Sequence[Command]) -> None:
        """Puts them into the partition's inbox again; raises FencedError for a former owner."""

    async def forget(self, lease: Lease, *, upto: int, inbox_position: InboxPosition) -> int | None:
        """Removes executions that have been final, with all their children, since `upto`.

        A bounded number, which is returned. None, and nothing is removed, before the owner has
        consumed the inbox up to `read`: a creation that comes twice must find its execution.
        """


# -- the lasting side, which archives each commit once -----------------------------------------


class ArchiveCursor(msgspec.Struct, frozen=True):
    """How far a partition is archived, and the epoch of the last who did it."""

    sequence: int
    epoch: int


class QuarantinedAggregate(msgspec.Struct, frozen=True):
    """An execution, or a concurrency key, of which the archive would not take something."""

    aggregate_id: str
    reason: str


class PendingCommand(msgspec.Struct, frozen=True):
    """What a caller asked for; `command` is None when it can't be read, `problem` says why."""

    id: int
    command: Command | None
    problem: str = ""
    is_newer: bool = False
    """A later version has written it, and will read it."""


class Ledger(Protocol):
    async def cursor(self, partition: int) -> ArchiveCursor: ...

    async def append(
        self, partition: int, entries: Sequence[JournalEntry], *, after: int, epoch: int
    ) -> None:
        """Archives all of them and moves the cursor from `after`, as one step.

        Raises FencedError when the cursor is elsewhere, or was moved at a higher epoch; and
        ArchiveRefusedError when one of them can't be stored.
        """

    async def append_with_quarantine(
        self, partition: int, entry: JournalEntry, *, after: int, epoch: int
    ) -> Sequence[QuarantinedAggregate]:
        """As `append`, for a commit that was refused: what can't be stored is set aside.

        It is kept as it is, and so is all that comes later of the same aggregate. Returns those
        of which it was the first.
        """

    async def list_unapplied(
        self, partition: int, *, idle_s: float, limit: int, after: int = 0
    ) -> Sequence[PendingCommand]:
        """What callers asked for, oldest first, that no archived event shows the effect of.

        Each is told again after `idle_s`, then twice that, and so on; with 0, all are told, those
        with an id of up to `after` left out.
        """

    async def mark_unreadable(self, pending: PendingCommand) -> None:
        """It is kept, and not told again."""
