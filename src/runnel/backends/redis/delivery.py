"""Tasks that a commit hands to a worker which waits for them: nobody has to ask first."""

import asyncio
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass

from runnel.backends.redis.connection import RedisConnection
from runnel.backends.redis.connection_pool import RedisConnectionPool
from runnel.backends.redis.keys import RedisKeyNames, decode_tasks
from runnel.core.effects import TaskMessage
from runnel.ports.clock import Clock

# What was longer on its way may have been taken for lost: it is checked before it runs. The claim
# that waits, and the beats behind it, take less by far.
PUSH_AGE_S_MAX = 1.0


@dataclass(slots=True, eq=False)
class TaskWait:
    """It began at `since` on the clock of the server, and at `local_since` on the one here."""

    future: asyncio.Future[Sequence[TaskMessage]]
    server_since: float
    local_since: float

    def is_fresh(self, pushed_at: float, *, now: float) -> bool:
        """Whether this wait was meant, and it was not long ago."""
        passed_s = pushed_at - self.server_since
        return passed_s >= 0 and now - self.local_since - passed_s <= PUSH_AGE_S_MAX


class TaskPushListener:
    """One connection hears for all workers of this process.

    What is handed to a worker is its own from that moment, as if it had claimed it, whether it
    gets here or not.
    """

    def __init__(self, pool: RedisConnectionPool, keys: RedisKeyNames, clock: Clock) -> None:
        self._pool = pool
        self._prefix = keys.push_channel
        self._clock = clock
        self._connection: RedisConnection | None = None
        self._lock = asyncio.Lock()
        self._subscribed: set[str] = set()
        self._stale: dict[str, list[TaskMessage]] = defaultdict(list)
        self._waits: dict[str, TaskWait] = {}

    async def subscribe(self, worker: str) -> None:
        """From now on this process hears what is handed to the worker; raises StoreError."""
        if self._is_subscribed(worker):
            return
        async with self._lock:
            if self._is_subscribed(worker):
                return
            before = self._connection
            connection = await self._pool.subscribe(
                self._prefix + worker, self._on_message, connection=before
            )
            if connection is not before:
                if before is not None:
                    before.close()  # a replica would go on telling what its server tells
                self._subscribed.clear()
                self._connection = connection
                connection.closed.add_done_callback(lambda _: self._wake_all())
            self._subscribed.add(worker)

    def take_stale(self, worker: str) -> list[TaskMessage]:
        """What came late, or when it did not wait: by now it may have been taken for lost."""
        return self._stale.pop(worker, [])

    def requeue(self, worker: str, tasks: Sequence[TaskMessage]) -> None:
        self._stale[worker].extend(tasks)

    async def wait(self, worker: str, *, wait_s: float, since: float) -> Sequence[TaskMessage]:
        """What is handed to it; nothing when the time is up, or something has come late.

        `since` is when it began to wait, as the server said.
        """
        if wait_s <= 0 or self._stale.get(worker) or not self._is_subscribed(worker):
            return ()
        news: asyncio.Future[Sequence[TaskMessage]] = asyncio.get_running_loop().create_future()
        wait = self._waits[worker] = TaskWait(news, since, self._clock.monotonic())
        is_got = False
        try:
            async with self._clock.timeout(min(wait_s, self._pool.block_s)):
                tasks = await news
            is_got = True
        except TimeoutError:
            self._subscribed.discard(
                worker
            )  # to subscribe again is to ask whether anybody is there
            return ()
        finally:
            if self._waits.get(worker) is wait:
                del self._waits[worker]
            if not is_got and news.done() and not news.cancelled():
                self.requeue(worker, news.result())
        return tasks

    def forget(self, worker: str) -> None:
        self._stale.pop(worker, None)

    def _is_subscribed(self, worker: str) -> bool:
        connection = self._connection
        return (
            connection is not None
            and worker in self._subscribed
            and self._pool.is_current(connection)
        )

    def _on_message(self, channel: bytes, payload: bytes) -> None:
        worker = channel.decode().removeprefix(self._prefix)
        handed_at, _, listed = payload.partition(b" ")
        tasks = decode_tasks(listed)
        wait = self._waits.get(worker)
        if wait is None or wait.future.done():
            self.requeue(worker, tasks)
        elif wait.is_fresh(float(handed_at), now=self._clock.monotonic()):
            wait.future.set_result(tasks)
        else:
            self.requeue(worker, tasks)
            wait.future.set_result(())

    def _wake_all(self) -> None:
        for wait in self._waits.values():
            if not wait.future.done():
                wait.future.set_result(())
