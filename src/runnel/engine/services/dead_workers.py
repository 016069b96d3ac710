"""Detects dead workers and reports their tasks as lost, so that the tasks are issued again."""

import asyncio

from runnel.engine.failure_detector import FailureDetector
from runnel.errors import StoreError
from runnel.ports import telemetry as names
from runnel.ports.clock import Clock
from runnel.ports.store import Store, TaskQueue
from runnel.ports.telemetry import Telemetry
from runnel.ports.workers import WorkerRecord

# A worker may send only three heartbeats per timeout (`BEATS_PER_TIMEOUT_MIN`). With eight polls,
# the silence before its death is 5.5/8 of the timeout: 2.06 of its heartbeat intervals. One lost
# heartbeat is therefore not a death.
POLLS_PER_TIMEOUT = 8


class Reaper:
    """Detects a dead worker at most `dead_after_s` after its last heartbeat.

    A worker counts as dead if it sends no heartbeat for 11/16 of `dead_after_s`: 6.2 s of the
    default 9 s. A live worker sends three heartbeats in that time. The task of a killed worker is
    issued again within 10 s. A worker with longer heartbeat intervals gets the `grace_s` of its
    record, unless `allows_grace` is False.

    Several reapers may run at the same time, because the store removes a dead worker only once. If
    a live worker is counted as dead by mistake, the store refuses reports for its old tasks, and
    the worker claims new ones.
    """

    def __init__(
        self,
        store: Store,
        tasks: TaskQueue,
        clock: Clock,
        telemetry: Telemetry,
        *,
        dead_after_s: float = 9.0,
        allows_grace: bool = True,
    ) -> None:
        self._store = store
        self._tasks = tasks
        self._clock = clock
        self._telemetry = telemetry
        self._liveness: FailureDetector[str, int] = FailureDetector(
            clock, dead_after_s, polls_per_timeout=POLLS_PER_TIMEOUT
        )
        self._dead_after_s = dead_after_s
        self._allows_grace = allows_grace

    async def run(self, stop: asyncio.Event) -> None:
        while not stop.is_set():
            try:
                await self.tick()
            except StoreError as error:
                self._telemetry.event(names.STORE_FAILED, call="reap", error=str(error))
            await self._clock.wait(stop, self._liveness.poll_s)

    async def tick(self) -> int:
        """Polls all workers once; returns the number of dead workers."""
        records = await self._tasks.workers()
        self._liveness.retain_only({record.worker for record in records})
        dead = [record for record in records if self._is_dead(record)]
        for record in dead:
            lost = await self._store.lose_worker_tasks(record)
            self._telemetry.event(names.WORKER_DEAD, worker=record.worker, lost=lost)
        return len(dead)

    def _is_dead(self, record: WorkerRecord) -> bool:
        grace_s = record.grace_s(self._dead_after_s) if self._allows_grace else 0.0
        return self._liveness.is_dead(record.worker, record.counter, grace_s=grace_s)
