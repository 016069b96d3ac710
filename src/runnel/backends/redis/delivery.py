"""Tasks that a commit hands to a worker which waits for them: nobody has to ask first."""

import asyncio
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass

from runnel.backends.redis.connection import Line
from runnel.backends.redis.connection_pool import Lines
from runnel.backends.redis.keys import Keys, decode_tasks
from runnel.core.effects import Task
from runnel.ports.clock import Clock

# What was longer on its way may have been taken for lost: it is checked before it runs. The claim
# that waits, and the beats behind it, take less by far.
AGE_S_MAX = 1.0


@dataclass(slots=True, eq=False)
class Wait:
    """It began at `since` on the clock of the server, and at `began` on the one here."""

    news: asyncio.Future[Sequence[Task]]
    since: float
    began: float

    def is_fresh(self, handed_at: float, *, now: float) -> bool:
        """Whether this wait was meant, and it was not long ago."""
        passed_s = handed_at - self.since
        return passed_s >= 0 and now - self.began - passed_s <= AGE_S_MAX


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
        self._waiting: dict[str, Wait] = {}

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
                if before is not None:
                    before.close()  # a replica would go on telling what its server tells
                self._heard.clear()
                self._line = line
                line.lost.add_done_callback(lambda _: self._wake_all())
            self._heard.add(worker)

    def take_late(self, worker: str) -> list[Task]:
        """What came late, or when it did not wait: by now it may have been taken for lost."""
        return self._late.pop(worker, [])

    def put_back(self, worker: str, tasks: Sequence[Task]) -> None:
        self._late[worker].extend(tasks)

    async def wait(self, worker: str, *, wait_s: float, since: float) -> Sequence[Task]:
        """What is handed to it; nothing when the time is up, or something has come late.

        `since` is when it began to wait, as the server said.
        """
        if wait_s <= 0 or self._late.get(worker) or not self._hears(worker):
            return ()
        news: asyncio.Future[Sequence[Task]] = asyncio.get_running_loop().create_future()
        wait = self._waiting[worker] = Wait(news, since, self._clock.monotonic())
        is_got = False
        try:
            async with self._clock.timeout(min(wait_s, self._lines.block_s)):
                tasks = await news
            is_got = True
        except TimeoutError:
            self._heard.discard(worker)  # to subscribe again is to ask whether anybody is there
            return ()
        finally:
            if self._waiting.get(worker) is wait:
                del self._waiting[worker]
            if not is_got and news.done() and not news.cancelled():
                self.put_back(worker, news.result())
        return tasks

    def forget(self, worker: str) -> None:
        self._late.pop(worker, None)

    def _hears(self, worker: str) -> bool:
        line = self._line
        return line is not None and worker in self._heard and self._lines.is_current(line)

    def _told(self, channel: bytes, words: bytes) -> None:
        worker = channel.decode().removeprefix(self._prefix)
        handed_at, _, listed = words.partition(b" ")
        tasks = decode_tasks(listed)
        wait = self._waiting.get(worker)
        if wait is None or wait.news.done():
            self.put_back(worker, tasks)
        elif wait.is_fresh(float(handed_at), now=self._clock.monotonic()):
            wait.news.set_result(tasks)
        else:
            self.put_back(worker, tasks)
            wait.news.set_result(())

    def _wake_all(self) -> None:
        for wait in self._waiting.values():
            if not wait.news.done():
                wait.news.set_result(())
