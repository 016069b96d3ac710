"""Routes of schedules and webhooks, and the calls of external schedulers and webhook senders."""

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
from runnel.api.resource_router import OtherAnswer, ResourceRouter
from runnel.api.responses import make_view_response
from runnel.api.security.access_control import check_caller_scope
from runnel.api.state import AppStateDependency
from runnel.core.message_text import escape_unprintable
from runnel.errors import NotFoundError
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
    "POST /schedules",
    Scope.OPERATE,
    "Add a schedule, which runs a workflow at fixed times",
    404,
    409,
    status=201,
)
async def add_schedule(app_state: AppStateDependency, body: NewSchedule) -> ScheduleView:
    return await app_state.schedules.add(_build_schedule(body.id, body))


@schedule_routes.operation("GET /schedules", Scope.READ, "List all schedules, by id")
async def list_schedules(
    app_state: AppStateDependency, limit: LimitParam = 50, after: AfterParam = None
) -> Page[ScheduleView]:
    views = await app_state.schedules.list(after=after or "", limit=limit)
    return Page(items=views, next=views[-1].id if len(views) == limit else None)


@schedule_routes.operation(
    "GET /schedules/{schedule_id}", Scope.READ, "Get a schedule with its next ticks", 404
)
async def read_schedule(
    schedule_id: ScheduleIdParam, app_state: AppStateDependency
) -> ScheduleView:
    return await app_state.schedules.get(schedule_id)


@schedule_routes.operation(
    "PUT /schedules/{schedule_id}",
    Scope.OPERATE,
    "Replace a schedule; ticks before the change are not fired later",
    404,
    409,
)
async def replace_schedule(
    schedule_id: ScheduleIdParam, app_state: AppStateDependency, body: ScheduleBody
) -> ScheduleView:
    return await app_state.schedules.change(schedule_id, _build_schedule(schedule_id, body))


@schedule_routes.operation(
    "POST /schedules/{schedule_id}/pause",
    Scope.OPERATE,
    "Pause a schedule: no tick fires until it is resumed",
    404,
)
async def pause_schedule(
    schedule_id: ScheduleIdParam, app_state: AppStateDependency
) -> ScheduleView:
    return await app_state.schedules.pause(schedule_id)


@schedule_routes.operation(
    "POST /schedules/{schedule_id}/resume",
    Scope.OPERATE,
    "Resume a schedule; ticks during the pause are not fired later",
    404,
)
async def resume_schedule(
    schedule_id: ScheduleIdParam, app_state: AppStateDependency
) -> ScheduleView:
    return await app_state.schedules.pause(schedule_id, is_paused=False)


@schedule_routes.operation(
    "DELETE /schedules/{schedule_id}",
    Scope.OPERATE,
    "Delete a schedule; executions that it has started continue",
    404,
    status=204,
)
async def remove_schedule(schedule_id: ScheduleIdParam, app_state: AppStateDependency) -> None:
    await app_state.schedules.remove(schedule_id)


@schedule_routes.operation(
    "POST /triggers/cron/dispatch", Scope.RUN, "Fire all due ticks, for an external scheduler"
)
async def dispatch_schedules(
    request: Request, app_state: AppStateDependency, body: DispatchRequest | None = None
) -> FiredTicks:
    """`now` needs the scope `operate`, because the ticks before it are never fired again."""
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
    times = {
        "starts_at": None if starts_at is None else starts_at.timestamp(),
        "ends_at": None if ends_at is None else ends_at.timestamp(),
    }
    return Schedule(**{**dict(body), "id": schedule_id, **times})


# Webhooks: their settings, and the calls of their senders.

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
    f"POST {WEBHOOK_PATH}",
    None,
    "Start an execution by a webhook call, which its token or signature authenticates",
    404,
    409,
    413,
    status=202,
    other_answers={200: OtherAnswer("The answer to Slack's challenge", view=ChallengeReply)},
    request_body=_ANY_BODY,
)
async def call_webhook(
    name: WorkflowNameParam, request: Request, app_state: AppStateDependency
) -> AcceptedDelivery | Response:
    webhook = await app_state.webhooks.find(name)
    if webhook is None:  # without a hint: the caller is not authenticated
        raise NotFoundError("webhook of workflow", escape_unprintable(name))
    query = request.query_params.multi_items()
    delivery = Delivery.from_pairs(request.headers.items(), query, await request.body())
    received = await app_state.receiver.receive(webhook, delivery)
    id_ = received.execution_id
    if id_ is None:
        return make_view_response(ChallengeReply(challenge=received.challenge or ""))
    state = await app_state.read_state(id_)
    return AcceptedDelivery(execution_id=id_, run_id=id_, status=state)


@webhook_routes.operation(
    f"PUT {WEBHOOK_PATH}", Scope.OPERATE, "Add or replace the webhook of a workflow", 404, 409
)
async def put_webhook(
    name: WorkflowNameParam,
    app_state: AppStateDependency,
    body: WebhookBody,
    *,
    is_new: Annotated[bool, Query(description="Refuse to replace a webhook")] = False,
) -> WebhookView:
    webhook = Webhook(workflow=name, **dict(body))
    return await app_state.webhooks.add(webhook, replaces=not is_new)


@webhook_routes.operation(f"GET {WEBHOOK_PATH}", Scope.READ, "Get the webhook of a workflow", 404)
async def read_webhook(name: WorkflowNameParam, app_state: AppStateDependency) -> WebhookView:
    return await app_state.webhooks.get(name)


@webhook_routes.operation(
    f"DELETE {WEBHOOK_PATH}", Scope.OPERATE, "Delete the webhook of a workflow", 404, status=204
)
async def remove_webhook(name: WorkflowNameParam, app_state: AppStateDependency) -> None:
    await app_state.webhooks.remove(name)


@webhook_routes.operation("GET /webhooks", Scope.READ, "List all webhooks, by workflow")
async def list_webhooks(
    app_state: AppStateDependency, limit: LimitParam = 50, after: AfterParam = None
) -> Page[WebhookView]:
    views = await app_state.webhooks.list(after=after or "", limit=limit)
    return Page(items=views, next=views[-1].workflow if len(views) == limit else None)
