"""The journal of a store's commits, and the ledger that archives them.

A partition's journal holds every commit, by sequence, until the archiver trims it. The archiver
deletes only commits and executions that the archive already has.
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
    """The archiver's interface to a store: reads commits and deletes archived ones."""

    async def read(self, lease: Lease, *, after: int, limit: int) -> Sequence[JournalEntry]:
        """Returns the commits after sequence `after`, in order and without a gap.

        Raises ArchiveGapError if the next commit is missing. Raises FencedError if the partition
        has a later owner, or if the store has restarted since the lease was acquired.
        """

    async def trim(self, lease: Lease, *, upto: int) -> None:
        """Deletes the commits up to sequence `upto`.

        The caller has archived all of these commits.
        """

    async def length(self, partition: int) -> int:
        """Returns the number of commits that are not archived yet."""

    async def read_inbox_end(self, partition: int) -> InboxPosition:
        """Returns the position of the last message in the inbox, read or unread."""

    async def resend(self, lease: Lease, commands: Sequence[Command]) -> None:
        """Puts commands of callers into the partition's inbox again, because the store may have
        lost them.

        Raises FencedError if `lease` is not the current lease.
        """

    async def forget(self, lease: Lease, *, upto: int, inbox_position: InboxPosition) -> int | None:
        """Deletes executions that were final, with all their children, at sequence `upto` or
        earlier.

        Returns how many executions it deleted; the number per call is bounded. Deletes nothing and
        returns None until the owner has consumed the inbox up to `inbox_position`. Until then, the
        inbox may hold a second copy of the command that created an execution.
        """


# -- the ledger, which archives each commit once ------------------------------------------------


class ArchiveCursor(msgspec.Struct, frozen=True):
    """The last archived commit of a partition, and the epoch of the archiver that archived it."""

    sequence: int
    epoch: int


class QuarantinedAggregate(msgspec.Struct, frozen=True):
    """An execution or a concurrency key with data that the archive refused to store."""

    aggregate_id: str
    reason: str


class PendingCommand(msgspec.Struct, frozen=True):
    """A command that a caller sent.

    If the command can't be read, `command` is None and `problem` gives the reason.
    """

    id: int
    command: Command | None
    problem: str = ""
    is_newer: bool = False
    """Whether a later version of Runnel wrote the command. That version can read the command."""


class Ledger(Protocol):
    """The archiver's interface to the archive: writes commits and reads the commands of callers."""

    async def cursor(self, partition: int) -> ArchiveCursor: ...

    async def append(
        self, partition: int, entries: Sequence[JournalEntry], *, after: int, epoch: int
    ) -> None:
        """Archives all entries and moves the cursor from `after` to the last entry, in one
        transaction.

        Raises FencedError if the cursor is not at `after`, or if an archiver with a higher epoch
        has moved it. Raises ArchiveRefusedError if an entry can't be stored.
        """

    async def append_with_quarantine(
        self, partition: int, entry: JournalEntry, *, after: int, epoch: int
    ) -> Sequence[QuarantinedAggregate]:
        """Archives a commit that `append` refused, and quarantines the data that can't be stored.

        The ledger keeps quarantined data unchanged, together with all later data of the same
        aggregate. Returns the aggregates that this commit put into quarantine.
        """

    async def list_unapplied(
        self, partition: int, *, idle_s: float, limit: int, after: int = 0
    ) -> Sequence[PendingCommand]:
        """Returns the commands of callers that no archived event mentions, oldest first.

        The same command is returned again after `idle_s`, then after twice that time, and so on.
        With `idle_s` 0, all commands with an id above `after` are returned.
        """

    async def mark_unreadable(self, pending: PendingCommand) -> None:
        """Keeps the command and excludes it from `list_unapplied`."""
