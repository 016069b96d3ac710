"""Checks schedules, and builds the input and labels of the executions that they start."""

import re
from collections.abc import Iterator
from datetime import UTC, datetime
from math import isfinite

from runnel.authoring.payloads import RESERVED_LABEL_PREFIX, encode_payload
from runnel.core.message_text import describe_value, quote_name
from runnel.core.templates.errors import TemplateError
from runnel.core.templates.template import compile_tree
from runnel.core.values import Json
from runnel.errors import InvalidTriggerError, PayloadError
from runnel.triggers.cron import (
    CronError,
    UnknownZoneError,
    check_cron,
    compute_next_ticks,
    load_zone,
)
from runnel.triggers.due_ticks import CATCH_UP_MAX
from runnel.triggers.trigger import RootScope, find_label_problems, find_target_problems
from runnel.views.trigger import Schedule

SCHEDULE_LABEL = "schedule"
"""Label of an execution. Its value is the id of the schedule that started the execution."""
TICK_LABEL = RESERVED_LABEL_PREFIX + "tick"
"""Label of an execution. Its value is the time of the tick in UTC."""


def build_tick_input(schedule: Schedule, tick: float) -> Json:
    """Returns the input with its templates filled in; raises TemplateError if that fails."""
    values = {"schedule": {"id": schedule.id}, "tick": build_tick_document(schedule, tick)}
    return compile_tree(schedule.input, where="input").resolve(RootScope(values))


def build_tick_labels(schedule: Schedule, tick: float) -> dict[str, str]:
    tick_labels = {SCHEDULE_LABEL: schedule.id, TICK_LABEL: _format_utc(tick)}
    return {**schedule.labels, **schedule.own_labels, **tick_labels}


def build_tick_document(schedule: Schedule, tick: float) -> Json:
    """Returns the value `tick` for templates: its time in UTC and in the schedule's time zone."""
    local = datetime.fromtimestamp(tick, load_zone(schedule.timezone))
    return {
        "at": _format_utc(tick),
        "timestamp": tick,
        "local": local.isoformat(),
        "date": local.date().isoformat(),
        "time": local.time().isoformat(timespec="seconds"),
    }


def _format_utc(tick: float) -> str:
    return datetime.fromtimestamp(tick, UTC).isoformat().replace("+00:00", "Z")


INTERVAL_S_MIN = 1.0
INTERVAL_S_MAX = 10 * 366 * 86_400.0
INPUT_BYTES_MAX = 256 * 1024
# The beginning of the year 9000. datetime supports no year after 9999.
LATEST_TIME = 221_845_392_000.0
NAME_PATTERN = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,99}")


def check_schedule(schedule: Schedule, now: float) -> None:
    """Raises InvalidTriggerError for an invalid schedule; each problem begins with its field."""
    problems = [
        *_find_name_problems(schedule.id),
        *find_target_problems(schedule.workflow, schedule.version),
        *_find_time_problems(schedule),
        *_find_value_problems(schedule),
    ]
    if not problems and not compute_next_ticks(schedule, now, 1):
        problems.append(f"{_get_timing_field(schedule)}: the schedule has no future tick")
    if problems:
        raise InvalidTriggerError(problems, source=f"schedule {quote_name(schedule.id)}")


def _find_name_problems(name: Json) -> Iterator[str]:
    """Yields a problem if the id contains characters that can't be part of a URL."""
    if not isinstance(name, str) or NAME_PATTERN.fullmatch(name) is None:
        yield (
            f"id: expected up to 100 letters, digits, '.', '_' and '-', beginning with a "
            f"letter or digit, got {describe_value(name)}"
        )


def _find_time_problems(schedule: Schedule) -> Iterator[str]:
    if (schedule.cron is None) == (schedule.interval_s is None):
        yield "cron: expected either cron or interval_s, got " + (
            "both" if schedule.cron is not None else "neither"
        )
    if schedule.cron is not None:
        try:
            check_cron(schedule.cron)
        except CronError as error:
            yield f"cron: {error}"
    interval_s = schedule.interval_s
    if interval_s is not None and not INTERVAL_S_MIN <= interval_s <= INTERVAL_S_MAX:
        yield f"interval_s: expected 1 second to 10 years, got {describe_value(interval_s)}"
    try:
        load_zone(schedule.timezone)
    except UnknownZoneError as error:
        yield f"timezone: {error}"
    if not 0 <= schedule.catch_up <= CATCH_UP_MAX:
        yield f"catch_up: expected 0 to {CATCH_UP_MAX}, got {schedule.catch_up}"
    yield from _find_period_problems(schedule)


def _find_period_problems(schedule: Schedule) -> Iterator[str]:
    starts_at, ends_at = schedule.starts_at, schedule.ends_at
    for name, time in (("starts_at", starts_at), ("ends_at", ends_at)):
        if time is not None and not is_valid_time(time):
            yield f"{name}: expected a time up to the year 9000, got {describe_value(time)}"
    if starts_at is not None and ends_at is not None and starts_at > ends_at:
        yield "ends_at: expected a time after starts_at, got an earlier time"


def is_valid_time(time: float) -> bool:
    return isfinite(time) and 0 <= time <= LATEST_TIME


def _find_value_problems(schedule: Schedule) -> Iterator[str]:
    yield from find_label_problems(schedule.labels)
    if SCHEDULE_LABEL in schedule.labels:
        yield f"labels: '{SCHEDULE_LABEL}' is reserved for the id of the schedule; rename the label"
    try:
        data = encode_payload(schedule.input, where="input")
        if len(data) > INPUT_BYTES_MAX:
            yield f"input: expected at most {INPUT_BYTES_MAX:,} bytes, got {len(data):,}"
        else:
            build_tick_input(schedule, 0.0)
    except (PayloadError, TemplateError) as error:
        yield str(error)
    except UnknownZoneError:
        return  # the check of the time zone reports it


def _get_timing_field(schedule: Schedule) -> str:
    return "interval_s" if schedule.cron is None else "cron"
