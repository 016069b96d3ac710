"""Webhooks: who may call from outside, and the calls themselves."""

from typing import Annotated

from fastapi import APIRouter, Query, Request, Response
from fastapi.responses import JSONResponse

from runnel.api.answers import BODY, problems
from runnel.api.bodies import StrictRoute
from runnel.api.models.webhooks import (
    Challenge,
    Delivered,
    WebhookAnswer,
    WebhookBody,
    WebhookPage,
)
from runnel.api.parameters import After, Limit, NamePath
from runnel.api.security.callers import needs
from runnel.api.security.scopes import Scope
from runnel.api.site import OfSite
from runnel.core.checks.wording import printable
from runnel.core.json_types import Json
from runnel.core.states import ExecutionState
from runnel.errors import NotFoundError
from runnel.triggers.deliveries import Delivery
from runnel.triggers.documents import webhook_document
from runnel.triggers.webhook import Webhook

router = APIRouter(tags=["triggers"], route_class=StrictRoute)
READ, OPERATE = [needs(Scope.READ)], [needs(Scope.OPERATE)]
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


@router.post(
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


@router.put(
    PATH,
    operation_id="put_webhook",
    summary="Let a workflow be started from outside, or change how",
    response_model=WebhookAnswer,
    dependencies=OPERATE,
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


@router.get(
    PATH,
    operation_id="read_webhook",
    summary="The webhook of a workflow",
    response_model=WebhookAnswer,
    dependencies=READ,
    responses=problems(404, 422),
)
async def read(name: NamePath, site: OfSite) -> dict[str, Json]:
    return webhook_document(await site.webhooks.get(name))


@router.delete(
    PATH,
    operation_id="remove_webhook",
    summary="Let nobody start the workflow from outside any more",
    status_code=204,
    dependencies=OPERATE,
    responses=problems(404, 422),
)
async def remove(name: NamePath, site: OfSite) -> None:
    await site.webhooks.remove(name)


@router.get(
    "/webhooks",
    operation_id="list_webhooks",
    summary="All webhooks, by workflow",
    response_model=WebhookPage,
    dependencies=READ,
    responses=problems(422),
)
async def list_webhooks(site: OfSite, limit: Limit = 50, after: After = None) -> dict[str, Json]:
    found = await site.webhooks.list(after=after or "", limit=limit)
    last = found[-1].workflow if len(found) == limit else None
    return {"items": [webhook_document(each) for each in found], "next": last}
