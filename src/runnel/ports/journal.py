"""The journal of a store's commits, and the ledger that archives them.

A partition's journal holds every commit, by sequence, until the archiver trims it. The archiver
trims and forgets only what the archive already has.
"""

from collections.abc import Sequence
from typing import Protocol

import msgspec

from runnel.core.commands import Command
from runnel.core.effects import DeadLetter
from runnel.ports.store import ExecutionHeader, HistoryRecord, InboxPosition, Lease


class JournalEntry(msgspec.Struct, frozen=True, kw_only=True):
    """The part of one commit that the archive keeps."""

    sequence: int
    histories: Sequence[HistoryRecord] = ()
    headers: Sequence[ExecutionHeader] = ()
    closed: Sequence[str] = ()
    dead_letters: Sequence[DeadLetter] = ()

    @property
    def size_bytes(self) -> int:
        """Returns the size of the histories and of the configs of dead letters."""
        return sum(len(history.entry) for history in self.histories) + sum(
            len(bytes(letter.config)) for letter in self.dead_letters
        )


class Journal(Protocol):
    """The archiver's side of a store: it reads commits here and trims those that are archived."""

    async def read(self, lease: Lease, *, after: int, limit: int) -> Sequence[JournalEntry]:
        """Returns the commits after sequence `after`, in order and without a gap.

        Raises BrokenInvariantError if the next commit is missing. Raises FencedError if the store
        has restarted since the lease was acquired.
        """

    async def trim(self, lease: Lease, *, upto: int) -> None:
        """Removes the commits up to sequence `upto`: the archive has all of them."""

    async def length(self, partition: int) -> int:
        """Returns how many commits wait for the archive."""

    async def read_inbox_end(self, partition: int) -> InboxPosition:
        """Returns the position of the last message that arrived, read or not."""

    async def resend(self, lease: Lease, commands: Sequence[Command]) -> None:
        """Puts the commands into the partition's inbox again.

        Raises FencedError for a former owner.
        """

    async def forget(self, lease: Lease, *, upto: int, inbox_position: InboxPosition) -> int | None:
        """Removes executions that, with all their children, have been final since sequence `upto`.

        Returns how many it removed; the number per call is bounded. Removes nothing and returns
        None until the owner has consumed the inbox up to `inbox_position`: a creation that is
        delivered twice must find its execution.
        """


# -- the durable side, which archives each commit once ------------------------------------------


class ArchiveCursor(msgspec.Struct, frozen=True):
    """How far a partition is archived, and the epoch of the archiver that last moved the cursor."""

    sequence: int
    epoch: int


class QuarantinedAggregate(msgspec.Struct, frozen=True):
    """An execution or a concurrency key with data that the archive refused to store."""

    aggregate_id: str
    reason: str


class PendingCommand(msgspec.Struct, frozen=True):
    """A command that a caller sent. `command` is None if it can't be read; `problem` says why."""

    id: int
    command: Command | None
    problem: str = ""
    is_newer: bool = False
    """A later version of Runnel wrote it. That version can read it."""


class Ledger(Protocol):
    """The durable archive as the archiver writes it."""

    async def cursor(self, partition: int) -> ArchiveCursor: ...

    async def append(
        self, partition: int, entries: Sequence[JournalEntry], *, after: int, epoch: int
    ) -> None:
        """Archives all entries and moves the cursor from `after`, in one step.

        Raises FencedError if the cursor is not at `after`, or if a higher epoch has moved it.
        Raises ArchiveRefusedError if an entry can't be stored.
        """

    async def append_with_quarantine(
        self, partition: int, entry: JournalEntry, *, after: int, epoch: int
    ) -> Sequence[QuarantinedAggregate]:
        """Archives a commit that `append` refused; quarantines what can't be stored.

        Quarantined data is kept unchanged, and so is all later data of the same aggregate. Returns
        the aggregates that this commit put into quarantine.
        """

    async def list_unapplied(
        self, partition: int, *, idle_s: float, limit: int, after: int = 0
    ) -> Sequence[PendingCommand]:
        """Returns commands of callers, oldest first, whose effect no archived event shows.

        A command is returned again after `idle_s`, then after twice that, and so on. With `idle_s`
        0, all commands with an id above `after` are returned.
        """

    async def mark_unreadable(self, pending: PendingCommand) -> None:
        """Keeps the command and excludes it from `list_unapplied`."""
