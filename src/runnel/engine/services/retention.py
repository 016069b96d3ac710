"""Deletes executions that ended longer ago than the retention time, and orphaned blobs."""

import asyncio
from collections.abc import Mapping

from runnel.core.states import ExecutionState
from runnel.errors import StoreError
from runnel.ports import telemetry as names
from runnel.ports.archive import Retention
from runnel.ports.clock import Clock
from runnel.ports.telemetry import Telemetry

DAY_S = 24 * 3600.0
POLL_INTERVAL_S = 60.0
SWEEP_INTERVAL_S = 3600.0
# The minimum age of an orphaned blob. It is far longer than the time between the writes of a blob
# and of the command that refers to it.
ORPHAN_IDLE_S = 3600.0
# The most execution trees that one transaction deletes, so that other writers need not wait long.
BATCH_MAX = 100


class RetentionService:
    """Deletes finished executions after a number of `days` for each final state.

    Executions in a final state without such a number are kept for ever. Several processes may run
    this service at the same time.
    """

    def __init__(
        self,
        retention: Retention,
        clock: Clock,
        telemetry: Telemetry,
        *,
        days: Mapping[ExecutionState, float],
    ) -> None:
        self._retention = retention
        self._clock = clock
        self._telemetry = telemetry
        self._days = days
        self._sweep_at = clock.monotonic()

    async def run(self, stop: asyncio.Event) -> None:
        while not stop.is_set():
            deleted = 0
            try:
                deleted = await self.tick()
                await self._sweep_if_due()
            except StoreError as error:
                self._telemetry.event(names.STORE_FAILED, call="retention", error=str(error))
            if deleted == 0:
                await self._clock.wait(stop, POLL_INTERVAL_S)

    async def tick(self) -> int:
        """Deletes one batch of executions of each state; returns the number of deleted root
        executions.
        """
        count = 0
        for state, days in self._days.items():
            before = self._clock.now() - days * DAY_S
            deleted = await self._retention.delete_finished(state, before=before, limit=BATCH_MAX)
            if deleted:
                self._telemetry.event(names.RETENTION_DELETED, state=state, count=deleted)
            count += deleted
        return count

    async def sweep(self) -> int:
        """Deletes blobs without an execution; returns the number of deleted blobs."""
        return await self._retention.delete_orphaned_blobs(idle_s=ORPHAN_IDLE_S)

    async def _sweep_if_due(self) -> None:
        now = self._clock.monotonic()
        if now < self._sweep_at:
            return
        self._sweep_at = now + SWEEP_INTERVAL_S
        deleted = await self.sweep()
        if deleted:
            self._telemetry.event(names.BLOBS_DELETED, count=deleted)
