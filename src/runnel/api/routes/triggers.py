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
from runnel.api.requests import AfterParam, LimitParam, StrictRoute, WorkflowNameParam
from runnel.api.responses import BODY_STATUSES, describe_problems
from runnel.api.security.guard import check_caller_scope, require_scope
from runnel.api.state import AppState, AppStateDependency
from runnel.core.states import ExecutionState
from runnel.core.values import Json
from runnel.core.wording import escape_unprintable
from runnel.errors import NotFoundError
from runnel.triggers.deliveries import Delivery
from runnel.triggers.schedule import ScheduleRecord
from runnel.triggers.schedule_store import build_schedule_document, build_webhook_document
from runnel.views.execution import format_time
from runnel.views.token import Scope
from runnel.views.trigger import Schedule, Webhook

schedules_router = APIRouter(tags=["triggers"], route_class=StrictRoute)
READ, RUN, OPERATE = (
    [require_scope(Scope.READ)],
    [require_scope(Scope.RUN)],
    [require_scope(Scope.OPERATE)],
)

ScheduleIdParam: TypeAlias = Annotated[
    str, Path(alias="schedule_id", description="The id of a schedule", max_length=200)
]


@schedules_router.post(
    "/schedules",
    operation_id="add_schedule",
    summary="Run a workflow by the clock",
    status_code=201,
    response_model=ScheduleAnswer,
    dependencies=OPERATE,
    responses=describe_problems(*BODY_STATUSES, 404, 409),
)
async def add(app_state: AppStateDependency, body: NewSchedule) -> dict[str, Json]:
    return _build_answer(app_state, await app_state.schedules.add(_build_schedule(body.id, body)))


@schedules_router.get(
    "/schedules",
    operation_id="list_schedules",
    summary="All schedules, by id",
    response_model=SchedulePage,
    dependencies=READ,
    responses=describe_problems(422),
)
async def list_schedules(
    app_state: AppStateDependency, limit: LimitParam = 50, after: AfterParam = None
) -> dict[str, Json]:
    found = await app_state.schedules.list(after=after or "", limit=limit)
    last = found[-1].schedule.id if len(found) == limit else None
    return {"items": [_build_answer(app_state, each) for each in found], "next": last}


@schedules_router.get(
    "/schedules/{schedule_id}",
    operation_id="read_schedule",
    summary="A schedule with its next ticks",
    response_model=ScheduleAnswer,
    dependencies=READ,
    responses=describe_problems(404, 422),
)
async def read_schedule(
    schedule_id: ScheduleIdParam, app_state: AppStateDependency
) -> dict[str, Json]:
    return _build_answer(app_state, (await app_state.schedules.get(schedule_id)).record)


@schedules_router.put(
    "/schedules/{schedule_id}",
    operation_id="replace_schedule",
    summary="Change a schedule; ticks of before are not made up for",
    response_model=ScheduleAnswer,
    dependencies=OPERATE,
    responses=describe_problems(*BODY_STATUSES, 404, 409),
)
async def replace(
    schedule_id: ScheduleIdParam, app_state: AppStateDependency, body: ScheduleBody
) -> dict[str, Json]:
    changed = _build_schedule(schedule_id, body)
    return _build_answer(
        app_state, await app_state.schedules.change(schedule_id, lambda _former: changed)
    )


@schedules_router.post(
    "/schedules/{schedule_id}/pause",
    operation_id="pause_schedule",
    summary="Fire nothing until it is resumed",
    response_model=ScheduleAnswer,
    dependencies=OPERATE,
    responses=describe_problems(404, 422),
)
async def pause(schedule_id: ScheduleIdParam, app_state: AppStateDependency) -> dict[str, Json]:
    return _build_answer(app_state, await app_state.schedules.pause(schedule_id))


@schedules_router.post(
    "/schedules/{schedule_id}/resume",
    operation_id="resume_schedule",
    summary="Go on with a schedule; what fell into the pause is not made up for",
    response_model=ScheduleAnswer,
    dependencies=OPERATE,
    responses=describe_problems(404, 422),
)
async def resume(schedule_id: ScheduleIdParam, app_state: AppStateDependency) -> dict[str, Json]:
    return _build_answer(app_state, await app_state.schedules.pause(schedule_id, is_paused=False))


@schedules_router.delete(
    "/schedules/{schedule_id}",
    operation_id="remove_schedule",
    summary="Remove a schedule; what it has started goes on",
    status_code=204,
    dependencies=OPERATE,
    responses=describe_problems(404, 422),
)
async def remove_schedule(schedule_id: ScheduleIdParam, app_state: AppStateDependency) -> None:
    await app_state.schedules.remove(schedule_id)


@schedules_router.post(
    "/triggers/cron/dispatch",
    operation_id="dispatch_schedules",
    summary="Fire all ticks that are due, for a scheduler from outside",
    response_model=Dispatched,
    dependencies=RUN,
    responses=describe_problems(*BODY_STATUSES),
)
async def dispatch(
    request: Request, app_state: AppStateDependency, wanted: DispatchRequest | None = None
) -> dict[str, Json]:
    """`now` needs the scope `operate`: what lies before it is not fired by the clock any more."""
    if wanted is not None and wanted.now is not None:
        check_caller_scope(request, Scope.OPERATE)
    now = None if wanted is None or wanted.now is None else wanted.now.timestamp()
    outcomes = await app_state.scheduler.dispatch(now)
    return {
        "items": [
            {
                "schedule_id": each.schedule_id,
                "tick": format_time(each.tick),
                "execution_id": each.execution_id,
                "error": each.error,
            }
            for each in outcomes
        ]
    }


def _build_schedule(schedule_id: str, body: ScheduleBody) -> Schedule:
    starts_at, ends_at = body.starts_at, body.ends_at
    return Schedule(
        id=schedule_id,
        workflow=body.workflow,
        version=body.version,
        input=body.input,
        labels=body.labels,
        cron=body.cron,
        interval_s=body.interval_s,
        timezone=body.timezone,
        overlap=body.overlap,
        catch_up=body.catch_up,
        is_paused=body.is_paused,
        starts_at=None if starts_at is None else starts_at.timestamp(),
        ends_at=None if ends_at is None else ends_at.timestamp(),
    )


def _build_answer(app_state: AppState, kept: ScheduleRecord) -> dict[str, Json]:
    return build_schedule_document(kept, app_state.clock.now())


# Webhooks: who may call from outside, and the calls themselves.

webhooks_router = APIRouter(tags=["triggers"], route_class=StrictRoute)
WEBHOOKS_READ, WEBHOOKS_OPERATE = [require_scope(Scope.READ)], [require_scope(Scope.OPERATE)]
WEBHOOK_PATH = "/workflows/{name:path}/triggers/webhook"
_ANY_BODY = {
    "requestBody": {
        "content": {
            "application/json": {"schema": {}},
            "application/x-www-form-urlencoded": {"schema": {"type": "object"}},
            "text/plain": {"schema": {"type": "string"}},
        }
    }
}


@webhooks_router.post(
    WEBHOOK_PATH,
    operation_id="call_webhook",
    summary="Begin an execution from outside; who calls is known by its secret or signature",
    status_code=202,
    response_model=Delivered,
    responses={
        **describe_problems(404, 409, 413, 422),
        200: {"model": Challenge, "description": "Slack's challenge is answered"},
    },
    openapi_extra=_ANY_BODY,
)
async def call(
    name: WorkflowNameParam, request: Request, app_state: AppStateDependency
) -> Response:
    webhook = await app_state.webhooks.find(name)
    if webhook is None:  # and nothing of those that there are, to whom nobody knows
        raise NotFoundError("webhook of workflow", escape_unprintable(name))
    query = request.query_params.multi_items()
    delivery = Delivery.from_pairs(request.headers.items(), query, await request.body())
    received = await app_state.receiver.receive(webhook, delivery)
    if received.challenge is not None:
        return JSONResponse({"challenge": received.challenge})
    found = received.execution_id
    header = None if found is None else await app_state.backend.archive.get_header(found)
    state = ExecutionState.PENDING if header is None else header.state
    answer = {"execution_id": found, "run_id": found, "status": state}
    return JSONResponse(answer, status_code=202)


@webhooks_router.put(
    WEBHOOK_PATH,
    operation_id="put_webhook",
    summary="Let a workflow be started from outside, or change how",
    response_model=WebhookAnswer,
    dependencies=WEBHOOKS_OPERATE,
    responses=describe_problems(*BODY_STATUSES, 404, 409),
)
async def put(
    name: WorkflowNameParam,
    app_state: AppStateDependency,
    body: WebhookBody,
    *,
    is_new: Annotated[bool, Query(description="Refuse to replace one")] = False,
) -> dict[str, Json]:
    webhook = Webhook(
        workflow=name,
        version=body.version,
        kind=body.kind,
        secret=body.secret,
        header=body.header,
        mapping=body.mapping,
        delivery_id=body.delivery_id,
        labels=body.labels,
    )
    return build_webhook_document(await app_state.webhooks.add(webhook, replaces=not is_new))


@webhooks_router.get(
    WEBHOOK_PATH,
    operation_id="read_webhook",
    summary="The webhook of a workflow",
    response_model=WebhookAnswer,
    dependencies=WEBHOOKS_READ,
    responses=describe_problems(404, 422),
)
async def read_webhook(name: WorkflowNameParam, app_state: AppStateDependency) -> dict[str, Json]:
    return build_webhook_document(await app_state.webhooks.get(name))


@webhooks_router.delete(
    WEBHOOK_PATH,
    operation_id="remove_webhook",
    summary="Let nobody start the workflow from outside any more",
    status_code=204,
    dependencies=WEBHOOKS_OPERATE,
    responses=describe_problems(404, 422),
)
async def remove_webhook(name: WorkflowNameParam, app_state: AppStateDependency) -> None:
    await app_state.webhooks.remove(name)


@webhooks_router.get(
    "/webhooks",
    operation_id="list_webhooks",
    summary="All webhooks, by workflow",
    response_model=WebhookPage,
    dependencies=WEBHOOKS_READ,
    responses=describe_problems(422),
)
async def list_webhooks(
    app_state: AppStateDependency, limit: LimitParam = 50, after: AfterParam = None
) -> dict[str, Json]:
    found = await app_state.webhooks.list(after=after or "", limit=limit)
    last = found[-1].workflow if len(found) == limit else None
    return {"items": [build_webhook_document(each) for each in found], "next": last}
