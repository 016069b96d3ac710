"""Receives tasks that a commit pushes to a waiting worker, so that the worker need not poll."""

import asyncio
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass

from runnel.backends.redis.connection import RedisConnection
from runnel.backends.redis.connection_pool import RedisConnectionPool
from runnel.backends.redis.keys import RedisKeyNames, decode_tasks
from runnel.core.effects import TaskMessage
from runnel.ports.clock import Clock

# A pushed task that takes longer than this to arrive may have been declared lost, so the worker
# checks it before it runs. A claim or a heartbeat takes far less time than this.
PUSH_AGE_S_MAX = 1.0


@dataclass(slots=True, eq=False)
class TaskWait:
    """One claim that waits for tasks.

    The wait started at `server_since` on the clock of the server, and at `local_since` on the local
    clock.
    """

    future: asyncio.Future[Sequence[TaskMessage]]
    server_since: float
    local_since: float

    def is_fresh(self, pushed_at: float, *, now: float) -> bool:
        """Returns True if the task was pushed during this wait and arrived within
        PUSH_AGE_S_MAX.
        """
        passed_s = pushed_at - self.server_since
        return passed_s >= 0 and now - self.local_since - passed_s <= PUSH_AGE_S_MAX


class TaskPushListener:
    """Receives pushed tasks for all workers of this process on one connection.

    A commit assigns a pushed task to the worker, as a claim does, even if the push never arrives.
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
        """Subscribes to the tasks that are pushed to the worker; raises StoreError if
        that fails.
        """
        if self._is_subscribed(worker):
            return
        async with self._lock:
            if self._is_subscribed(worker):
                return
            previous = self._connection
            connection = await self._pool.subscribe(
                self._prefix + worker, self._on_message, connection=previous
            )
            if connection is not previous:
                if previous is not None:
                    previous.close()  # a replica would still forward messages of its primary
                self._subscribed.clear()
                self._connection = connection
                connection.closed.add_done_callback(lambda _: self._wake_all())
            self._subscribed.add(worker)

    def take_stale(self, worker: str) -> list[TaskMessage]:
        """Returns and removes the tasks that arrived late or while the worker was not waiting.

        The caller must check these tasks, because they may have been declared lost.
        """
        return self._stale.pop(worker, [])

    def requeue(self, worker: str, tasks: Sequence[TaskMessage]) -> None:
        self._stale[worker].extend(tasks)

    async def wait(self, worker: str, *, wait_s: float, since: float) -> Sequence[TaskMessage]:
        """Waits for tasks that are pushed to the worker.

        Returns nothing after `wait_s`, or if tasks arrived late. `since` is the start of the wait
        on the clock of the server.
        """
        if wait_s <= 0 or self._stale.get(worker) or not self._is_subscribed(worker):
            return ()
        pushed: asyncio.Future[Sequence[TaskMessage]] = asyncio.get_running_loop().create_future()
        wait = self._waits[worker] = TaskWait(pushed, since, self._clock.monotonic())
        is_received = False
        try:
            async with self._clock.timeout(min(wait_s, self._pool.block_s)):
                tasks = await pushed
            is_received = True
        except TimeoutError:
            # The next claim subscribes again, which checks that the server still responds.
            self._subscribed.discard(worker)
            return ()
        finally:
            if self._waits.get(worker) is wait:
                del self._waits[worker]
            if not is_received and pushed.done() and not pushed.cancelled():
                self.requeue(worker, pushed.result())
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
        pushed_at, _, encoded_tasks = payload.partition(b" ")
        tasks = decode_tasks(encoded_tasks)
        wait = self._waits.get(worker)
        if wait is None or wait.future.done():
            self.requeue(worker, tasks)
        elif wait.is_fresh(float(pushed_at), now=self._clock.monotonic()):
            wait.future.set_result(tasks)
        else:
            self.requeue(worker, tasks)
            wait.future.set_result(())

    def _wake_all(self) -> None:
        for wait in self._waits.values():
            if not wait.future.done():
                wait.future.set_result(())
