"""Fires the ticks of all schedules when they are due: each once, in however many processes."""

import asyncio
from collections.abc import Sequence
from contextlib import suppress

from runnel.client.store_client import StoreClient
from runnel.core.states import FINAL_EXECUTION_STATES
from runnel.core.wording import describe_value
from runnel.errors import (
    ConflictError,
    InputError,
    NotFoundError,
    RunnelError,
    StoreError,
    WrongStateError,
)
from runnel.ports import telemetry as names
from runnel.ports.archive import Archive
from runnel.ports.clock import Clock
from runnel.ports.telemetry import Telemetry
from runnel.triggers.planning import (
    TickResult,
    compute_wake_time,
    find_due_ticks,
    plan_ticks,
    record_results,
)
from runnel.triggers.schedule import PlannedTick, ScheduleRecord, StoredSchedule, decode_schedule
from runnel.triggers.schedule_checks import build_tick_input, build_tick_labels, is_valid_time
from runnel.triggers.schedule_store import ScheduleStore
from runnel.views.trigger import Overlap, Schedule

# Carries out what was planned for the ticks of a schedule: starts executions, and cancels.


class TickFirer:
    def __init__(self, client: StoreClient, archive: Archive) -> None:
        self._client = client
        self._archive = archive

    async def is_last_final(self, record: ScheduleRecord) -> bool:
        """Also when there was none yet, and when it was deleted since."""
        last = record.progress.last_execution
        header = None if last is None else await self._archive.get_header(last)
        return header is None or header.state in FINAL_EXECUTION_STATES

    async def fire_planned(self, record: ScheduleRecord) -> list[TickResult]:
        """May be done again, by anybody: an execution that is there is not started once more.

        Raises StoreError when it is worth to be tried again.
        """
        cancelled = record.progress.cancels
        if cancelled is not None:
            reason = f"the next tick of schedule '{record.schedule.id}' has come"
            with suppress(WrongStateError, NotFoundError):  # it has ended by itself
                await self._client.cancel(cancelled, reason=reason)
        return [await self._fire(record.schedule, planned) for planned in record.progress.planned]

    async def _fire(self, schedule: Schedule, planned: PlannedTick) -> TickResult:
        tick = planned.tick
        try:
            if await self._archive.get_header(planned.execution_id) is None:
                await self._start(schedule, planned)
        except RunnelError as error:
            if error.retryable:
                raise
            return TickResult(schedule_id=schedule.id, tick=tick, error=str(error))
        return TickResult(schedule_id=schedule.id, tick=tick, execution_id=planned.execution_id)

    async def _start(self, schedule: Schedule, planned: PlannedTick) -> None:
        found = await self._client.library.find(schedule.workflow, schedule.version)
        await self._client.create_execution(
            found.graph.workflow,
            build_tick_input(schedule, planned.tick),
            labels=build_tick_labels(schedule, planned.tick),
            execution_id=planned.execution_id,
            version=found.version,
        )


# How often all schedules are looked at when nothing is due: one that was added or changed by
# another process is known after that. 10,000 of them take 30 ms of CPU each time, and 0.8 s the
# first time (SQLite, cron in a time zone).
POLL_INTERVAL_S = 3.0
# When somebody else was faster: to know its next tick.
CONFLICT_POLL_INTERVAL_S = 0.25
# What another process has planned is left to it for so long: it may be dead.
TAKE_OVER_AFTER_S = 5.0
CONCURRENT_SCHEDULES_MAX = 16


class Scheduler:
    """Any number may run. Ticks come by the clock of the process that is first."""

    def __init__(
        self,
        schedules: ScheduleStore,
        client: StoreClient,
        archive: Archive,
        clock: Clock,
        telemetry: Telemetry,
    ) -> None:
        self._schedules = schedules
        self._firer = TickFirer(client, archive)
        self._clock = clock
        self._telemetry = telemetry
        # By id: the revision, and when something is to be done at that revision.
        self._known: dict[str, tuple[int, float | None]] = {}
        # What is under way elsewhere: the revision, and since when this process has seen it.
        self._seen: dict[str, tuple[int, float]] = {}
        self._pause_s = POLL_INTERVAL_S

    async def run(self, stop: asyncio.Event) -> None:
        while not stop.is_set():
            handled = 0
            try:
                handled = await self.tick()
            except StoreError as error:
                self._pause_s = POLL_INTERVAL_S
                self._telemetry.event(names.STORE_FAILED, call="schedules", error=str(error))
            if handled == 0:
                await self._clock.wait(stop, self._pause_s)

    async def tick(self) -> int:
        """Fires what is due now; returns how many ticks this process has fired."""
        now = self._clock.now()
        due = await self._poll(now)
        outcomes, problems = await self._advance_all(due, now, waits_for_owner=True)
        for schedule_id, error in problems:
            self._telemetry.event(
                names.STORE_FAILED, call="schedule", schedule=schedule_id, error=str(error)
            )
        if due and not outcomes:
            self._pause_s = min(self._pause_s, CONFLICT_POLL_INTERVAL_S)
        return len(outcomes)

    async def dispatch(self, now: float | None = None) -> Sequence[TickResult]:
        """Fires what is due at `now`, for somebody who has a clock of his own.

        Nothing happens at a time that has been dispatched before. A tick that was fired ahead of
        time is not fired again. Raises InputError for no time, and StoreError after all that
        could be fired was fired.
        """
        moment = self._clock.now() if now is None else now
        if not is_valid_time(moment):
            raise InputError(
                f"now: expected a time up to the year 9000, got {describe_value(moment)}"
            )
        due = await self._poll(moment)
        outcomes, problems = await self._advance_all(due, moment, waits_for_owner=False)
        for _schedule_id, error in problems:
            raise error
        return outcomes

    async def _poll(self, now: float) -> list[StoredSchedule]:
        """Those for which something is to be done; and how long it is until the next."""
        known: dict[str, tuple[int, float | None]] = {}
        due: list[StoredSchedule] = []
        wakes = now + POLL_INTERVAL_S
        async for record in self._schedules.records():
            revision, at = self._known.get(record.key, (0, None))
            kept: ScheduleRecord | None = None
            try:
                if revision != record.revision:
                    kept = decode_schedule(record.data)
                    at = compute_wake_time(kept)
                known[record.key] = (record.revision, at)
                if at is not None and at <= now:
                    due.append(
                        StoredSchedule(kept or decode_schedule(record.data), record.revision)
                    )
            except (RunnelError, ValueError) as error:
                known[record.key] = (record.revision, None)
                self._telemetry.event(names.SCHEDULE_FAILED, schedule=record.key, error=str(error))
            if at is not None and at > now:
                wakes = min(wakes, at)
        self._known = known
        self._seen = {each: seen for each, seen in self._seen.items() if each in known}
        self._pause_s = wakes - now
        return due

    async def _advance_all(
        self, due: Sequence[StoredSchedule], now: float, *, waits_for_owner: bool
    ) -> tuple[list[TickResult], list[tuple[str, StoreError]]]:
        """A few at a time; what goes wrong with one does not keep the others."""
        outcomes: list[TickResult] = []
        problems: list[tuple[str, StoreError]] = []

        async def advance(stored: StoredSchedule) -> None:
            try:
                outcomes.extend(await self._advance(stored, now, waits_for_owner=waits_for_owner))
            except StoreError as error:
                problems.append((stored.record.schedule.id, error))

        for first in range(0, len(due), CONCURRENT_SCHEDULES_MAX):
            async with asyncio.TaskGroup() as group:
                for stored in due[first : first + CONCURRENT_SCHEDULES_MAX]:
                    group.create_task(advance(stored))
        return outcomes, problems

    async def _advance(
        self, stored: StoredSchedule, now: float, *, waits_for_owner: bool
    ) -> list[TickResult]:
        outcomes: list[TickResult] = []
        if stored.record.progress.is_under_way:
            if waits_for_owner and not self._is_abandoned(stored):
                return outcomes
            outcomes += await self._fire_planned(stored)
            try:
                stored = await self._schedules.get(stored.record.schedule.id)
            except NotFoundError:
                return outcomes
        if not stored.record.progress.is_under_way:
            decided = await self._decide(stored, now)
            if decided is not None:
                outcomes += await self._fire_planned(decided)
        return outcomes

    def _is_abandoned(self, stored: StoredSchedule) -> bool:
        """Whether nothing has come of it for too long, on this process's own clock."""
        schedule_id, now = stored.record.schedule.id, self._clock.monotonic()
        revision, since = self._seen.get(schedule_id, (0, now))
        if revision != stored.revision:
            since = now
        self._seen[schedule_id] = (stored.revision, since)
        return now - since >= TAKE_OVER_AFTER_S

    async def _decide(self, stored: StoredSchedule, now: float) -> StoredSchedule | None:
        """None when nothing is due, or somebody else decides about it."""
        kept = stored.record
        due = find_due_ticks(kept, now)
        if not due.ticks and not due.missed:
            return None
        is_allowed = kept.schedule.overlap is Overlap.ALLOW
        is_final = is_allowed or await self._firer.is_last_final(kept)
        decided = plan_ticks(kept, due, now, is_last_final=is_final)
        try:
            decision = await self._schedules.store(stored, decided)
        except ConflictError:
            return None
        self._publish_skipped(kept, decided)
        return decision

    async def _fire_planned(self, stored: StoredSchedule) -> list[TickResult]:
        if not stored.record.progress.is_under_way:
            return []
        plan = stored.record.progress.planned
        outcomes = await self._firer.fire_planned(stored.record)
        while True:
            try:
                await self._schedules.store(stored, record_results(stored.record, outcomes))
            except ConflictError:
                try:
                    stored = await self._schedules.get(stored.record.schedule.id)
                except NotFoundError:  # removed meanwhile; what it has started goes on
                    break
                if stored.record.progress.planned != plan:  # somebody else has told of it
                    return []
                continue
            break
        self._seen.pop(stored.record.schedule.id, None)
        for outcome in outcomes:
            self._publish_result(outcome)
        return outcomes

    def _publish_result(self, result: TickResult) -> None:
        fields: dict[str, object] = {"schedule": result.schedule_id, "tick": result.tick}
        if result.error is None:
            self._telemetry.event(names.SCHEDULE_FIRED, execution_id=result.execution_id, **fields)
        else:
            self._telemetry.event(names.SCHEDULE_FAILED, error=result.error, **fields)

    def _publish_skipped(self, before: ScheduleRecord, after: ScheduleRecord) -> None:
        for name, count in (
            (names.SCHEDULE_SKIPPED, after.progress.skipped - before.progress.skipped),
            (names.SCHEDULE_MISSED, after.progress.missed - before.progress.missed),
        ):
            if count:
                self._telemetry.event(name, schedule=after.schedule.id, count=count)
