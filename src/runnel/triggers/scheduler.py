"""Fires the ticks of all schedules when they are due: each once, in however many processes."""

import asyncio
from collections.abc import Sequence
from contextlib import suppress

from runnel.client.store_client import Client
from runnel.core.states import EXECUTION_FINAL
from runnel.core.wording import shown
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
from runnel.triggers.planning import Outcome, carried_out, due_of, planned, wakes_at
from runnel.triggers.schedule import (
    KeptSchedule,
    Overlap,
    Planned,
    Schedule,
    Stored,
    decode_schedule,
)
from runnel.triggers.schedule_checks import input_of, is_moment, labels_of
from runnel.triggers.schedule_store import Schedules

# Carries out what was planned for the ticks of a schedule: starts executions, and cancels.


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


# How often all schedules are looked at when nothing is due: one that was added or changed by
# another process is known after that. 10,000 of them take 30 ms of CPU each time, and 0.8 s the
# first time (SQLite, cron in a time zone).
LOOK_S = 3.0
# When somebody else was faster: to know its next tick.
LOOK_AFTER_S = 0.25
# What another process has planned is left to it for so long: it may be dead.
TAKE_OVER_S = 5.0
AT_ONCE = 16


class Scheduler:
    """Any number may run. Ticks come by the clock of the process that is first."""

    def __init__(
        self,
        schedules: Schedules,
        client: Client,
        archive: Archive,
        clock: Clock,
        telemetry: Telemetry,
    ) -> None:
        self._schedules = schedules
        self._firing = Firing(client, archive)
        self._clock = clock
        self._telemetry = telemetry
        # By id: the revision, and when something is to be done at that revision.
        self._known: dict[str, tuple[int, float | None]] = {}
        # What is under way elsewhere: the revision, and since when this process has seen it.
        self._seen: dict[str, tuple[int, float]] = {}
        self._pause_s = LOOK_S

    async def run(self, stop: asyncio.Event) -> None:
        while not stop.is_set():
            handled = 0
            try:
                handled = await self.tick()
            except StoreError as error:
                self._pause_s = LOOK_S
                self._telemetry.event(names.STORE_FAILED, call="schedules", error=str(error))
            if handled == 0:
                await self._clock.wait(stop, self._pause_s)

    async def tick(self) -> int:
        """Fires what is due now; returns how many ticks this process has fired."""
        now = self._clock.now()
        due = await self._look(now)
        outcomes, problems = await self._advance_all(due, now, is_patient=True)
        for schedule_id, error in problems:
            self._telemetry.event(
                names.STORE_FAILED, call="schedule", schedule=schedule_id, error=str(error)
            )
        if due and not outcomes:
            self._pause_s = min(self._pause_s, LOOK_AFTER_S)
        return len(outcomes)

    async def dispatch(self, now: float | None = None) -> Sequence[Outcome]:
        """Fires what is due at `now`, for somebody who has a clock of his own.

        Nothing happens at a time that has been dispatched before. A tick that was fired ahead of
        time is not fired again. Raises InputError for no time, and StoreError after all that
        could be fired was fired.
        """
        moment = self._clock.now() if now is None else now
        if not is_moment(moment):
            raise InputError(f"now: expected a time up to the year 9000, got {shown(moment)}")
        due = await self._look(moment)
        outcomes, problems = await self._advance_all(due, moment, is_patient=False)
        for _schedule_id, error in problems:
            raise error
        return outcomes

    async def _look(self, now: float) -> list[Stored]:
        """Those for which something is to be done; and how long it is until the next."""
        known: dict[str, tuple[int, float | None]] = {}
        due: list[Stored] = []
        wakes = now + LOOK_S
        async for record in self._schedules.records():
            revision, at = self._known.get(record.key, (0, None))
            kept: KeptSchedule | None = None
            try:
                if revision != record.revision:
                    kept = decode_schedule(record.data)
                    at = wakes_at(kept)
                known[record.key] = (record.revision, at)
                if at is not None and at <= now:
                    due.append(Stored(kept or decode_schedule(record.data), record.revision))
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
        self, due: Sequence[Stored], now: float, *, is_patient: bool
    ) -> tuple[list[Outcome], list[tuple[str, StoreError]]]:
        """A few at a time; what goes wrong with one does not keep the others."""
        outcomes: list[Outcome] = []
        problems: list[tuple[str, StoreError]] = []

        async def advance(stored: Stored) -> None:
            try:
                outcomes.extend(await self._advance(stored, now, is_patient=is_patient))
            except StoreError as error:
                problems.append((stored.kept.schedule.id, error))

        for first in range(0, len(due), AT_ONCE):
            async with asyncio.TaskGroup() as group:
                for stored in due[first : first + AT_ONCE]:
                    group.create_task(advance(stored))
        return outcomes, problems

    async def _advance(self, stored: Stored, now: float, *, is_patient: bool) -> list[Outcome]:
        outcomes: list[Outcome] = []
        if stored.kept.progress.is_under_way:
            if is_patient and not self._is_abandoned(stored):
                return outcomes
            outcomes += await self._carry_out(stored)
            try:
                stored = await self._schedules.get(stored.kept.schedule.id)
            except NotFoundError:
                return outcomes
        if not stored.kept.progress.is_under_way:
            decided = await self._decide(stored, now)
            if decided is not None:
                outcomes += await self._carry_out(decided)
        return outcomes

    def _is_abandoned(self, stored: Stored) -> bool:
        """Whether nothing has come of it for too long, on this process's own clock."""
        schedule_id, now = stored.kept.schedule.id, self._clock.monotonic()
        revision, since = self._seen.get(schedule_id, (0, now))
        if revision != stored.revision:
            since = now
        self._seen[schedule_id] = (stored.revision, since)
        return now - since >= TAKE_OVER_S

    async def _decide(self, stored: Stored, now: float) -> Stored | None:
        """None when nothing is due, or somebody else decides about it."""
        kept = stored.kept
        due = due_of(kept, now)
        if not due.ticks and not due.missed:
            return None
        is_allowed = kept.schedule.overlap is Overlap.ALLOW
        is_final = is_allowed or await self._firing.is_last_final(kept)
        decided = planned(kept, due, now, is_last_final=is_final)
        try:
            decision = await self._schedules.store(stored, decided)
        except ConflictError:
            return None
        self._tell_left_out(kept, decided)
        return decision

    async def _carry_out(self, stored: Stored) -> list[Outcome]:
        if not stored.kept.progress.is_under_way:
            return []
        plan = stored.kept.progress.planned
        outcomes = await self._firing.carry_out(stored.kept)
        while True:
            try:
                await self._schedules.store(stored, carried_out(stored.kept, outcomes))
            except ConflictError:
                try:
                    stored = await self._schedules.get(stored.kept.schedule.id)
                except NotFoundError:  # removed meanwhile; what it has started goes on
                    break
                if stored.kept.progress.planned != plan:  # somebody else has told of it
                    return []
                continue
            break
        self._seen.pop(stored.kept.schedule.id, None)
        for outcome in outcomes:
            self._tell(outcome)
        return outcomes

    def _tell(self, outcome: Outcome) -> None:
        fields: dict[str, object] = {"schedule": outcome.schedule_id, "tick": outcome.tick}
        if outcome.error is None:
            self._telemetry.event(names.SCHEDULE_FIRED, execution_id=outcome.execution_id, **fields)
        else:
            self._telemetry.event(names.SCHEDULE_FAILED, error=outcome.error, **fields)

    def _tell_left_out(self, before: KeptSchedule, after: KeptSchedule) -> None:
        for name, count in (
            (names.SCHEDULE_SKIPPED, after.progress.skipped - before.progress.skipped),
            (names.SCHEDULE_MISSED, after.progress.missed - before.progress.missed),
        ):
            if count:
                self._telemetry.event(name, schedule=after.schedule.id, count=count)
