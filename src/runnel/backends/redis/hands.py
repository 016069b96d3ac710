"""Tasks that a commit hands to a worker which waits for them: nobody has to ask first."""

import asyncio
from collections import defaultdict, deque
from collections.abc import Iterable

from runnel.backends.redis.keys import Keys
from runnel.backends.redis.line import Line
from runnel.backends.redis.lines import Lines
from runnel.backends.redis.values import decode_tasks
from runnel.core.effects import Task
from runnel.ports.clock import Clock


class Hands:
    """One connection hears for all workers of this process.

    What is handed to a worker is its own from that moment, as if it had claimed it, whether it
    gets here or not.
    """

    def __init__(self, lines: Lines, keys: Keys, clock: Clock) -> None:
        self._lines = lines
        self._prefix = keys.hand
        self._clock = clock
        self._line: Line | None = None
        self._opening = asyncio.Lock()
        self._heard: set[str] = set()
        self._handed: dict[str, deque[Task]] = defaultdict(deque)
        self._waiting: dict[str, asyncio.Future[None]] = {}

    async def listen(self, worker: str) -> None:
        """From now on this process hears what is handed to the worker; raises StoreError."""
        if self._hears(worker):
            return
        async with self._opening:
            if self._hears(worker):
                return
            before = self._line
            line = await self._lines.listen(self._prefix + worker, self._told, line=before)
            if line is not before:
                self._heard.clear()
                self._line = line
                line.lost.add_done_callback(lambda _: self._wake(list(self._waiting)))
            self._heard.add(worker)

    def take(self, worker: str, limit: int) -> list[Task]:
        """What was handed to it and is not taken yet."""
        handed = self._handed.get(worker)
        if not handed:
            return []
        return [handed.popleft() for _ in range(min(limit, len(handed)))]

    async def wait(self, worker: str, *, wait_s: float) -> None:
        """Returns when something was handed to it, or might have been, and when the time is up."""
        if wait_s <= 0 or self._handed.get(worker) or not self._hears(worker):
            return
        news = self._waiting[worker] = asyncio.get_running_loop().create_future()
        try:
            async with self._clock.timeout(min(wait_s, self._lines.block_s)):
                await news
        except TimeoutError:
            self._heard.discard(worker)  # to subscribe again is to ask whether anybody is there
        finally:
            self._waiting.pop(worker, None)

    def forget(self, worker: str) -> None:
        self._handed.pop(worker, None)

    def _hears(self, worker: str) -> bool:
        return self._line is not None and self._line.is_open and worker in self._heard

    def _told(self, channel: bytes, words: bytes) -> None:
        worker = channel.decode().removeprefix(self._prefix)
        self._handed[worker].extend(decode_tasks(words))
        self._wake([worker])

    def _wake(self, workers: Iterable[str]) -> None:
        for worker in workers:
            news = self._waiting.get(worker)
            if news is not None and not news.done():
                news.set_result(None)
