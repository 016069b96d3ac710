"""Sends a worker's reports to the store. While one call is running, the next batch accumulates."""

import asyncio
from collections.abc import Awaitable, Sequence

from runnel.core.commands import (
    TaskCompleted,
    TaskDeferred,
    TaskFailed,
    TaskLost,
    TaskSkipped,
    TaskStarted,
    TaskStopped,
)
from runnel.core.ids import NO_ITEM
from runnel.engine.worker import WorkerDependencies
from runnel.engine.worker.task_run import HeldTasks
from runnel.ports.telemetry import REPORT_REFUSED

BATCH_MAX = 512
# Above this many unsent reports, the worker claims no further task.
WAITING_MAX = 2_048

Report = (
    TaskCompleted | TaskFailed | TaskSkipped | TaskLost | TaskStopped | TaskDeferred | TaskStarted
)


class Reporter:
    """Sends reports to the store in batches.

    Removes a task from `held` once the store has acknowledged its report.
    """

    def __init__(self, dependencies: WorkerDependencies, held: HeldTasks) -> None:
        self._dependencies = dependencies
        self._held = held
        self._pending: list[Report] = []
        self._has_work = asyncio.Event()
        self._is_empty = asyncio.Event()
        self._is_empty.set()
        self._has_room = asyncio.Event()
        self._has_room.set()

    def put(self, report: Report) -> None:
        self._pending.append(report)
        if len(self._pending) == 1:
            self._has_work.set()
            self._is_empty.clear()
        elif len(self._pending) >= WAITING_MAX:
            self._has_room.clear()

    async def wait_room(self) -> None:
        if not self._has_room.is_set():
            await self._has_room.wait()

    async def wait_empty(self) -> None:
        """Returns once the store has acknowledged every report."""
        await self._is_empty.wait()

    async def run(self) -> None:
        """Sends reports until cancelled."""
        while True:
            if await self.tick() == 0:
                await self._has_work.wait()

    async def tick(self) -> int:
        batch = self._pending[:BATCH_MAX]
        if not batch:
            self._has_work.clear()
            self._is_empty.set()
            return 0
        del self._pending[:BATCH_MAX]
        if len(self._pending) < WAITING_MAX:
            self._has_room.set()
        calls = 0

        def send() -> Awaitable[Sequence[bool]]:
            nonlocal calls
            calls += 1
            return dependencies.tasks.report(dependencies.worker, batch)

        dependencies = self._dependencies
        acknowledgements = await dependencies.store_retry.run(send, "report")
        for report, is_accepted in zip(batch, acknowledgements, strict=True):
            self._settle(report, is_accepted=is_accepted, is_repeated=calls > 1)
        return len(batch)

    def _settle(self, report: Report, *, is_accepted: bool, is_repeated: bool) -> None:
        """Removes the task, and logs a refusal unless the store may have executed an earlier call
        whose answer was lost.
        """
        if type(report) is TaskStarted:
            return
        self._held.forget(report.token)
        # The store takes the end of stopped code only if the execution waits for that end.
        if not (is_accepted or is_repeated or type(report) is TaskStopped):
            token = report.token
            self._dependencies.telemetry.event(
                REPORT_REFUSED,
                worker=self._dependencies.worker,
                execution_id=token.execution_id,
                node_id=token.node_id,
                item=None if token.item == NO_ITEM else token.item,
                attempt=token.attempt,
            )
