"""Executions: trigger, read, list, wait, cancel, rerun, signal; one node; many by a filter."""

from typing import Annotated

from fastapi import Path, Query

from runnel.api.requests import (
    LIMIT_MAX,
    BulkCancelRequest,
    BulkRequest,
    BulkRerunRequest,
    CancelRequest,
    ExecutionIdParam,
    ExecutionPageQuery,
    ExecutionQuery,
    IdempotencyKeyHeader,
    RerunRequest,
    SignalRequest,
    TriggerRequest,
)
from runnel.api.routes.workflows import build_new_execution
from runnel.api.routing import BODY_STATUSES, ResourceRouter
from runnel.api.state import AppStateDependency
from runnel.client.protocol import ITEMS_PAGE_SIZE
from runnel.core.ids import ExecutionId
from runnel.core.states import ExecutionState
from runnel.errors import InputError
from runnel.ports.archive import ExecutionFilter
from runnel.views.execution import (
    AcceptedRequest,
    ExecutionCounts,
    ExecutionSummary,
    ExecutionView,
    HistoryView,
    NewExecution,
    TriggeredExecution,
)
from runnel.views.node import NodeDetail
from runnel.views.page import BulkStep, Page
from runnel.views.token import Scope

routes = ResourceRouter("executions")
WAIT_S_MAX = 60.0


@routes.operation(
    "POST",
    "/workflow/trigger/{execution_id}",
    "Start an execution that was submitted",
    scope=Scope.RUN,
    problems=(*BODY_STATUSES, 404, 409),
)
async def trigger_execution(
    execution_id: ExecutionIdParam,
    app_state: AppStateDependency,
    body: TriggerRequest | None = None,
    key: IdempotencyKeyHeader = None,
) -> TriggeredExecution:
    id_ = ExecutionId(execution_id)
    input_ = None if body is None else body.input_params
    await app_state.check_capacity()
    await app_state.client.trigger(id_, input_, idempotency_key=key)
    header = await app_state.backend.archive.get_header(id_)
    state = ExecutionState.PENDING if header is None else header.state
    return TriggeredExecution(execution_id=id_, status=state)


@routes.operation(
    "GET",
    "/executions",
    "Executions, the newest first",
    scope=Scope.READ,
    problems=(422,),
)
async def list_executions(
    app_state: AppStateDependency, query: Annotated[ExecutionPageQuery, Query()]
) -> Page[ExecutionSummary]:
    criteria = query.to_filter(limit=query.limit, after=query.after)
    return await app_state.client.list_executions(criteria)


@routes.operation(
    "GET",
    "/executions/count",
    "How many executions there are in each state",
    scope=Scope.READ,
    problems=(422,),
)
async def count_executions(
    app_state: AppStateDependency, query: Annotated[ExecutionQuery, Query()]
) -> ExecutionCounts:
    return ExecutionCounts(states={**await app_state.client.count_executions(query.to_filter())})


@routes.operation(
    "GET",
    "/workflow/{execution_id}",
    "An execution with its nodes",
    operation_id="read_execution_of_workflow",
    scope=Scope.READ,
    problems=(404, 422),
)
@routes.operation(
    "GET",
    "/executions/{execution_id}",
    "An execution with its nodes",
    scope=Scope.READ,
    problems=(404, 422),
)
async def read_execution(
    execution_id: ExecutionIdParam, app_state: AppStateDependency
) -> ExecutionView:
    return await app_state.client.get(ExecutionId(execution_id))


@routes.operation(
    "GET",
    "/executions/{execution_id}/wait",
    "An execution once it is final, or after so many seconds as it is then",
    scope=Scope.READ,
    problems=(404, 422),
)
async def wait_for_execution(
    execution_id: ExecutionIdParam,
    app_state: AppStateDependency,
    timeout: Annotated[float, Query(ge=0, le=WAIT_S_MAX, description="In seconds")] = 30.0,
) -> ExecutionView:
    await app_state.wait_until_final(ExecutionId(execution_id), timeout)
    return await app_state.client.get(ExecutionId(execution_id))


@routes.operation(
    "GET",
    "/executions/{execution_id}/history",
    "Everything that has happened in an execution",
    scope=Scope.READ,
    problems=(404, 422),
)
async def read_history(
    execution_id: ExecutionIdParam,
    app_state: AppStateDependency,
    after: Annotated[
        int, Query(ge=0, le=2**31, description="So many are known already, and left out")
    ] = 0,
) -> HistoryView:
    return HistoryView(items=await app_state.client.history(ExecutionId(execution_id), after=after))


@routes.operation(
    "POST",
    "/executions/{execution_id}/cancel",
    "End an execution; its clean-up nodes still run, unless it is forced",
    scope=Scope.RUN,
    problems=(*BODY_STATUSES, 404, 409),
    status=202,
)
async def cancel_execution(
    execution_id: ExecutionIdParam,
    app_state: AppStateDependency,
    body: CancelRequest | None = None,
) -> AcceptedRequest:
    body = body or CancelRequest()
    id_ = ExecutionId(execution_id)
    await app_state.client.cancel(id_, reason=body.reason, is_forced=body.force)
    return AcceptedRequest(execution_id=id_)


@routes.operation(
    "POST",
    "/executions/{execution_id}/signal",
    "Tell an execution what one of its nodes waits for",
    scope=Scope.RUN,
    problems=(*BODY_STATUSES, 404, 409),
    status=202,
)
async def signal_execution(
    execution_id: ExecutionIdParam, app_state: AppStateDependency, body: SignalRequest
) -> AcceptedRequest:
    id_ = ExecutionId(execution_id)
    await app_state.client.signal(id_, body.name, body.payload, signal_id=body.signal_id)
    return AcceptedRequest(execution_id=id_)


@routes.operation(
    "POST",
    "/executions/{execution_id}/rerun",
    "Run a finished execution again, by default only what did not complete",
    scope=Scope.RUN,
    problems=(*BODY_STATUSES, 404, 409),
    status=201,
)
async def rerun_execution(
    execution_id: ExecutionIdParam,
    app_state: AppStateDependency,
    body: RerunRequest | None = None,
    key: IdempotencyKeyHeader = None,
) -> NewExecution:
    body = body or RerunRequest()
    await app_state.check_capacity()
    new_id = await app_state.client.rerun(
        ExecutionId(execution_id), body.to_rerun(), input=body.input, idempotency_key=key
    )
    return build_new_execution(await app_state.client.get_header(new_id))


# One node of an execution.

node_routes = ResourceRouter("executions")
ITEM_INDEX_MAX = 2**31 - 1


@node_routes.operation(
    "GET",
    "/executions/{execution_id}/nodes/{node_id:path}",
    "A node: its attempts, config, inputs, output, error and logs; items of a map in pages",
    scope=Scope.READ,
    problems=(404, 422),
)
async def read_node(
    execution_id: ExecutionIdParam,
    node_id: Annotated[str, Path(max_length=500)],
    app_state: AppStateDependency,
    *,
    item: Annotated[int | None, Query(ge=0, le=ITEM_INDEX_MAX, description="One of a map")] = None,
    items_after: Annotated[int, Query(ge=-1, le=ITEM_INDEX_MAX)] = -1,
    items_limit: Annotated[int, Query(ge=1, le=LIMIT_MAX)] = ITEMS_PAGE_SIZE,
) -> NodeDetail:
    return await app_state.client.node(
        ExecutionId(execution_id),
        node_id,
        item=item,
        items_after=items_after,
        items_limit=items_limit,
    )


# Many executions at once, by a filter.

bulk_routes = ResourceRouter("executions")


@bulk_routes.operation(
    "POST",
    "/executions/cancel",
    "End all executions that a filter finds, up to 500 in each step",
    scope=Scope.OPERATE,
    problems=BODY_STATUSES,
)
async def cancel_executions(app_state: AppStateDependency, body: BulkCancelRequest) -> BulkStep:
    return await app_state.client.many.cancel_step(
        _build_filter(body), reason=body.reason, is_forced=body.force
    )


@bulk_routes.operation(
    "POST",
    "/executions/rerun",
    "Rerun all executions that a filter finds, up to 100 in each step",
    scope=Scope.OPERATE,
    problems=BODY_STATUSES,
)
async def rerun_executions(app_state: AppStateDependency, body: BulkRerunRequest) -> BulkStep:
    await app_state.check_capacity()
    return await app_state.client.many.rerun_step(
        _build_filter(body), body.to_rerun(), key=body.key
    )


def _build_filter(body: BulkRequest) -> ExecutionFilter:
    """Everything has to be asked for in so many words."""
    query = ExecutionQuery(**body.model_dump(include=set(ExecutionQuery.model_fields)))
    if query == ExecutionQuery() and not body.every:
        raise InputError("which executions? Say status, workflow, label …, or 'every': true")
    return query.to_filter(after=body.after)
