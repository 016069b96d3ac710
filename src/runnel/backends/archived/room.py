"""Whether there is room for new work: as much as the archive is behind, less is taken on."""

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

    async def check(self, partition: int) -> None:
        """Raises ArchiveBehindError; what it goes by may be a second old."""
        now = self._clock.monotonic()
        asked_at, length = self._found.get(partition, (float("-inf"), 0))
        if now - asked_at > LOOK_AGAIN_S:
            length = await self._journal.length(partition)
            self._found[partition] = (now, length)
        if length >= self._most:
            raise ArchiveBehindError(partition, length)
