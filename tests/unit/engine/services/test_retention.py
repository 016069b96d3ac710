"""Finished executions are deleted after the days of their state, and kept without a number."""

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
    def __init__(self, remaining: int) -> None:
        self.remaining = remaining
        self.requests: list[tuple[ExecutionState, float]] = []
        self.problem: StoreError | None = None
        self.swept: list[float] = []

    async def delete_orphaned_blobs(self, *, idle_s: float) -> int:
        self.swept.append(idle_s)
        return 1

    async def delete_finished(self, state: ExecutionState, *, before: float, limit: int) -> int:
        self.requests.append((state, before))
        if self.problem is not None:
            raise self.problem
        deleted = min(limit, self.remaining)
        self.remaining -= deleted
        return deleted


async def test_only_states_with_a_number_of_days_are_deleted() -> None:
    clock, retention, telemetry = FakeClock(now=864_000.0), FakeRetention(3), RecordingTelemetry()
    service = RetentionService(retention, clock, telemetry, days={S.FAILED: 2, S.COMPLETED: 0.5})

    assert await service.tick() == 3

    assert retention.requests == [(S.FAILED, 691_200.0), (S.COMPLETED, 820_800.0)]
    assert telemetry.events == [names.RETENTION_DELETED]


async def test_retention_continues_at_once_while_there_is_more_and_waits_then() -> None:
    clock, retention, telemetry = (
        FakeClock(),
        FakeRetention(2 * BATCH_MAX + 1),
        RecordingTelemetry(),
    )
    service = RetentionService(retention, clock, telemetry, days={S.FAILED: 1})
    stop = asyncio.Event()

    async with asyncio.TaskGroup() as group:
        group.create_task(service.run(stop))
        await clock.wait_for_sleeper()
        requests = len(retention.requests)
        retention.problem = StoreError("gone")
        await clock.advance(POLL_INTERVAL_S)
        stop.set()

    assert (retention.remaining, requests) == (0, 4)
    deleted, swept, failed = names.RETENTION_DELETED, names.BLOBS_DELETED, names.STORE_FAILED
    assert telemetry.events == [deleted, swept, deleted, deleted, failed]


async def test_orphaned_blobs_are_deleted_every_hour() -> None:
    clock, retention, telemetry = FakeClock(), FakeRetention(0), RecordingTelemetry()
    service = RetentionService(retention, clock, telemetry, days={})
    stop = asyncio.Event()

    async with asyncio.TaskGroup() as group:
        group.create_task(service.run(stop))
        for _ in range(int(2 * SWEEP_INTERVAL_S / POLL_INTERVAL_S)):
            await clock.wait_for_sleeper()
            await clock.advance(POLL_INTERVAL_S)
        stop.set()

    assert retention.swept == [ORPHAN_IDLE_S] * 3
