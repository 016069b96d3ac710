"""The inbox and the timers of one partition, in memory.

The entries of an inbox are ordered. The owner of a lease reads each entry once. The inbox keeps an
entry until a commit consumes it.
"""

import asyncio
import heapq
from collections import deque
from collections.abc import Iterable, Sequence
from itertools import count, islice

from runnel.core.codec import decode_message
from runnel.core.commands import TASK_ENDINGS, Command
from runnel.core.effects import TimerKey
from runnel.core.ids import TaskToken
from runnel.errors import BrokenInvariantError, UnreadableFormatError
from runnel.ports.store import InboxEntry, InboxPosition, TimerRecord

NO_ROW = 0
QUIET_TURNS = 3


class LocalInbox:
    """The inbox of one partition.

    `row` is the number of the database row that stores an entry, or NO_ROW for an entry that is
    only in memory. Rows must be added in ascending order, because a commit that consumes an entry
    consumes every row up to the row of that entry.
    """

    def __init__(self) -> None:
        self.arrived = asyncio.Event()
        self.last_row = NO_ROW
        self._entries: deque[tuple[InboxEntry, int]] = deque()
        self._first = 0
        self._unread = 0

    @property
    def has_unread(self) -> bool:
        return self._first + len(self._entries) > self._unread

    def put(self, command: Command, row: int = NO_ROW) -> None:
        self._append(InboxEntry(position=self._next_position(), command=command), row)

    def put_raw(self, body: bytes, row: int = NO_ROW) -> None:
        """Adds a message in its stored form.

        An unreadable message becomes an entry without a command.
        """
        position = self._next_position()
        try:
            entry = InboxEntry(position=position, command=decode_message(body))
        except UnreadableFormatError as error:
            entry = InboxEntry(position=position, command=None, body=body, problem=str(error))
        self._append(entry, row)

    def put_rows(self, rows: Iterable[tuple[int, bytes | Command]]) -> None:
        """Adds those rows that are after `last_row`; the inbox already has the earlier rows."""
        for row, message in rows:
            if row <= self.last_row:
                continue
            if isinstance(message, bytes):
                self.put_raw(message, row)
            else:
                self.put(message, row)

    def take(self, limit: int) -> Sequence[InboxEntry]:
        start = self._unread - self._first
        taken = [entry for entry, _ in islice(self._entries, start, start + limit)]
        self._unread += len(taken)
        if not taken:
            self.arrived.clear()
        return taken

    async def take_batch(self, limit: int) -> Sequence[InboxEntry]:
        """Takes entries like `take`, but first lets other tasks of the event loop add their
        reports.

        Without this pause a batch often holds only the first report. On SQLite with 4 slots, the
        pause reduced 2,000 diamonds and 30 chains from 1,964 batches to 747. The rate rose from
        1,300-1,400 to 1,600-2,200 diamonds/s.
        """
        quiet = 0
        while quiet < QUIET_TURNS and self._first + len(self._entries) - self._unread < limit:
            before = len(self._entries)
            await asyncio.sleep(0)
            quiet = 0 if len(self._entries) > before else quiet + 1
        return self.take(limit)

    def rewind(self) -> None:
        """Marks every unconsumed entry as unread, so that the owner of a new lease reads it."""
        self._unread = self._first
        self.arrived.set()

    def check_read(self, position: InboxPosition | None) -> None:
        """Raises BrokenInvariantError if the entry at `position` was never read."""
        if position is not None and int(position) >= self._unread:
            raise BrokenInvariantError(f"inbox position {position} was never read")

    def find_last_row(self, position: InboxPosition | None) -> int:
        """Returns the last database row of the entries up to `position` inclusive, or NO_ROW."""
        if position is None:
            return NO_ROW
        upto = islice(self._entries, max(0, int(position) + 1 - self._first))
        return max((row for _, row in upto), default=NO_ROW)

    def consume(self, position: InboxPosition | None) -> None:
        if position is None:
            return
        for _ in range(int(position) + 1 - self._first):
            self._entries.popleft()
            self._first += 1

    def list_unconsumed(self) -> list[Command]:
        return [entry.command for entry, _ in self._entries if entry.command is not None]

    def list_reported_tokens(self) -> set[TaskToken]:
        """Returns the task tokens of the reports that no commit has consumed."""
        return {
            entry.command.token
            for entry, _ in self._entries
            if isinstance(entry.command, TASK_ENDINGS)
        }

    def _next_position(self) -> InboxPosition:
        return InboxPosition(str(self._first + len(self._entries)))

    def _append(self, entry: InboxEntry, row: int) -> None:
        self._entries.append((entry, row))
        self.last_row = max(self.last_row, row)
        self.arrived.set()


# -- timers: a heap with lazy deletion, one timer per key --------------------------------------

# The heap is rebuilt only if it has at least this number of stale entries.
STALE_MIN = 64


class LocalTimers:
    def __init__(self, timers: Iterable[TimerRecord] = ()) -> None:
        self._order = count()
        self._current: dict[TimerKey, int] = {}
        self._heap: list[tuple[float, int, TimerRecord]] = []
        for timer in timers:
            self.set(timer)

    def __len__(self) -> int:
        """Returns the number of heap entries, including the entries of cleared timers."""
        return len(self._heap)

    def all(self) -> list[TimerRecord]:
        """Returns the timers that are set, in no particular order."""
        return [item[2] for item in self._heap if not self._is_stale(item)]

    def set(self, timer: TimerRecord) -> None:
        number = next(self._order)
        self._current[timer.key] = number
        heapq.heappush(self._heap, (timer.due, number, timer))
        self._compact()

    def clear(self, key: TimerKey) -> None:
        self._current.pop(key, None)

    def __contains__(self, key: TimerKey) -> bool:
        return key in self._current

    def next_due(self) -> float | None:
        self._skip_stale()
        return self._heap[0][0] if self._heap else None

    def due(self, now: float, *, limit: int) -> Sequence[TimerRecord]:
        """Returns the due timers, earliest first.

        A returned timer stays set until it is cleared.
        """
        entries: list[tuple[float, int, TimerRecord]] = []
        while len(entries) < limit:
            earliest = self.next_due()
            if earliest is None or earliest > now:
                break
            entries.append(heapq.heappop(self._heap))
        for item in entries:
            heapq.heappush(self._heap, item)
        return [timer for _, _, timer in entries]

    def _skip_stale(self) -> None:
        heap = self._heap
        while heap and self._is_stale(heap[0]):
            heapq.heappop(heap)

    def _is_stale(self, item: tuple[float, int, TimerRecord]) -> bool:
        return self._current.get(item[2].key) != item[1]

    def _compact(self) -> None:
        if len(self._heap) > STALE_MIN + 2 * len(self._current):
            self._heap = [item for item in self._heap if not self._is_stale(item)]
            heapq.heapify(self._heap)
