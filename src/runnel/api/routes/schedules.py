"""Schedules: add, change, pause, remove; and a door for schedulers from outside."""

from typing import Annotated, TypeAlias

from fastapi import APIRouter, Path, Request

from runnel.api.answers import BODY, problems
from runnel.api.bodies import StrictRoute
from runnel.api.models.schedules import (
    Dispatched,
    DispatchRequest,
    NewSchedule,
    ScheduleAnswer,
    ScheduleBody,
    SchedulePage,
)
from runnel.api.parameters import After, Limit
from runnel.api.security.callers import check_caller, needs
from runnel.api.security.scopes import Scope
from runnel.api.site import OfSite, Site
from runnel.core.json_types import Json
from runnel.triggers.documents import schedule_document
from runnel.triggers.schedule import KeptSchedule, Schedule
from runnel.views import moment

router = APIRouter(tags=["triggers"], route_class=StrictRoute)
READ, RUN, OPERATE = [needs(Scope.READ)], [needs(Scope.RUN)], [needs(Scope.OPERATE)]

ScheduleId: TypeAlias = Annotated[
    str, Path(alias="schedule_id", description="The id of a schedule", max_length=200)
]


@router.post(
    "/schedules",
    operation_id="add_schedule",
    summary="Run a workflow by the clock",
    status_code=201,
    response_model=ScheduleAnswer,
    dependencies=OPERATE,
    responses=problems(*BODY, 404, 409),
)
async def add(site: OfSite, wanted: NewSchedule) -> dict[str, Json]:
    return _answer(site, await site.schedules.add(_schedule(wanted.id, wanted)))


@router.get(
    "/schedules",
    operation_id="list_schedules",
    summary="All schedules, by id",
    response_model=SchedulePage,
    dependencies=READ,
    responses=problems(422),
)
async def list_schedules(site: OfSite, limit: Limit = 50, after: After = None) -> dict[str, Json]:
    found = await site.schedules.list(after=after or "", limit=limit)
    last = found[-1].schedule.id if len(found) == limit else None
    return {"items": [_answer(site, each) for each in found], "next": last}


@router.get(
    "/schedules/{schedule_id}",
    operation_id="read_schedule",
    summary="A schedule with its next ticks",
    response_model=ScheduleAnswer,
    dependencies=READ,
    responses=problems(404, 422),
)
async def read(schedule_id: ScheduleId, site: OfSite) -> dict[str, Json]:
    return _answer(site, (await site.schedules.get(schedule_id)).kept)


@router.put(
    "/schedules/{schedule_id}",
    operation_id="replace_schedule",
    summary="Change a schedule; ticks of before are not made up for",
    response_model=ScheduleAnswer,
    dependencies=OPERATE,
    responses=problems(*BODY, 404, 409),
)
async def replace(schedule_id: ScheduleId, site: OfSite, wanted: ScheduleBody) -> dict[str, Json]:
    changed = _schedule(schedule_id, wanted)
    return _answer(site, await site.schedules.change(schedule_id, lambda _former: changed))


@router.post(
    "/schedules/{schedule_id}/pause",
    operation_id="pause_schedule",
    summary="Fire nothing until it is resumed",
    response_model=ScheduleAnswer,
    dependencies=OPERATE,
    responses=problems(404, 422),
)
async def pause(schedule_id: ScheduleId, site: OfSite) -> dict[str, Json]:
    return _answer(site, await site.schedules.pause(schedule_id))


@router.post(
    "/schedules/{schedule_id}/resume",
    operation_id="resume_schedule",
    summary="Go on with a schedule; what fell into the pause is not made up for",
    response_model=ScheduleAnswer,
    dependencies=OPERATE,
    responses=problems(404, 422),
)
async def resume(schedule_id: ScheduleId, site: OfSite) -> dict[str, Json]:
    return _answer(site, await site.schedules.pause(schedule_id, is_paused=False))


@router.delete(
    "/schedules/{schedule_id}",
    operation_id="remove_schedule",
    summary="Remove a schedule; what it has started goes on",
    status_code=204,
    dependencies=OPERATE,
    responses=problems(404, 422),
)
async def remove(schedule_id: ScheduleId, site: OfSite) -> None:
    await site.schedules.remove(schedule_id)


@router.post(
    "/triggers/cron/dispatch",
    operation_id="dispatch_schedules",
    summary="Fire all ticks that are due, for a scheduler from outside",
    response_model=Dispatched,
    dependencies=RUN,
    responses=problems(*BODY),
)
async def dispatch(
    request: Request, site: OfSite, wanted: DispatchRequest | None = None
) -> dict[str, Json]:
    """`now` needs the scope `operate`: what lies before it is not fired by the clock any more."""
    if wanted is not None and wanted.now is not None:
        check_caller(request, Scope.OPERATE)
    now = None if wanted is None or wanted.now is None else wanted.now.timestamp()
    outcomes = await site.scheduler.dispatch(now)
    return {
        "items": [
            {
                "schedule_id": each.schedule_id,
                "tick": moment(each.tick),
                "execution_id": each.execution_id,
                "error": each.error,
            }
            for each in outcomes
        ]
    }


def _schedule(schedule_id: str, wanted: ScheduleBody) -> Schedule:
    starts_at, ends_at = wanted.starts_at, wanted.ends_at
    return Schedule(
        id=schedule_id,
        workflow=wanted.workflow,
        version=wanted.version,
        input=wanted.input,
        labels=wanted.labels,
        cron=wanted.cron,
        interval_s=wanted.interval_s,
        timezone=wanted.timezone,
        overlap=wanted.overlap,
        catch_up=wanted.catch_up,
        is_paused=wanted.is_paused,
        starts_at=None if starts_at is None else starts_at.timestamp(),
        ends_at=None if ends_at is None else ends_at.timestamp(),
    )


def _answer(site: Site, kept: KeptSchedule) -> dict[str, Json]:
    return schedule_document(kept, site.clock.now())
