"""Deletes executions that ended longer ago than they are to be kept."""

import asyncio
from collections.abc import Mapping

from runnel.core.states import ExecutionState
from runnel.errors import StoreError
from runnel.ports import telemetry as names
from runnel.ports.clock import Clock
from runnel.ports.retention import Retention
from runnel.ports.telemetry import Telemetry

DAY_S = 24 * 3600.0
LOOK_S = 60.0
# Trees that one transaction deletes at most: others want to write, too.
BATCH = 100


class RetentionService:
    """`days` by final state; a state without a number is kept for ever. Any number may run."""

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

    async def run(self, stop: asyncio.Event) -> None:
        while not stop.is_set():
            deleted = 0
            try:
                deleted = await self.tick()
            except StoreError as error:
                self._telemetry.event(names.STORE_FAILED, call="retention", error=str(error))
            if deleted == 0:
                await self._clock.wait(stop, LOOK_S)

    async def tick(self) -> int:
        """One batch of each state; returns how many roots were deleted."""
        count = 0
        for state, days in self._days.items():
            before = self._clock.now() - days * DAY_S
            deleted = await self._retention.delete_finished(state, before=before, limit=BATCH)
            if deleted:
                self._telemetry.event(names.RETENTION_DELETED, state=state, count=deleted)
            count += deleted
        return count
