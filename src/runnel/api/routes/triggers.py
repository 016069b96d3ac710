"""Schedules: add, change, pause, remove; and a door for schedulers from outside."""

from typing import Annotated, TypeAlias

from fastapi import APIRouter, Path, Query, Request, Response
from fastapi.responses import JSONResponse

from runnel.api.models import (
    Challenge,
    Delivered,
    Dispatched,
    DispatchRequest,
    NewSchedule,
    ScheduleAnswer,
    ScheduleBody,
    SchedulePage,
    WebhookAnswer,
    WebhookBody,
    WebhookPage,
)
from runnel.api.requests import After, Limit, NamePath, StrictRoute
from runnel.api.responses import BODY, problems
from runnel.api.security.guard import check_caller, needs
from runnel.api.security.tokens import Scope
from runnel.api.state import OfSite, Site
from runnel.core.states import ExecutionState
from runnel.core.values import Json
from runnel.core.wording import printable
from runnel.errors import NotFoundError
from runnel.triggers.deliveries import Delivery
from runnel.triggers.schedule import KeptSchedule, Schedule
from runnel.triggers.schedule_store import schedule_document, webhook_document
from runnel.triggers.webhook import Webhook
from runnel.views.execution import moment

schedules_router = APIRouter(tags=["triggers"], route_class=StrictRoute)
READ, RUN, OPERATE = [needs(Scope.READ)], [needs(Scope.RUN)], [needs(Scope.OPERATE)]

ScheduleId: TypeAlias = Annotated[
    str, Path(alias="schedule_id", description="The id of a schedule", max_length=200)
]


@schedules_router.post(
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


@schedules_router.get(
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


@schedules_router.get(
    "/schedules/{schedule_id}",
    operation_id="read_schedule",
    summary="A schedule with its next ticks",
    response_model=ScheduleAnswer,
    dependencies=READ,
    responses=problems(404, 422),
)
async def read_schedule(schedule_id: ScheduleId, site: OfSite) -> dict[str, Json]:
    return _answer(site, (await site.schedules.get(schedule_id)).kept)


@schedules_router.put(
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


@schedules_router.post(
    "/schedules/{schedule_id}/pause",
    operation_id="pause_schedule",
    summary="Fire nothing until it is resumed",
    response_model=ScheduleAnswer,
    dependencies=OPERATE,
    responses=problems(404, 422),
)
async def pause(schedule_id: ScheduleId, site: OfSite) -> dict[str, Json]:
    return _answer(site, await site.schedules.pause(schedule_id))


@schedules_router.post(
    "/schedules/{schedule_id}/resume",
    operation_id="resume_schedule",
    summary="Go on with a schedule; what fell into the pause is not made up for",
    response_model=ScheduleAnswer,
    dependencies=OPERATE,
    responses=problems(404, 422),
)
async def resume(schedule_id: ScheduleId, site: OfSite) -> dict[str, Json]:
    return _answer(site, await site.schedules.pause(schedule_id, is_paused=False))


@schedules_router.delete(
    "/schedules/{schedule_id}",
    operation_id="remove_schedule",
    summary="Remove a schedule; what it has started goes on",
    status_code=204,
    dependencies=OPERATE,
    responses=problems(404, 422),
)
async def remove_schedule(schedule_id: ScheduleId, site: OfSite) -> None:
    await site.schedules.remove(schedule_id)


@schedules_router.post(
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


# Webhooks: who may call from outside, and the calls themselves.

webhooks_router = APIRouter(tags=["triggers"], route_class=StrictRoute)
WEBHOOKS_READ, WEBHOOKS_OPERATE = [needs(Scope.READ)], [needs(Scope.OPERATE)]
PATH = "/workflows/{name:path}/triggers/webhook"
_ANYTHING = {
    "requestBody": {
        "content": {
            "application/json": {"schema": {}},
            "application/x-www-form-urlencoded": {"schema": {"type": "object"}},
            "text/plain": {"schema": {"type": "string"}},
        }
    }
}


@webhooks_router.post(
    PATH,
    operation_id="call_webhook",
    summary="Begin an execution from outside; who calls is known by its secret or signature",
    status_code=202,
    response_model=Delivered,
    responses={
        **problems(404, 409, 413, 422),
        200: {"model": Challenge, "description": "Slack's challenge is answered"},
    },
    openapi_extra=_ANYTHING,
)
async def call(name: NamePath, request: Request, site: OfSite) -> Response:
    webhook = await site.webhooks.find(name)
    if webhook is None:  # and nothing of those that there are, to whom nobody knows
        raise NotFoundError("webhook of workflow", printable(name))
    query = request.query_params.multi_items()
    delivery = Delivery.of(request.headers.items(), query, await request.body())
    received = await site.receiver.receive(webhook, delivery)
    if received.challenge is not None:
        return JSONResponse({"challenge": received.challenge})
    found = received.execution_id
    header = None if found is None else await site.backend.archive.get_header(found)
    state = ExecutionState.PENDING if header is None else header.state
    answer = {"execution_id": found, "run_id": found, "status": state}
    return JSONResponse(answer, status_code=202)


@webhooks_router.put(
    PATH,
    operation_id="put_webhook",
    summary="Let a workflow be started from outside, or change how",
    response_model=WebhookAnswer,
    dependencies=WEBHOOKS_OPERATE,
    responses=problems(*BODY, 404, 409),
)
async def put(
    name: NamePath,
    site: OfSite,
    wanted: WebhookBody,
    *,
    is_new: Annotated[bool, Query(description="Refuse to replace one")] = False,
) -> dict[str, Json]:
    webhook = Webhook(
        workflow=name,
        version=wanted.version,
        kind=wanted.kind,
        secret=wanted.secret,
        header=wanted.header,
        mapping=wanted.mapping,
        delivery_id=wanted.delivery_id,
        labels=wanted.labels,
    )
    return webhook_document(await site.webhooks.add(webhook, replaces=not is_new))


@webhooks_router.get(
    PATH,
    operation_id="read_webhook",
    summary="The webhook of a workflow",
    response_model=WebhookAnswer,
    dependencies=WEBHOOKS_READ,
    responses=problems(404, 422),
)
async def read_webhook(name: NamePath, site: OfSite) -> dict[str, Json]:
    return webhook_document(await site.webhooks.get(name))


@webhooks_router.delete(
    PATH,
    operation_id="remove_webhook",
    summary="Let nobody start the workflow from outside any more",
    status_code=204,
    dependencies=WEBHOOKS_OPERATE,
    responses=problems(404, 422),
)
async def remove_webhook(name: NamePath, site: OfSite) -> None:
    await site.webhooks.remove(name)


@webhooks_router.get(
    "/webhooks",
    operation_id="list_webhooks",
    summary="All webhooks, by workflow",
    response_model=WebhookPage,
    dependencies=WEBHOOKS_READ,
    responses=problems(422),
)
async def list_webhooks(site: OfSite, limit: Limit = 50, after: After = None) -> dict[str, Json]:
    found = await site.webhooks.list(after=after or "", limit=limit)
    last = found[-1].workflow if len(found) == limit else None
    return {"items": [webhook_document(each) for each in found], "next": last}
