"""Carries out what was planned for the ticks of a schedule: starts executions, and cancels."""

from contextlib import suppress

from runnel.client import Client
from runnel.core.states import EXECUTION_FINAL
from runnel.errors import NotFoundError, RunnelError, WrongStateError
from runnel.ports.archive import Archive
from runnel.triggers.planning import Outcome
from runnel.triggers.schedule import KeptSchedule, Planned, Schedule
from runnel.triggers.values import input_of, labels_of


class Firing:
    def __init__(self, client: Client, archive: Archive) -> None:
        self._client = client
        self._archive = archive

    async def is_last_final(self, kept: KeptSchedule) -> bool:
        """Also when there was none yet, and when it was deleted since."""
        last = kept.progress.last_execution
        header = None if last is None else await self._archive.get_header(last)
        return header is None or header.state in EXECUTION_FINAL

    async def carry_out(self, kept: KeptSchedule) -> list[Outcome]:
        """May be done again, by anybody: an execution that is there is not started once more.

        Raises StoreError when it is worth to be tried again.
        """
        cancelled = kept.progress.cancels
        if cancelled is not None:
            reason = f"the next tick of schedule '{kept.schedule.id}' has come"
            with suppress(WrongStateError, NotFoundError):  # it has ended by itself
                await self._client.cancel(cancelled, reason=reason)
        return [await self._fire(kept.schedule, planned) for planned in kept.progress.planned]

    async def _fire(self, schedule: Schedule, planned: Planned) -> Outcome:
        tick = planned.tick
        try:
            if await self._archive.get_header(planned.execution_id) is None:
                await self._start(schedule, planned)
        except RunnelError as error:
            if error.retryable:
                raise
            return Outcome(schedule_id=schedule.id, tick=tick, error=str(error))
        return Outcome(schedule_id=schedule.id, tick=tick, execution_id=planned.execution_id)

    async def _start(self, schedule: Schedule, planned: Planned) -> None:
        found = await self._client.library.find(schedule.workflow, schedule.version)
        await self._client.begin(
            found.graph.workflow,
            input_of(schedule, planned.tick),
            labels=labels_of(schedule, planned.tick),
            execution_id=planned.execution_id,
            version=found.version,
        )
