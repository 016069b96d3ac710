"""Executions: trigger, read, list, wait, cancel, rerun, signal."""

from typing import Annotated

import msgspec
from fastapi import APIRouter, Path, Query, Response

from runnel.api.models import (
    Accepted,
    Begun,
    BulkAnswer,
    BulkCancelRequest,
    BulkRequest,
    BulkRerunRequest,
    CancelRequest,
    Counts,
    ExecutionAnswer,
    ExecutionPage,
    HistoryAnswer,
    NodeDetailAnswer,
    RerunRequest,
    SignalRequest,
    Triggered,
    TriggerRequest,
)
from runnel.api.requests import (
    LIMIT_MAX,
    ExecutionIdParam,
    ExecutionPageQuery,
    ExecutionQuery,
    IdempotencyKeyHeader,
    StrictRoute,
)
from runnel.api.responses import (
    BODY_STATUSES,
    build_listed_execution,
    describe_problems,
    make_json_response,
)
from runnel.api.routes.workflows import build_started_answer
from runnel.api.security.guard import require_scope
from runnel.api.security.tokens import Scope
from runnel.api.state import AppStateDependency
from runnel.client.bulk import cancel_many, rerun_many
from runnel.client.nodes import ITEMS_PAGE_SIZE, build_node_document
from runnel.core.ids import ExecutionId
from runnel.core.states import ExecutionState
from runnel.core.values import Json
from runnel.errors import InputError
from runnel.ports.archive import ExecutionFilter
from runnel.views.execution import build_execution_document, format_time
from runnel.views.page import BulkStep

router = APIRouter(tags=["executions"], route_class=StrictRoute)
READ, RUN = [require_scope(Scope.READ)], [require_scope(Scope.RUN)]
WAIT_S_MAX = 60.0


@router.post(
    "/workflow/trigger/{execution_id}",
    operation_id="trigger_execution",
    summary="Start an execution that was submitted",
    dependencies=RUN,
    responses=describe_problems(*BODY_STATUSES, 404, 409),
)
async def trigger(
    execution_id: ExecutionIdParam,
    app_state: AppStateDependency,
    wanted: TriggerRequest | None = None,
    key: IdempotencyKeyHeader = None,
) -> Triggered:
    id_ = ExecutionId(execution_id)
    input_ = None if wanted is None else wanted.input_params
    await app_state.check_capacity()
    await app_state.client.trigger(id_, input_, idempotency_key=key)
    header = await app_state.backend.archive.get_header(id_)
    state = ExecutionState.PENDING if header is None else header.state
    return Triggered(execution_id=execution_id, status=state)


@router.get(
    "/executions",
    operation_id="list_executions",
    summary="Executions, the newest first",
    response_model=ExecutionPage,
    dependencies=READ,
    responses=describe_problems(422),
)
async def list_executions(
    app_state: AppStateDependency, query: Annotated[ExecutionPageQuery, Query()]
) -> Response:
    wanted = query.to_filter(limit=query.limit, after=query.after)
    page = await app_state.client.list_executions(wanted)
    return make_json_response(
        {"items": [build_listed_execution(each) for each in page], "next": page.next}
    )


@router.get(
    "/executions/count",
    operation_id="count_executions",
    summary="How many executions there are in each state",
    response_model=Counts,
    dependencies=READ,
    responses=describe_problems(422),
)
async def count(
    app_state: AppStateDependency, query: Annotated[ExecutionQuery, Query()]
) -> dict[str, Json]:
    found = await app_state.client.count_executions(query.to_filter())
    return {
        "states": {
            state: {"number": each.number, "is_least": each.is_least}
            for state, each in found.items()
        }
    }


@router.get(
    "/workflow/{execution_id}",
    operation_id="read_execution_of_workflow",
    summary="An execution with its nodes",
    response_model=ExecutionAnswer,
    dependencies=READ,
    responses=describe_problems(404, 422),
)
@router.get(
    "/executions/{execution_id}",
    operation_id="read_execution",
    summary="An execution with its nodes",
    response_model=ExecutionAnswer,
    dependencies=READ,
    responses=describe_problems(404, 422),
)
async def read(execution_id: ExecutionIdParam, app_state: AppStateDependency) -> Response:
    return make_json_response(
        build_execution_document(await app_state.client.get(ExecutionId(execution_id)))
    )


@router.get(
    "/executions/{execution_id}/wait",
    operation_id="wait_for_execution",
    summary="An execution once it is final, or after so many seconds as it is then",
    response_model=ExecutionAnswer,
    dependencies=READ,
    responses=describe_problems(404, 422),
)
async def wait(
    execution_id: ExecutionIdParam,
    app_state: AppStateDependency,
    timeout: Annotated[float, Query(ge=0, le=WAIT_S_MAX, description="In seconds")] = 30.0,
) -> Response:
    await app_state.wait_until_final(ExecutionId(execution_id), timeout)
    return await read(execution_id, app_state)


@router.get(
    "/executions/{execution_id}/history",
    operation_id="read_history",
    summary="Everything that has happened in an execution",
    response_model=HistoryAnswer,
    dependencies=READ,
    responses=describe_problems(404, 422),
)
async def history(
    execution_id: ExecutionIdParam,
    app_state: AppStateDependency,
    after: Annotated[
        int, Query(ge=0, le=2**31, description="So many are known already, and left out")
    ] = 0,
) -> Response:
    found = await app_state.client.history(ExecutionId(execution_id), after=after)
    items = [
        {"at": format_time(each.at), "event": each.event, "fields": each.fields} for each in found
    ]
    return make_json_response({"items": items})


@router.post(
    "/executions/{execution_id}/cancel",
    operation_id="cancel_execution",
    summary="End an execution; its clean-up nodes still run, unless it is forced",
    status_code=202,
    dependencies=RUN,
    responses=describe_problems(*BODY_STATUSES, 404, 409),
)
async def cancel(
    execution_id: ExecutionIdParam,
    app_state: AppStateDependency,
    wanted: CancelRequest | None = None,
) -> Accepted:
    wanted = wanted or CancelRequest()
    id_ = ExecutionId(execution_id)
    await app_state.client.cancel(id_, reason=wanted.reason, is_forced=wanted.force)
    return Accepted(execution_id=execution_id)


@router.post(
    "/executions/{execution_id}/signal",
    operation_id="signal_execution",
    summary="Tell an execution what one of its nodes waits for",
    status_code=202,
    dependencies=RUN,
    responses=describe_problems(*BODY_STATUSES, 404, 409),
)
async def signal(
    execution_id: ExecutionIdParam, app_state: AppStateDependency, body: SignalRequest
) -> Accepted:
    await app_state.client.signal(
        ExecutionId(execution_id), body.name, body.payload, signal_id=body.signal_id
    )
    return Accepted(execution_id=execution_id)


@router.post(
    "/executions/{execution_id}/rerun",
    operation_id="rerun_execution",
    summary="Run a finished execution again, by default only what did not complete",
    status_code=201,
    dependencies=RUN,
    responses=describe_problems(*BODY_STATUSES, 404, 409),
)
async def rerun(
    execution_id: ExecutionIdParam,
    app_state: AppStateDependency,
    wanted: RerunRequest | None = None,
    key: IdempotencyKeyHeader = None,
) -> Begun:
    wanted = wanted or RerunRequest()
    await app_state.check_capacity()
    new_id = await app_state.client.rerun(
        ExecutionId(execution_id), wanted.to_rerun(), input=wanted.input, idempotency_key=key
    )
    return build_started_answer(await app_state.client.get_header(new_id))


# One node of an execution.

nodes_router = APIRouter(tags=["executions"], route_class=StrictRoute)
ITEM_INDEX_MAX = 2**31 - 1


@nodes_router.get(
    "/executions/{execution_id}/nodes/{node_id:path}",
    operation_id="read_node",
    summary="A node: its attempts, config, inputs, output, error and logs; items of a map in pages",
    response_model=NodeDetailAnswer,
    dependencies=[require_scope(Scope.READ)],
    responses=describe_problems(404, 422),
)
async def read_node(
    execution_id: ExecutionIdParam,
    node_id: Annotated[str, Path(max_length=500)],
    app_state: AppStateDependency,
    *,
    item: Annotated[int | None, Query(ge=0, le=ITEM_INDEX_MAX, description="One of a map")] = None,
    items_after: Annotated[int, Query(ge=-1, le=ITEM_INDEX_MAX)] = -1,
    items_limit: Annotated[int, Query(ge=1, le=LIMIT_MAX)] = ITEMS_PAGE_SIZE,
) -> dict[str, Json]:
    detail = await app_state.client.node(
        ExecutionId(execution_id),
        node_id,
        item=item,
        items_after=items_after,
        items_limit=items_limit,
    )
    return build_node_document(detail)


# Many executions at once, by a filter.

bulk_router = APIRouter(tags=["executions"], route_class=StrictRoute)
OPERATE = [require_scope(Scope.OPERATE)]


@bulk_router.post(
    "/executions/cancel",
    operation_id="cancel_executions",
    summary="End all executions that a filter finds, up to 500 in each step",
    response_model=BulkAnswer,
    dependencies=OPERATE,
    responses=describe_problems(*BODY_STATUSES),
)
async def cancel_executions(
    app_state: AppStateDependency, body: BulkCancelRequest
) -> dict[str, Json]:
    step = await cancel_many(
        app_state.client,
        app_state.backend.mailbox,
        _build_filter(body),
        reason=body.reason,
        is_forced=body.force,
    )
    return _to_document(step)


@bulk_router.post(
    "/executions/rerun",
    operation_id="rerun_executions",
    summary="Rerun all executions that a filter finds, up to 100 in each step",
    response_model=BulkAnswer,
    dependencies=OPERATE,
    responses=describe_problems(*BODY_STATUSES),
)
async def rerun_executions(
    app_state: AppStateDependency, body: BulkRerunRequest
) -> dict[str, Json]:
    await app_state.check_capacity()
    step = await rerun_many(
        app_state.client,
        app_state.backend.archive,
        _build_filter(body),
        body.to_rerun(),
        key=body.key,
    )
    return _to_document(step)


def _build_filter(body: BulkRequest) -> ExecutionFilter:
    """Everything has to be asked for in so many words."""
    chosen = ExecutionQuery(**body.model_dump(include=set(ExecutionQuery.model_fields)))
    if chosen == ExecutionQuery() and not body.every:
        raise InputError("which executions? Say status, workflow, label …, or 'every': true")
    return chosen.to_filter(after=body.after)


def _to_document(step: BulkStep) -> dict[str, Json]:
    document: dict[str, Json] = msgspec.to_builtins(step)
    return document
