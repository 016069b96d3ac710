"""Whether there is room for new work: as much as the archive is behind, less is taken on."""

import asyncio

from runnel.errors import ArchiveBehindError
from runnel.ports.clock import Clock
from runnel.ports.journal import Journal

# New executions are refused at this share of what a journal may hold: those that run go on.
SHARE = 0.8
LOOK_AGAIN_S = 1.0


class Room:
    def __init__(self, journal: Journal, clock: Clock, *, journal_entries_max: int) -> None:
        self._journal = journal
        self._clock = clock
        self._most = SHARE * journal_entries_max
        self._found: dict[int, tuple[float, int]] = {}
        self._turn = asyncio.Lock()

    async def check(self, partition: int) -> None:
        """Raises ArchiveBehindError; what it goes by may be a second old."""
        if self._is_outdated(partition):
            # One asks for all who come meanwhile: 2,000 submits at once asked 2,000 times.
            async with self._turn:
                if self._is_outdated(partition):
                    length = await self._journal.length(partition)
                    self._found[partition] = (self._clock.monotonic(), length)
        found = self._found[partition][1]
        if found >= self._most:
            raise ArchiveBehindError(partition, found)

    def _is_outdated(self, partition: int) -> bool:
        found = self._found.get(partition)
        return found is None or self._clock.monotonic() - found[0] > LOOK_AGAIN_S
