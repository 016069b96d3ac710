"""Requests of the last while, counted for all processes by the server and its clock."""

from runnel.backends.redis.keys import Keys
from runnel.backends.redis.lines import Lines

MICROSECONDS = 1_000_000


class RedisWindows:
    def __init__(self, lines: Lines, keys: Keys) -> None:
        self._lines = lines
        self._keys = keys

    async def admit(self, who: str, *, limit: int, window_s: float) -> float:
        args = [limit, round(window_s * MICROSECONDS)]
        wait = await self._lines.run("admit", [self._keys.window + who], args)
        return float(wait) / MICROSECONDS
