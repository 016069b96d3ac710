"""The time on the server's clock, without asking for it each time."""

from runnel.backends.redis.lines import Lines
from runnel.ports.clock import Clock

ASK_AGAIN_S = 60.0


class ServerTime:
    """Never ahead of the server's clock, and behind by at most the time of one call."""

    def __init__(self, lines: Lines, clock: Clock) -> None:
        self._lines = lines
        self._clock = clock
        self._ahead_s = 0.0
        self._asked_at: float | None = None

    async def now(self) -> float:
        at = self._clock.monotonic()
        if self._asked_at is None or at - self._asked_at > ASK_AGAIN_S:
            seconds, microseconds = await self._lines.call("TIME")
            at = self._clock.monotonic()
            self._ahead_s = int(seconds) + int(microseconds) / 1e6 - at
            self._asked_at = at
        return at + self._ahead_s

    def forget(self) -> None:
        """It may be another server's by now."""
        self._asked_at = None
