"""The lasting side of a store that forgets: where its journal is archived, each commit once."""

from collections.abc import Sequence
from typing import Protocol

import msgspec

from runnel.core.commands import Command
from runnel.ports.journal import JournalEntry


class Cursor(msgspec.Struct, frozen=True):
    """How far a partition is archived, and the epoch of the last who did it."""

    sequence: int
    epoch: int


class Ledger(Protocol):
    async def cursor(self, partition: int) -> Cursor: ...

    async def append(
        self, partition: int, entries: Sequence[JournalEntry], *, after: int, epoch: int
    ) -> None:
        """Archives all of them and moves the cursor from `after`, as one step.

        Raises FencedError when the cursor is elsewhere, or was moved at a higher epoch.
        """

    async def unapplied(self, partition: int, *, idle_s: float, limit: int) -> Sequence[Command]:
        """What callers asked for, oldest first, that no archived event shows the effect of.

        Each is told again after `idle_s`, then twice that, and so on; with 0, all are told.
        """
