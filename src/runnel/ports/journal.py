"""What a store keeps of its commits until the archive has them.

Every commit of a partition is in its journal, by sequence, until it is trimmed: nothing is trimmed
or forgotten that was not archived before.
"""

from collections.abc import Sequence
from typing import Protocol

import msgspec

from runnel.core.commands import Command
from runnel.core.effects import DeadLetter
from runnel.ports.store import Header, History, Lease, Position


class JournalEntry(msgspec.Struct, frozen=True, kw_only=True):
    """What of one commit must last."""

    sequence: int
    histories: Sequence[History] = ()
    headers: Sequence[Header] = ()
    closed: Sequence[str] = ()
    dead_letters: Sequence[DeadLetter] = ()

    @property
    def size_bytes(self) -> int:
        """Of what may be large."""
        return sum(len(each.entry) for each in self.histories) + sum(
            len(bytes(each.config)) for each in self.dead_letters
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

    async def inbox_end(self, partition: int) -> Position:
        """The position of the last message that has come, read or not."""

    async def resend(self, lease: Lease, commands: Sequence[Command]) -> None:
        """Puts them into the partition's inbox again; raises FencedError for a former owner."""

    async def forget(self, lease: Lease, *, upto: int, read: Position) -> int | None:
        """Removes executions that have been final, with all their children, since `upto`.

        A bounded number, which is returned. None, and nothing is removed, before the owner has
        consumed the inbox up to `read`: a creation that comes twice must find its execution.
        """
