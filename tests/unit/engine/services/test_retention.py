"""What ended is deleted after as many days as its state has, and kept without a number."""

import asyncio

from runnel.core.states import ExecutionState
from runnel.engine.services.retention import (
    BATCH_MAX,
    ORPHAN_IDLE_S,
    POLL_INTERVAL_S,
    SWEEP_INTERVAL_S,
    RetentionService,
)
from runnel.errors import StoreError
from runnel.ports import telemetry as names
from runnel.testing.clock import FakeClock
from tests.unit.engine.services.archiver_harness import RecordingTelemetry

S = ExecutionState


class FakeRetention:
    def __init__(self, left: int) -> None:
        self.left = left
        self.asked: list[tuple[ExecutionState, float]] = []
        self.problem: StoreError | None = None
        self.swept: list[float] = []

    async def delete_orphaned_blobs(self, *, idle_s: float) -> int:
        self.swept.append(idle_s)
        return 1

    async def delete_finished(self, state: ExecutionState, *, before: float, limit: int) -> int:
        self.asked.append((state, before))
        if self.problem is not None:
            raise self.problem
        deleted = min(limit, self.left)
        self.left -= deleted
        return deleted


async def test_only_states_with_a_number_of_days_are_deleted() -> None:
    clock, retention, told = FakeClock(now=864_000.0), FakeRetention(3), RecordingTelemetry()
    service = RetentionService(retention, clock, told, days={S.FAILED: 2, S.COMPLETED: 0.5})

    assert await service.tick() == 3

    assert retention.asked == [(S.FAILED, 691_200.0), (S.COMPLETED, 820_800.0)]
    assert told.events == [names.RETENTION_DELETED]


async def test_it_goes_on_at_once_while_there_is_more_and_waits_then() -> None:
    clock, retention, told = FakeClock(), FakeRetention(2 * BATCH_MAX + 1), RecordingTelemetry()
    service = RetentionService(retention, clock, told, days={S.FAILED: 1})
    stop = asyncio.Event()

    async with asyncio.TaskGroup() as group:
        group.create_task(service.run(stop))
        await clock.wait_for_sleeper()
        asked = len(retention.asked)
        retention.problem = StoreError("gone")
        await clock.advance(POLL_INTERVAL_S)
        stop.set()

    assert (retention.left, asked) == (0, 4)
    gone, swept, failed = names.RETENTION_DELETED, names.BLOBS_DELETED, names.STORE_FAILED
    assert told.events == [gone, swept, gone, gone, failed]


async def test_blobs_that_belong_to_nothing_are_looked_for_every_hour() -> None:
    clock, retention, told = FakeClock(), FakeRetention(0), RecordingTelemetry()
    service = RetentionService(retention, clock, told, days={})
    stop = asyncio.Event()

    async with asyncio.TaskGroup() as group:
        group.create_task(service.run(stop))
        for _ in range(int(2 * SWEEP_INTERVAL_S / POLL_INTERVAL_S)):
            await clock.wait_for_sleeper()
            await clock.advance(POLL_INTERVAL_S)
        stop.set()

    assert retention.swept == [ORPHAN_IDLE_S] * 3
