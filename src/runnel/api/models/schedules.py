"""Schedules as requests and answers have them."""

from typing import Any

from pydantic import BaseModel, ConfigDict, Field

from runnel.api.models.asked import Asked, Named, When
from runnel.api.models.moments import Moment
from runnel.api.models.workflows import VERSION_MAX
from runnel.triggers.schedule import Overlap


class ScheduleBody(Asked):
    """Runs a workflow by `cron` or every `interval_s`."""

    model_config = ConfigDict(
        json_schema_extra={
            "examples": [{"workflow": "hello", "cron": "0 3 * * *", "timezone": "Europe/Berlin"}]
        },
    )

    workflow: str = Field(max_length=500)
    version: int | None = Field(
        default=None, ge=1, le=VERSION_MAX, description="By default the newest at each tick"
    )
    input: Any = Field(
        default={}, description="May hold templates: `{{ tick.at }}`, `{{ tick.date }}`"
    )
    labels: dict[str, str] = Field(default={})
    cron: str | None = Field(
        default=None, max_length=200, description="Minute hour day month weekday, or @daily"
    )
    interval_s: float | None = Field(default=None, description="A second to ten years")
    timezone: str = Field(default="UTC", max_length=100)
    overlap: Named[Overlap] = Field(
        default=Overlap.ALLOW,
        description="While the execution before is not final: start another, skip the tick, or "
        "cancel that one",
    )
    catch_up: int = Field(
        default=1, ge=0, le=100, description="How many missed ticks are made up for after an outage"
    )
    is_paused: bool = False
    starts_at: When | None = None
    ends_at: When | None = None


class NewSchedule(ScheduleBody):
    id: str = Field(max_length=100, description="Letters, digits, '.', '_' and '-'")


class ScheduleAnswer(BaseModel):
    """A schedule, what has become of it, and its next ticks."""

    id: str
    workflow: str
    version: int | None
    input: Any
    labels: dict[str, str]
    cron: str | None
    interval_s: float | None
    timezone: str
    overlap: Overlap
    catch_up: int
    is_paused: bool
    starts_at: Moment | None
    ends_at: Moment | None
    created_at: Moment
    next_ticks: list[Moment]
    fired: int
    skipped: int = Field(description="Because the execution before was not final")
    missed: int = Field(description="In an outage, for good")
    failed: int = Field(description="They could not be started; `last_error` says why")
    last_tick: Moment | None
    last_execution_id: str | None
    last_skipped: Moment | None
    last_error: str | None


class SchedulePage(BaseModel):
    items: list[ScheduleAnswer]
    next: str | None = Field(description="Give this as `after` to get the next page")


class DispatchRequest(Asked):
    now: When | None = Field(default=None, description="The time that an outside scheduler goes by")


class TickOutcome(BaseModel):
    schedule_id: str
    tick: Moment
    execution_id: str | None
    error: str | None


class Dispatched(BaseModel):
    """What was fired by this call; ticks that somebody else has fired are not in it."""

    items: list[TickOutcome]
