"""Tasks that a commit hands to a worker which waits for them: nobody has to ask first."""

import asyncio
from collections import defaultdict
from collections.abc import Sequence

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
        self._late: dict[str, list[Task]] = defaultdict(list)
        self._waiting: dict[str, asyncio.Future[Sequence[Task]]] = {}

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
                line.lost.add_done_callback(lambda _: self._wake_all())
            self._heard.add(worker)

    def take_late(self, worker: str) -> list[Task]:
        """What came when it did not wait: by now it may have been taken for lost."""
        return self._late.pop(worker, [])

    def put_back(self, worker: str, tasks: Sequence[Task]) -> None:
        self._late[worker].extend(tasks)

    async def wait(self, worker: str, *, wait_s: float) -> Sequence[Task]:
        """What is handed to it; nothing when the time is up, or something has come late."""
        if wait_s <= 0 or self._late.get(worker) or not self._hears(worker):
            return ()
        news: asyncio.Future[Sequence[Task]] = asyncio.get_running_loop().create_future()
        self._waiting[worker] = news
        is_got = False
        try:
            async with self._clock.timeout(min(wait_s, self._lines.block_s)):
                tasks = await news
            is_got = True
        except TimeoutError:
            self._heard.discard(worker)  # to subscribe again is to ask whether anybody is there
            return ()
        finally:
            del self._waiting[worker]
            if not is_got and news.done() and not news.cancelled():
                self.put_back(worker, news.result())
        return tasks

    def forget(self, worker: str) -> None:
        self._late.pop(worker, None)

    def _hears(self, worker: str) -> bool:
        return self._line is not None and self._line.is_open and worker in self._heard

    def _told(self, channel: bytes, words: bytes) -> None:
        worker = channel.decode().removeprefix(self._prefix)
        tasks = decode_tasks(words)
        news = self._waiting.get(worker)
        if news is None or news.done():
            self.put_back(worker, tasks)
        else:
            news.set_result(tasks)

    def _wake_all(self) -> None:
        for news in self._waiting.values():
            if not news.done():
                news.set_result(())
