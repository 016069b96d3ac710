"""Fails tasks in queues that no live worker serves, because such tasks would wait for ever."""

import asyncio
from collections.abc import Sequence

from runnel.core.retry import ErrorInfo
from runnel.errors import StoreError
from runnel.ports import telemetry as names
from runnel.ports.clock import Clock
from runnel.ports.store import Store, TaskQueue
from runnel.ports.telemetry import Telemetry
from runnel.ports.workers import QueueRecord, WorkerRecord

POLLS_PER_TIMEOUT = 6
QUEUE_PREFIX = "tasks:"
PYTHON_QUEUE = QUEUE_PREFIX + "python"
REJECTED_PER_BATCH = 500
FORGOTTEN_AFTER_S = 600.0


class UnservedQueueService:
    """Fails a task that has waited for `unserved_s` while no worker served its queue.

    The usual causes are a misspelled name or an incomplete deployment, which a person has to
    correct. While no worker is alive at all, no task fails, and the service reports
    `workers.missing`. Several processes may run this service, because the store fails a task only
    once. The service deletes the record of a queue that has been empty for `forgotten_after_s`, so
    that queue names do not accumulate.
    """

    def __init__(
        self,
        store: Store,
        tasks: TaskQueue,
        clock: Clock,
        telemetry: Telemetry,
        *,
        unserved_s: float = 60.0,
        forgotten_after_s: float = FORGOTTEN_AFTER_S,
    ) -> None:
        self._store = store
        self._tasks = tasks
        self._clock = clock
        self._telemetry = telemetry
        self._unserved_s = unserved_s
        self._forgotten_after_s = forgotten_after_s
        self._unserved_since: dict[str, float] = {}
        self._no_workers_since: float | None = None
        self._empty_since: dict[str, float] = {}

    async def run(self, stop: asyncio.Event) -> None:
        while not stop.is_set():
            handled = 0
            try:
                handled = await self.tick()
            except StoreError as error:
                self._telemetry.event(names.STORE_FAILED, call="reject", error=str(error))
            if not handled:
                await self._clock.wait(stop, self._unserved_s / POLLS_PER_TIMEOUT)

    async def tick(self) -> int:
        """Polls all queues once; returns the number of tasks that it failed."""
        queues = await self._tasks.queues()
        workers = await self._tasks.workers()
        self._check_for_workers(queues, workers)
        rejected = 0
        for record in self._find_overdue(queues, workers):
            rejected += await self._reject(record.queue)
        await self._forget_empty(queues)
        return rejected

    def _check_for_workers(
        self, queues: Sequence[QueueRecord], workers: Sequence[WorkerRecord]
    ) -> None:
        waiting = sum(record.depth for record in queues)
        if workers or not waiting:
            self._no_workers_since = None
            return
        now = self._clock.monotonic()
        self._no_workers_since = now if self._no_workers_since is None else self._no_workers_since
        if now - self._no_workers_since >= self._unserved_s:
            self._telemetry.event(names.WORKERS_MISSING, waiting=waiting)

    def _find_overdue(
        self, queues: Sequence[QueueRecord], workers: Sequence[WorkerRecord]
    ) -> list[QueueRecord]:
        """Returns the queues with tasks that no worker has served for `unserved_s`, on this
        process's clock.
        """
        now = self._clock.monotonic()
        unserved = [
            record
            for record in queues
            if record.depth and workers and not _is_served(record.queue, workers)
        ]
        self._unserved_since = {
            record.queue: self._unserved_since.get(record.queue, now) for record in unserved
        }
        return [
            record
            for record in unserved
            if now - self._unserved_since[record.queue] >= self._unserved_s
        ]

    async def _reject(self, queue: str) -> int:
        message = (
            f"no handler registered for '{queue.removeprefix(QUEUE_PREFIX)}': "
            f"no live worker has served this queue for {self._unserved_s:g} s"
        )
        if queue == PYTHON_QUEUE:
            message += (
                ". Start 'runnel worker --app MODULE' in the folder of your module, or set "
                "RUNNEL_ALLOW_PYTHON"
            )
        error = ErrorInfo(type="HandlerNotFoundError", message=message, retryable=False)
        count = await self._store.reject_tasks(
            queue, error, waiting_s=self._unserved_s, limit=REJECTED_PER_BATCH
        )
        if count:
            self._telemetry.event(names.TASKS_UNSERVED, queue=queue, rejected=count)
        return count

    async def _forget_empty(self, queues: Sequence[QueueRecord]) -> None:
        now = self._clock.monotonic()
        empty = {record.queue: record for record in queues if not record.depth}
        self._empty_since = {queue: self._empty_since.get(queue, now) for queue in empty}
        for queue, record in empty.items():
            if now - self._empty_since[queue] >= self._forgotten_after_s:
                await self._store.forget_queue(record)


def _is_served(queue: str, workers: Sequence[WorkerRecord]) -> bool:
    """Returns True if a worker serves the queue, or may serve it.

    A worker that has not sent a heartbeat yet may serve any queue.
    """
    return any(record.about is None or record.about.serves(queue) for record in workers)
