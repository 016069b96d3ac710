"""Schedules and webhooks: add, change, remove; a door for schedulers and callers from outside."""

from typing import Annotated, TypeAlias

from fastapi import Path, Query, Request, Response

from runnel.api.requests import (
    AfterParam,
    DispatchRequest,
    LimitParam,
    NewSchedule,
    ScheduleBody,
    WebhookBody,
    WorkflowNameParam,
)
from runnel.api.responses import make_view_response
from runnel.api.routing import BODY_STATUSES, OtherAnswer, ResourceRouter
from runnel.api.security.guard import check_caller_scope
from runnel.api.state import AppState, AppStateDependency
from runnel.core.states import ExecutionState
from runnel.core.wording import escape_unprintable
from runnel.errors import NotFoundError
from runnel.triggers.schedule import ScheduleRecord
from runnel.triggers.schedule_store import build_schedule_view, build_webhook_view
from runnel.triggers.webhook_delivery import Delivery
from runnel.views import Timestamp
from runnel.views.page import Page
from runnel.views.token import Scope
from runnel.views.trigger import (
    AcceptedDelivery,
    ChallengeReply,
    FiredTick,
    FiredTicks,
    Schedule,
    ScheduleView,
    Webhook,
    WebhookView,
)

schedule_routes = ResourceRouter("triggers")

ScheduleIdParam: TypeAlias = Annotated[
    str, Path(alias="schedule_id", description="The id of a schedule", max_length=200)
]


@schedule_routes.operation(
    "POST",
    "/schedules",
    "Run a workflow by the clock",
    scope=Scope.OPERATE,
    problems=(*BODY_STATUSES, 404, 409),
    status=201,
)
async def add_schedule(app_state: AppStateDependency, body: NewSchedule) -> ScheduleView:
    record = await app_state.schedules.add(_build_schedule(body.id, body))
    return _build_view(app_state, record)


@schedule_routes.operation(
    "GET", "/schedules", "All schedules, by id", scope=Scope.READ, problems=(422,)
)
async def list_schedules(
    app_state: AppStateDependency, limit: LimitParam = 50, after: AfterParam = None
) -> Page[ScheduleView]:
    records = await app_state.schedules.list(after=after or "", limit=limit)
    last = records[-1].schedule.id if len(records) == limit else None
    return Page(items=[_build_view(app_state, record) for record in records], next=last)


@schedule_routes.operation(
    "GET",
    "/schedules/{schedule_id}",
    "A schedule with its next ticks",
    scope=Scope.READ,
    problems=(404, 422),
)
async def read_schedule(
    schedule_id: ScheduleIdParam, app_state: AppStateDependency
) -> ScheduleView:
    return _build_view(app_state, (await app_state.schedules.get(schedule_id)).record)


@schedule_routes.operation(
    "PUT",
    "/schedules/{schedule_id}",
    "Change a schedule; ticks of before are not made up for",
    scope=Scope.OPERATE,
    problems=(*BODY_STATUSES, 404, 409),
)
async def replace_schedule(
    schedule_id: ScheduleIdParam, app_state: AppStateDependency, body: ScheduleBody
) -> ScheduleView:
    changed = _build_schedule(schedule_id, body)
    record = await app_state.schedules.change(schedule_id, lambda _former: changed)
    return _build_view(app_state, record)


@schedule_routes.operation(
    "POST",
    "/schedules/{schedule_id}/pause",
    "Fire nothing until it is resumed",
    scope=Scope.OPERATE,
    problems=(404, 422),
)
async def pause_schedule(
    schedule_id: ScheduleIdParam, app_state: AppStateDependency
) -> ScheduleView:
    return _build_view(app_state, await app_state.schedules.pause(schedule_id))


@schedule_routes.operation(
    "POST",
    "/schedules/{schedule_id}/resume",
    "Go on with a schedule; what fell into the pause is not made up for",
    scope=Scope.OPERATE,
    problems=(404, 422),
)
async def resume_schedule(
    schedule_id: ScheduleIdParam, app_state: AppStateDependency
) -> ScheduleView:
    return _build_view(app_state, await app_state.schedules.pause(schedule_id, is_paused=False))


@schedule_routes.operation(
    "DELETE",
    "/schedules/{schedule_id}",
    "Remove a schedule; what it has started goes on",
    scope=Scope.OPERATE,
    problems=(404, 422),
    status=204,
)
async def remove_schedule(schedule_id: ScheduleIdParam, app_state: AppStateDependency) -> None:
    await app_state.schedules.remove(schedule_id)


@schedule_routes.operation(
    "POST",
    "/triggers/cron/dispatch",
    "Fire all ticks that are due, for a scheduler from outside",
    scope=Scope.RUN,
    problems=BODY_STATUSES,
)
async def dispatch_schedules(
    request: Request, app_state: AppStateDependency, body: DispatchRequest | None = None
) -> FiredTicks:
    """`now` needs the scope `operate`: what lies before it is not fired by the clock any more."""
    if body is not None and body.now is not None:
        check_caller_scope(request, Scope.OPERATE)
    now = None if body is None or body.now is None else body.now.timestamp()
    outcomes = await app_state.scheduler.dispatch(now)
    return FiredTicks(
        items=[
            FiredTick(
                schedule_id=outcome.schedule_id,
                tick=Timestamp(outcome.tick),
                execution_id=outcome.execution_id,
                error=outcome.error,
            )
            for outcome in outcomes
        ]
    )


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


def _build_view(app_state: AppState, record: ScheduleRecord) -> ScheduleView:
    return build_schedule_view(record, app_state.clock.now())


# Webhooks: who may call from outside, and the calls themselves.

webhook_routes = ResourceRouter("triggers")
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


@webhook_routes.operation(
    "POST",
    WEBHOOK_PATH,
    "Begin an execution from outside; who calls is known by its secret or signature",
    problems=(404, 409, 413, 422),
    status=202,
    others={200: OtherAnswer("Slack's challenge is answered", view=ChallengeReply)},
    request_body=_ANY_BODY,
)
async def call_webhook(
    name: WorkflowNameParam, request: Request, app_state: AppStateDependency
) -> AcceptedDelivery | Response:
    webhook = await app_state.webhooks.find(name)
    if webhook is None:  # and nothing of those that there are, to whom nobody knows
        raise NotFoundError("webhook of workflow", escape_unprintable(name))
    query = request.query_params.multi_items()
    delivery = Delivery.from_pairs(request.headers.items(), query, await request.body())
    received = await app_state.receiver.receive(webhook, delivery)
    id_ = received.execution_id
    if id_ is None:
        return make_view_response(ChallengeReply(challenge=received.challenge or ""))
    header = await app_state.backend.archive.get_header(id_)
    state = ExecutionState.PENDING if header is None else header.state
    return AcceptedDelivery(execution_id=id_, run_id=id_, status=state)


@webhook_routes.operation(
    "PUT",
    WEBHOOK_PATH,
    "Let a workflow be started from outside, or change how",
    scope=Scope.OPERATE,
    problems=(*BODY_STATUSES, 404, 409),
)
async def put_webhook(
    name: WorkflowNameParam,
    app_state: AppStateDependency,
    body: WebhookBody,
    *,
    is_new: Annotated[bool, Query(description="Refuse to replace one")] = False,
) -> WebhookView:
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
    return build_webhook_view(await app_state.webhooks.add(webhook, replaces=not is_new))


@webhook_routes.operation(
    "GET", WEBHOOK_PATH, "The webhook of a workflow", scope=Scope.READ, problems=(404, 422)
)
async def read_webhook(name: WorkflowNameParam, app_state: AppStateDependency) -> WebhookView:
    return build_webhook_view(await app_state.webhooks.get(name))


@webhook_routes.operation(
    "DELETE",
    WEBHOOK_PATH,
    "Let nobody start the workflow from outside any more",
    scope=Scope.OPERATE,
    problems=(404, 422),
    status=204,
)
async def remove_webhook(name: WorkflowNameParam, app_state: AppStateDependency) -> None:
    await app_state.webhooks.remove(name)


@webhook_routes.operation(
    "GET", "/webhooks", "All webhooks, by workflow", scope=Scope.READ, problems=(422,)
)
async def list_webhooks(
    app_state: AppStateDependency, limit: LimitParam = 50, after: AfterParam = None
) -> Page[WebhookView]:
    webhooks = await app_state.webhooks.list(after=after or "", limit=limit)
    last = webhooks[-1].workflow if len(webhooks) == limit else None
    return Page(items=[build_webhook_view(webhook) for webhook in webhooks], next=last)
