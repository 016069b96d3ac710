"""How many requests somebody has made lately, counted over all processes that share a store."""

from typing import Protocol


class RequestWindows(Protocol):
    async def admit(self, who: str, *, limit: int, window_s: float) -> float:
        """0 when this request is one of at most `limit` in any window of this length, and counted.

        Otherwise the seconds until one would be admitted; a request that was not is not counted.
        """
