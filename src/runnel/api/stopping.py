"""The end of a process, for all who wait for something else on behalf of a client."""

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager


class Stopping(asyncio.Event):
    """Set when the process ends.

    Whoever is `waking` is called then: to wait for two things at once takes two tasks, which for
    100 streams that are told something 4 times a second was a tenth of a processor.
    """

    def __init__(self) -> None:
        super().__init__()
        self._calls: list[Callable[[], None]] = []

    @asynccontextmanager
    async def waking(self, call: Callable[[], None]) -> AsyncIterator[None]:
        """Calls it when the event is set, within the block; look at the event before each wait."""
        self._calls.append(call)
        try:
            yield
        finally:
            self._calls.remove(call)

    def set(self) -> None:
        super().set()
        for call in tuple(self._calls):
            call()
