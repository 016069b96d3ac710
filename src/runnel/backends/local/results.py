"""Results that tasks may share, in the memory of one process."""

from collections import OrderedDict

from runnel.ports.clock import Clock

# The oldest leave first: what is forgotten is made again.
BYTES_MAX = 64 * 1024 * 1024


class LocalResults:
    def __init__(self, clock: Clock, *, bytes_max: int = BYTES_MAX) -> None:
        self._clock = clock
        self._bytes_max = bytes_max
        self._size = 0
        self._kept: OrderedDict[str, tuple[float, bytes]] = OrderedDict()

    async def recall(self, key: str) -> bytes | None:
        ends_at, data = self._kept.get(key, (0.0, b""))
        return data if ends_at > self._clock.monotonic() else None

    async def keep(self, key: str, data: bytes, *, ttl_s: float) -> None:
        self._size -= len(self._kept.pop(key, (0.0, b""))[1])
        self._kept[key] = self._clock.monotonic() + ttl_s, data
        self._size += len(data)
        while self._size > self._bytes_max:
            self._size -= len(self._kept.popitem(last=False)[1][1])
