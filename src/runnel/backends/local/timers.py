"""The timers of one partition: a heap with lazy deletion, one timer per key."""

import heapq
from collections.abc import Iterable, Sequence
from itertools import count

from runnel.core.effects import TimerKey
from runnel.ports.store import TimerSet

# Below this, stale entries are not worth a rebuild.
STALE_MIN = 64


class LocalTimers:
    def __init__(self, timers: Iterable[TimerSet] = ()) -> None:
        self._order = count()
        self._current: dict[TimerKey, int] = {}
        self._heap: list[tuple[float, int, TimerSet]] = []
        for timer in timers:
            self.set(timer)

    def __len__(self) -> int:
        """Entries in memory, with those that wait to be forgotten."""
        return len(self._heap)

    def all(self) -> list[TimerSet]:
        """Those that are set, in no order."""
        return [item[2] for item in self._heap if not self._is_stale(item)]

    def set(self, timer: TimerSet) -> None:
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

    def due(self, now: float, *, limit: int) -> Sequence[TimerSet]:
        """Earliest first; they stay until they are cleared."""
        found: list[tuple[float, int, TimerSet]] = []
        while len(found) < limit:
            earliest = self.next_due()
            if earliest is None or earliest > now:
                break
            found.append(heapq.heappop(self._heap))
        for item in found:
            heapq.heappush(self._heap, item)
        return [timer for _, _, timer in found]

    def _skip_stale(self) -> None:
        heap = self._heap
        while heap and self._is_stale(heap[0]):
            heapq.heappop(heap)

    def _is_stale(self, item: tuple[float, int, TimerSet]) -> bool:
        return self._current.get(item[2].key) != item[1]

    def _compact(self) -> None:
        if len(self._heap) > STALE_MIN + 2 * len(self._current):
            self._heap = [item for item in self._heap if not self._is_stale(item)]
            heapq.heapify(self._heap)
