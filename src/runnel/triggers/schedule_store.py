"""The store of schedules, and the view of a schedule that the API sends and the CLI prints."""

import asyncio
from collections.abc import AsyncIterator, Callable, Sequence
from datetime import datetime

import msgspec

from runnel.authoring.input_schema import check_input
from runnel.client.definitions import DefinitionCache, WorkflowLibrary, find_workflow_or_suggest
from runnel.errors import ConflictError, NotFoundError
from runnel.ports import Backend
from runnel.ports.clock import Clock, IdGenerator
from runnel.ports.records import Record
from runnel.triggers.cron import compute_next_ticks, load_zone
from runnel.triggers.schedule import (
    SCHEDULE_KIND,
    ScheduleProgress,
    ScheduleRecord,
    StoredSchedule,
    decode_schedule,
    encode_schedule,
)
from runnel.triggers.schedule_checks import NAME_PATTERN, build_tick_input, check_schedule
from runnel.triggers.trigger import build_unknown_trigger_error
from runnel.views import Timestamp, make_timestamp
from runnel.views.trigger import Schedule, ScheduleView

PAGE_SIZE = 200
# If the cursor of a schedule is in the future, ticks were fired ahead of time; they are not fired
# again. A cursor that is more than a day ahead comes from a wrong clock. Then a change of the
# schedule, or pause and resume, resets the cursor to now.
CURSOR_AHEAD_S_MAX = 86_400.0
_WORKFLOW_FIELDS = ("workflow", "version", "input")
_TIMING_FIELDS = ("cron", "interval_s", "timezone", "starts_at", "ends_at", "is_paused")


class ScheduleStore:
    """Adds, changes, reads and removes schedules. Changes are safe while a scheduler runs."""

    def __init__(self, backend: Backend, clock: Clock, ids: IdGenerator) -> None:
        self._records = backend.records
        self._library = WorkflowLibrary(backend, DefinitionCache(backend.archive, clock), clock)
        self._clock = clock
        self._ids = ids

    async def add(self, schedule: Schedule) -> ScheduleRecord:
        """Stores a new schedule, which fires only ticks after the current time.

        Raises InvalidTriggerError if the schedule is invalid, and NotFoundError if the workflow
        does not exist. Raises InvalidInputError if the input does not match the workflow, and
        ConflictError if the id is taken.
        """
        now = self._clock.now()
        schedule = _set_start(schedule, None, now)
        check_schedule(schedule, now)
        await self._check_workflow(schedule)
        record = ScheduleRecord(
            schedule=schedule,
            nonce=self._ids.nonce(),
            created_at=now,
            progress=ScheduleProgress(cursor=now),
        )
        await self._records.put(SCHEDULE_KIND, schedule.id, encode_schedule(record), revision=0)
        return record

    async def change(
        self, schedule_id: str, change: Callable[[Schedule], Schedule]
    ) -> ScheduleRecord:
        """Stores the result of `change(schedule)`; calls `change` again after a concurrent change.

        If the timing changes, or a pause ends, only ticks after the current time are fired: ticks
        during a pause are not caught up. Raises NotFoundError, and the errors of `add`.
        """
        while True:
            stored = await self.get(schedule_id)
            changed = await self._apply_change(stored.record, change(stored.record.schedule))
            try:
                await self.store(stored, changed)
            except ConflictError:
                continue
            return changed

    async def pause(self, schedule_id: str, *, is_paused: bool = True) -> ScheduleRecord:
        """Pauses the schedule; with `is_paused=False`, resumes it. Raises NotFoundError."""
        return await self.change(
            schedule_id, lambda schedule: msgspec.structs.replace(schedule, is_paused=is_paused)
        )

    async def remove(self, schedule_id: str) -> None:
        """Removes the schedule; executions that it started continue. Raises NotFoundError."""
        await self.get(schedule_id)
        if not await self._records.delete(SCHEDULE_KIND, schedule_id):
            raise await self._build_not_found_error(schedule_id)

    async def get(self, schedule_id: str) -> StoredSchedule:
        """Returns a schedule; raises NotFoundError or UnreadableFormatError."""
        is_name = NAME_PATTERN.fullmatch(schedule_id) is not None
        record = await self._records.get(SCHEDULE_KIND, schedule_id) if is_name else None
        if record is None:
            raise await self._build_not_found_error(schedule_id)
        return StoredSchedule(decode_schedule(record.data), record.revision)

    async def list(self, *, after: str = "", limit: int = 50) -> Sequence[ScheduleRecord]:
        """Returns a page of schedules. `after` is the last id of the previous page."""
        records = await self._records.list(SCHEDULE_KIND, after=after, limit=limit)
        return [decode_schedule(record.data) for record in records]

    async def records(self) -> AsyncIterator[Record]:
        """Yields all records undecoded, so that a damaged record does not stop other schedules."""
        after = ""
        while page := await self._records.list(SCHEDULE_KIND, after=after, limit=PAGE_SIZE):
            for record in page:
                yield record
            after = page[-1].key
            if len(page) < PAGE_SIZE:
                return
            await asyncio.sleep(0)  # a page can take 16 ms; lets other tasks run

    async def store(self, stored: StoredSchedule, record: ScheduleRecord) -> StoredSchedule:
        """Stores a new version of a record; raises ConflictError after a concurrent change."""
        data = encode_schedule(record)
        revision = await self._records.put(
            SCHEDULE_KIND, record.schedule.id, data, revision=stored.revision
        )
        return StoredSchedule(record, revision)

    async def _apply_change(self, record: ScheduleRecord, changed: Schedule) -> ScheduleRecord:
        now = self._clock.now()
        previous = record.schedule
        own_labels = changed.own_labels or previous.own_labels
        schedule = msgspec.structs.replace(changed, id=previous.id, own_labels=own_labels)
        schedule = _set_start(schedule, previous, now)
        if msgspec.structs.replace(schedule, is_paused=previous.is_paused) != previous:
            check_schedule(schedule, now)
        if any(getattr(schedule, name) != getattr(previous, name) for name in _WORKFLOW_FIELDS):
            await self._check_workflow(schedule)
        progress = record.progress
        if any(getattr(schedule, name) != getattr(previous, name) for name in _TIMING_FIELDS):
            is_wrong = progress.cursor > now + CURSOR_AHEAD_S_MAX
            cursor = now if is_wrong else max(progress.cursor, now)
            progress = msgspec.structs.replace(progress, cursor=cursor)
        return msgspec.structs.replace(record, schedule=schedule, progress=progress)

    async def _check_workflow(self, schedule: Schedule) -> None:
        workflow = await find_workflow_or_suggest(
            self._library, schedule.workflow, schedule.version
        )
        input_ = build_tick_input(schedule, self._clock.now())
        await asyncio.to_thread(check_input, workflow, input_)

    async def _build_not_found_error(self, schedule_id: str) -> NotFoundError:
        return await build_unknown_trigger_error(
            self._records, SCHEDULE_KIND, schedule_id, title="schedule"
        )


def _set_start(schedule: Schedule, previous: Schedule | None, now: float) -> Schedule:
    """Returns the schedule; sets `starts_at` of an interval schedule that has no start.

    If the interval is unchanged, the start of the previous version is kept.
    """
    if schedule.interval_s is None or schedule.starts_at is not None:
        return schedule
    start = float(int(now))
    if previous is not None and previous.interval_s == schedule.interval_s:
        start = previous.starts_at or start
    return msgspec.structs.replace(schedule, starts_at=start)


class StoreSchedules:
    """Implements the client's `Schedules` with a ScheduleStore. Its methods return views."""

    def __init__(self, store: ScheduleStore, clock: Clock) -> None:
        self._store = store
        self._clock = clock

    async def add(self, schedule: Schedule) -> ScheduleView:
        return self._build_view(await self._store.add(schedule))

    async def list(self, *, after: str = "", limit: int = 50) -> Sequence[ScheduleView]:
        records = await self._store.list(after=after, limit=limit)
        return [self._build_view(record) for record in records]

    async def get(self, schedule_id: str) -> ScheduleView:
        return self._build_view((await self._store.get(schedule_id)).record)

    async def change(self, schedule_id: str, changed: Schedule) -> ScheduleView:
        return self._build_view(await self._store.change(schedule_id, lambda _former: changed))

    async def pause(self, schedule_id: str, *, is_paused: bool = True) -> ScheduleView:
        return self._build_view(await self._store.pause(schedule_id, is_paused=is_paused))

    async def remove(self, schedule_id: str) -> None:
        await self._store.remove(schedule_id)

    def _build_view(self, record: ScheduleRecord) -> ScheduleView:
        return build_schedule_view(record, self._clock.now())


NEXT_TICKS_SHOWN = 5


def build_schedule_view(
    record: ScheduleRecord, now: float, *, ticks: int = NEXT_TICKS_SHOWN
) -> ScheduleView:
    """Builds the view of a schedule. A paused or ended schedule has no next ticks."""
    schedule, progress = record.schedule, record.progress
    return ScheduleView(
        id=schedule.id,
        workflow=schedule.workflow,
        version=schedule.version,
        input=schedule.input,
        labels=schedule.labels,
        cron=schedule.cron,
        interval_s=schedule.interval_s,
        timezone=schedule.timezone,
        overlap=schedule.overlap,
        catch_up=schedule.catch_up,
        is_paused=schedule.is_paused,
        starts_at=make_timestamp(schedule.starts_at),
        ends_at=make_timestamp(schedule.ends_at),
        created_at=Timestamp(record.created_at),
        next_ticks=[
            format_in_zone(schedule, tick) for tick in find_upcoming_ticks(record, now, ticks)
        ],
        fired=progress.fired,
        skipped=progress.skipped,
        missed=progress.missed,
        failed=progress.failed,
        last_tick=make_timestamp(progress.last_tick),
        last_execution_id=progress.last_execution,
        last_skipped=make_timestamp(progress.last_skipped),
        last_error=progress.last_error,
    )


def find_upcoming_ticks(record: ScheduleRecord, now: float, count: int) -> list[float]:
    """Returns the next `count` ticks; no ticks for a paused schedule."""
    if record.schedule.is_paused:
        return []
    return list(compute_next_ticks(record.schedule, max(record.progress.cursor, now), count))


def format_in_zone(schedule: Schedule, tick: float) -> str:
    """Formats a tick in the schedule's time zone: `2026-03-29T03:00:00+02:00`."""
    return datetime.fromtimestamp(tick, load_zone(schedule.timezone)).isoformat()
