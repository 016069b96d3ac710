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


class SetAside(msgspec.Struct, frozen=True):
    """An execution, or a concurrency key, of which the archive would not take something."""

    aggregate_id: str
    reason: str


class Asked(msgspec.Struct, frozen=True):
    """What a caller asked for; `command` is None when it can't be read, `problem` says why."""

    id: int
    command: Command | None
    problem: str = ""
    is_newer: bool = False
    """A later version has written it, and will read it."""


class Ledger(Protocol):
    async def cursor(self, partition: int) -> Cursor: ...

    async def append(
        self, partition: int, entries: Sequence[JournalEntry], *, after: int, epoch: int
    ) -> None:
        """Archives all of them and moves the cursor from `after`, as one step.

        Raises FencedError when the cursor is elsewhere, or was moved at a higher epoch; and
        ArchiveRefusedError when one of them can't be stored.
        """

    async def append_piecemeal(
        self, partition: int, entry: JournalEntry, *, after: int, epoch: int
    ) -> Sequence[SetAside]:
        """As `append`, for a commit that was refused: what can't be stored is set aside.

        It is kept as it is, and so is all that comes later of the same aggregate. Returns those
        of which it was the first.
        """

    async def unapplied(
        self, partition: int, *, idle_s: float, limit: int, after: int = 0
    ) -> Sequence[Asked]:
        """What callers asked for, oldest first, that no archived event shows the effect of.

        Each is told again after `idle_s`, then twice that, and so on; with 0, all are told, those
        with an id of up to `after` left out.
        """

    async def mark_unreadable(self, asked: Asked) -> None:
        """It is kept, and not told again."""
