"""The scheduler: fires the due ticks of all schedules, each tick once across all processes."""

import asyncio
from collections.abc import Sequence
from contextlib import suppress

from runnel.client.store_client import StoreClient
from runnel.core.message_text import describe_value
from runnel.core.states import FINAL_EXECUTION_STATES
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
from runnel.triggers.due_ticks import (
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


class TickFirer:
    """Carries out the decisions about the ticks of a schedule: starts and cancels executions."""

    def __init__(self, client: StoreClient, archive: Archive) -> None:
        self._client = client
        self._archive = archive

    async def is_last_final(self, record: ScheduleRecord) -> bool:
        """Returns True if the last execution has finished, was deleted, or never existed."""
        last = record.progress.last_execution
        header = None if last is None else await self._archive.get_header(last)
        return header is None or header.state in FINAL_EXECUTION_STATES

    async def fire_planned(self, record: ScheduleRecord) -> list[TickResult]:
        """Starts the executions of the planned ticks.

        Any process can repeat this call: an execution that exists is not started again. Raises
        StoreError if a retry may help; any other error becomes the result of its tick.
        """
        cancelled = record.progress.cancels
        if cancelled is not None:
            reason = f"the next tick of schedule '{record.schedule.id}' is due"
            with suppress(WrongStateError, NotFoundError):  # the execution has finished
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
        stored = await self._client.library.find(schedule.workflow, schedule.version)
        await self._client.create_execution(
            stored.graph.workflow,
            build_tick_input(schedule, planned.tick),
            labels=build_tick_labels(schedule, planned.tick),
            execution_id=planned.execution_id,
            version=stored.version,
        )


# How often all schedules are read when nothing is due, to notice changes by other processes.
# Reading 10,000 schedules takes 30 ms of CPU, and 0.8 s the first time (SQLite, cron in a time
# zone).
POLL_INTERVAL_S = 3.0
# The poll interval after another process was first to fire a tick. The next tick may be close.
CONFLICT_POLL_INTERVAL_S = 0.25
# How long another process may take to fire its planned ticks before this process takes over.
TAKE_OVER_AFTER_S = 5.0
CONCURRENT_SCHEDULES_MAX = 16


class Scheduler:
    """Polls the schedules and fires due ticks. Any number of processes may run a scheduler.

    The process that first decides about a tick uses its own clock.
    """

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
        # By schedule id: the revision, and the time of the next action at that revision.
        self._known: dict[str, tuple[int, float | None]] = {}
        # Plans of other processes by schedule id: the revision, and when it was read first.
        self._seen: dict[str, tuple[int, float]] = {}
        self._pause_s = POLL_INTERVAL_S

    async def run(self, stop: asyncio.Event) -> None:
        """Fires due ticks until `stop` is set. After a store error, publishes it and retries."""
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
        """Fires the ticks that are due now; returns how many ticks this process fired."""
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
        """Fires the ticks that are due at `now`, for callers with their own clock.

        A second call with the same time fires nothing. Ticks that were fired ahead of time are not
        fired again. Raises InputError for an invalid time. If the store fails for one schedule,
        fires the ticks of all other schedules first, and then raises StoreError.
        """
        time = self._clock.now() if now is None else now
        if not is_valid_time(time):
            raise InputError(
                f"now: expected a time up to the year 9000, got {describe_value(time)}"
            )
        due = await self._poll(time)
        outcomes, problems = await self._advance_all(due, time, waits_for_owner=False)
        for _schedule_id, error in problems:
            raise error
        return outcomes

    async def _poll(self, now: float) -> list[StoredSchedule]:
        """Returns the schedules that need an action now; sets the pause until the next poll."""
        known: dict[str, tuple[int, float | None]] = {}
        due: list[StoredSchedule] = []
        next_wake = now + POLL_INTERVAL_S
        async for record in self._schedules.records():
            revision, wake_time = self._known.get(record.key, (0, None))
            schedule: ScheduleRecord | None = None
            try:
                if revision != record.revision:
                    schedule = decode_schedule(record.data)
                    wake_time = compute_wake_time(schedule)
                known[record.key] = (record.revision, wake_time)
                if wake_time is not None and wake_time <= now:
                    due.append(
                        StoredSchedule(schedule or decode_schedule(record.data), record.revision)
                    )
            except (RunnelError, ValueError) as error:
                known[record.key] = (record.revision, None)
                self._telemetry.event(names.SCHEDULE_FAILED, schedule=record.key, error=str(error))
            if wake_time is not None and wake_time > now:
                next_wake = min(next_wake, wake_time)
        self._known = known
        self._seen = {
            schedule_id: seen for schedule_id, seen in self._seen.items() if schedule_id in known
        }
        self._pause_s = next_wake - now
        return due

    async def _advance_all(
        self, due: Sequence[StoredSchedule], now: float, *, waits_for_owner: bool
    ) -> tuple[list[TickResult], list[tuple[str, StoreError]]]:
        """Fires the due ticks, 16 schedules at a time; returns the results and store errors."""
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
        """Returns True if another process has not fired its planned ticks for 5 seconds."""
        schedule_id, now = stored.record.schedule.id, self._clock.monotonic()
        revision, since = self._seen.get(schedule_id, (0, now))
        if revision != stored.revision:
            since = now
        self._seen[schedule_id] = (stored.revision, since)
        return now - since >= TAKE_OVER_AFTER_S

    async def _decide(self, stored: StoredSchedule, now: float) -> StoredSchedule | None:
        """Decides about due ticks; returns None if none is due or another process was first."""
        record = stored.record
        due = find_due_ticks(record, now)
        if not due.ticks and not due.missed:
            return None
        is_allowed = record.schedule.overlap is Overlap.ALLOW
        is_final = is_allowed or await self._firer.is_last_final(record)
        decided = plan_ticks(record, due, now, is_last_final=is_final)
        try:
            decision = await self._schedules.store(stored, decided)
        except ConflictError:
            return None
        self._publish_skipped(record, decided)
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
                except NotFoundError:  # the schedule was removed; its executions continue
                    break
                if stored.record.progress.planned != plan:  # another process recorded the results
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
