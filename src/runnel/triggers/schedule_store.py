"""The schedules that there are: added, changed and removed by people, while they fire."""

import asyncio
from collections.abc import AsyncIterator, Callable, Sequence
from datetime import datetime

import msgspec

from runnel.authoring.input_schema import check_input
from runnel.client.definitions import Definitions, Library, wanted_workflow
from runnel.core.values import Json
from runnel.core.wording import did_you_mean, printable
from runnel.errors import ConflictError, NotFoundError
from runnel.ports import Backend
from runnel.ports.clock import Clock, Ids
from runnel.ports.records import Record
from runnel.triggers.schedule import (
    KIND,
    KeptSchedule,
    Progress,
    Schedule,
    Stored,
    decode_schedule,
    encode_schedule,
)
from runnel.triggers.schedule_checks import NAME, check_schedule, input_of
from runnel.triggers.ticks import next_ticks, zone_of
from runnel.triggers.webhook import Webhook, WebhookKind
from runnel.views.execution import moment

PAGE = 200
# Ticks that were fired ahead of time are not fired again. Where that was by more than a day, a
# clock was wrong, and whoever changes the schedule, or pauses and resumes it, wants it to go on.
AHEAD_S_MAX = 86_400.0
_RUN = ("workflow", "version", "input")
_TIMING = ("cron", "interval_s", "timezone", "starts_at", "ends_at", "is_paused")


class Schedules:
    def __init__(self, backend: Backend, clock: Clock, ids: Ids) -> None:
        self._records = backend.records
        self._library = Library(backend.archive, Definitions(backend.archive, clock))
        self._clock = clock
        self._ids = ids

    async def add(self, schedule: Schedule) -> KeptSchedule:
        """Its first tick is the next one from now on.

        Raises InvalidTriggerError; NotFoundError for a workflow that does not exist and
        InvalidInputError for an input that it does not take; ConflictError when there is a schedule
        of this id.
        """
        now = self._clock.now()
        schedule = _with_start(schedule, None, now)
        check_schedule(schedule, now)
        await self._require_workflow(schedule)
        kept = KeptSchedule(
            schedule=schedule,
            nonce=self._ids.nonce(),
            created_at=now,
            progress=Progress(cursor=now),
        )
        await self._records.put(KIND, schedule.id, encode_schedule(kept), revision=0)
        return kept

    async def change(
        self, schedule_id: str, change: Callable[[Schedule], Schedule]
    ) -> KeptSchedule:
        """Stores what `change` makes of the schedule, which may be called several times.

        If it changes the ticks, those count that come from now on: what fell into a pause is not
        made up for. Raises as `add` does, and NotFoundError.
        """
        while True:
            stored = await self.get(schedule_id)
            kept = await self._changed(stored.kept, change(stored.kept.schedule))
            try:
                await self.store(stored, kept)
            except ConflictError:
                continue
            return kept

    async def pause(self, schedule_id: str, *, is_paused: bool = True) -> KeptSchedule:
        """Or goes on with it; raises NotFoundError."""
        return await self.change(
            schedule_id, lambda found: msgspec.structs.replace(found, is_paused=is_paused)
        )

    async def remove(self, schedule_id: str) -> None:
        """What it has started goes on; raises NotFoundError."""
        await self.get(schedule_id)
        if not await self._records.delete(KIND, schedule_id):
            raise await self._unknown(schedule_id)

    async def get(self, schedule_id: str) -> Stored:
        """Raises NotFoundError, UnreadableFormatError."""
        is_name = NAME.fullmatch(schedule_id) is not None
        record = await self._records.get(KIND, schedule_id) if is_name else None
        if record is None:
            raise await self._unknown(schedule_id)
        return Stored(decode_schedule(record.data), record.revision)

    async def list(self, *, after: str = "", limit: int = 50) -> Sequence[KeptSchedule]:
        """By id; `after` is the last id of the previous page."""
        records = await self._records.list(KIND, after=after, limit=limit)
        return [decode_schedule(record.data) for record in records]

    async def records(self) -> AsyncIterator[Record]:
        """All of them as they are stored: one that can't be read keeps nobody from the others."""
        after = ""
        while page := await self._records.list(KIND, after=after, limit=PAGE):
            for record in page:
                yield record
            after = page[-1].key
            if len(page) < PAGE:
                return
            await asyncio.sleep(0)  # a page can take 16 ms: others want to go on, too

    async def store(self, stored: Stored, kept: KeptSchedule) -> Stored:
        """Raises ConflictError when it is not what is stored any more."""
        data = encode_schedule(kept)
        revision = await self._records.put(KIND, kept.schedule.id, data, revision=stored.revision)
        return Stored(kept, revision)

    async def _changed(self, kept: KeptSchedule, changed: Schedule) -> KeptSchedule:
        now = self._clock.now()
        former = kept.schedule
        own_labels = changed.own_labels or former.own_labels
        schedule = msgspec.structs.replace(changed, id=former.id, own_labels=own_labels)
        schedule = _with_start(schedule, former, now)
        if msgspec.structs.replace(schedule, is_paused=former.is_paused) != former:
            check_schedule(schedule, now)
        if any(getattr(schedule, name) != getattr(former, name) for name in _RUN):
            await self._require_workflow(schedule)
        progress = kept.progress
        if any(getattr(schedule, name) != getattr(former, name) for name in _TIMING):
            is_lost = progress.cursor > now + AHEAD_S_MAX
            cursor = now if is_lost else max(progress.cursor, now)
            progress = msgspec.structs.replace(progress, cursor=cursor)
        return msgspec.structs.replace(kept, schedule=schedule, progress=progress)

    async def _require_workflow(self, schedule: Schedule) -> None:
        workflow = await wanted_workflow(self._library, schedule.workflow, schedule.version)
        check_input(workflow, input_of(schedule, self._clock.now()))

    async def _unknown(self, schedule_id: str) -> NotFoundError:
        known = [record.key for record in await self._records.list(KIND, limit=1_000)]
        close = did_you_mean(schedule_id, known).strip(" ()")
        hint = close or "'runnel schedule list' shows those that exist"
        return NotFoundError("schedule", printable(schedule_id), hint=hint)


def _with_start(schedule: Schedule, former: Schedule | None, now: float) -> Schedule:
    """An interval needs a moment to be counted from, which a change of something else keeps."""
    if schedule.interval_s is None or schedule.starts_at is not None:
        return schedule
    start = float(int(now))
    if former is not None and former.interval_s == schedule.interval_s:
        start = former.starts_at or start
    return msgspec.structs.replace(schedule, starts_at=start)


# Schedules and webhooks as they are shown: one model for the CLI and the API.

NEXT = 5


def schedule_document(kept: KeptSchedule, now: float, *, ticks: int = NEXT) -> dict[str, Json]:
    """All of it, with the next ticks: none while it is paused, or when it has ended."""
    schedule, progress = kept.schedule, kept.progress
    return {
        "id": schedule.id,
        "workflow": schedule.workflow,
        "version": schedule.version,
        "cron": schedule.cron,
        "interval_s": schedule.interval_s,
        "timezone": schedule.timezone,
        "input": schedule.input,
        "labels": schedule.labels,
        "overlap": schedule.overlap.value,
        "catch_up": schedule.catch_up,
        "is_paused": schedule.is_paused,
        "starts_at": moment(schedule.starts_at),
        "ends_at": moment(schedule.ends_at),
        "created_at": moment(kept.created_at),
        "next_ticks": [in_zone(schedule, tick) for tick in coming(kept, now, ticks)],
        "last_tick": moment(progress.last_tick),
        "last_execution_id": progress.last_execution,
        "last_skipped": moment(progress.last_skipped),
        "last_error": progress.last_error,
        "fired": progress.fired,
        "skipped": progress.skipped,
        "missed": progress.missed,
        "failed": progress.failed,
    }


def coming(kept: KeptSchedule, now: float, count: int) -> list[float]:
    """The ticks that will be fired next."""
    if kept.schedule.is_paused:
        return []
    return list(next_ticks(kept.schedule, max(kept.progress.cursor, now), count))


def in_zone(schedule: Schedule, tick: float) -> str:
    """`2026-03-29T03:00:00+02:00`: as the clocks of the schedule's zone show it."""
    return datetime.fromtimestamp(tick, zone_of(schedule.timezone)).isoformat()


def webhook_document(webhook: Webhook) -> dict[str, Json]:
    """All of it; of the secret, there is nothing but its name."""
    return {
        "workflow": webhook.workflow,
        "version": webhook.version,
        "kind": webhook.kind.value,
        "secret": webhook.secret,
        "header": webhook.header if webhook.kind is WebhookKind.TOKEN else None,
        "mapping": webhook.mapping,
        "delivery_id": webhook.delivery_id,
        "labels": webhook.labels,
        "created_at": moment(webhook.created_at),
    }
