"""Requests of the last while, counted in the memory of one process."""

from collections import OrderedDict, deque

from runnel.ports.clock import Clock

# Whoever has not asked for longest is forgotten, should that many ask.
CALLERS_MAX = 10_000


class LocalWindows:
    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._asked: OrderedDict[str, deque[float]] = OrderedDict()

    async def admit(self, who: str, *, limit: int, window_s: float) -> float:
        now = self._clock.monotonic()
        asked = self._asked.setdefault(who, deque())
        self._asked.move_to_end(who)
        if len(self._asked) > CALLERS_MAX:
            self._asked.popitem(last=False)
        while asked and asked[0] <= now - window_s:
            asked.popleft()
        if len(asked) >= limit:
            return asked[len(asked) - limit] + window_s - now
        asked.append(now)
        return 0.0
