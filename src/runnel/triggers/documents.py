"""Schedules and webhooks as they are shown: one model for the CLI and the API."""

from datetime import datetime

from runnel.core.json_types import Json
from runnel.triggers.schedule import KeptSchedule, Schedule
from runnel.triggers.ticks import next_ticks
from runnel.triggers.webhook import Webhook, WebhookKind
from runnel.triggers.zones import zone_of
from runnel.views import moment

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
