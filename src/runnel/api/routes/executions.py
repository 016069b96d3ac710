"""Routes of executions: trigger, read, list, wait, cancel, rerun, signal; in bulk by a filter."""

from typing import Annotated

from fastapi import Path, Query, Request, Response

from runnel.api.requests import (
    LIMIT_MAX,
    WAIT_S_MAX,
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
from runnel.api.resource_router import OtherAnswer, ResourceRouter
from runnel.api.routes.workflows import build_new_execution
from runnel.api.security.access_control import get_token_id
from runnel.api.state import AppStateDependency
from runnel.client.protocol import ITEMS_PAGE_SIZE
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
ITEM_INDEX_MAX = 2**31 - 1


@routes.operation(
    "POST /workflow/trigger/{execution_id}", Scope.RUN, "Start a held execution", 404, 409
)
async def trigger_execution(
    execution_id: ExecutionIdParam,
    app_state: AppStateDependency,
    body: TriggerRequest | None = None,
    key: IdempotencyKeyHeader = None,
) -> TriggeredExecution:
    input_ = None if body is None else body.input_params
    await app_state.check_capacity()
    await app_state.client.trigger(execution_id, input_, idempotency_key=key)
    return TriggeredExecution(
        execution_id=execution_id, status=await app_state.read_state(execution_id)
    )


@routes.operation("GET /executions", Scope.READ, "List executions, newest first")
async def list_executions(
    app_state: AppStateDependency, query: Annotated[ExecutionPageQuery, Query()]
) -> Page[ExecutionSummary]:
    criteria = query.to_filter(limit=query.limit, after=query.after)
    return await app_state.client.list_executions(criteria)


@routes.operation("GET /executions/count", Scope.READ, "Count executions by state")
async def count_executions(
    app_state: AppStateDependency, query: Annotated[ExecutionQuery, Query()]
) -> ExecutionCounts:
    return ExecutionCounts(states={**await app_state.client.count_executions(query.to_filter())})


@routes.operation(
    "GET /workflow/{execution_id}",
    Scope.READ,
    "Get an execution with its nodes",
    404,
    operation_id="read_execution_of_workflow",
)
@routes.operation(
    "GET /executions/{execution_id}", Scope.READ, "Get an execution with its nodes", 404
)
async def read_execution(
    execution_id: ExecutionIdParam, app_state: AppStateDependency
) -> ExecutionView:
    return await app_state.client.get(execution_id)


@routes.operation(
    "GET /executions/{execution_id}/wait",
    Scope.READ,
    "Get an execution once it is final, or as it is after the timeout",
    404,
)
async def wait_for_execution(
    execution_id: ExecutionIdParam,
    app_state: AppStateDependency,
    timeout: Annotated[float, Query(ge=0, le=WAIT_S_MAX, description="Timeout in seconds")] = 30.0,
) -> ExecutionView:
    await app_state.wait_until_final(execution_id, timeout)
    return await app_state.client.get(execution_id)


@routes.operation(
    "GET /executions/{execution_id}/history", Scope.READ, "Get all events of an execution", 404
)
async def read_history(
    execution_id: ExecutionIdParam,
    app_state: AppStateDependency,
    after: Annotated[int, Query(ge=0, le=2**31, description="Leave out the first N events")] = 0,
) -> HistoryView:
    return HistoryView(items=await app_state.client.history(execution_id, after=after))


_WHOLE_VALUE = OtherAnswer(
    "The JSON of the whole value, sent in chunks", content={"application/json": {"schema": {}}}
)


@routes.operation(
    "GET /executions/{execution_id}/output",
    Scope.READ,
    "Get the whole output of an execution, of one of its nodes, or of one item of a map",
    404,
    409,
    other_answers={200: _WHOLE_VALUE},
)
async def read_output(
    request: Request,
    execution_id: ExecutionIdParam,
    app_state: AppStateDependency,
    *,
    node: Annotated[str | None, Query(max_length=500, description="A node of the workflow")] = None,
    item: Annotated[
        int | None, Query(ge=0, le=ITEM_INDEX_MAX, description="Index of an item of a map")
    ] = None,
) -> Response:
    """Without `node`, the output of the execution. `item` selects an item of the map `node`."""
    if node is None and item is not None:
        raise InputError("item: name the node as well: 'node=each&item=1'")
    value = await app_state.client.values.open_output(execution_id, node, item=item)
    return app_state.make_value_response(value, token_id=get_token_id(request))


@routes.operation(
    "GET /executions/{execution_id}/input",
    Scope.READ,
    "Get the whole input of an execution",
    404,
    other_answers={200: _WHOLE_VALUE},
)
async def read_input(
    request: Request, execution_id: ExecutionIdParam, app_state: AppStateDependency
) -> Response:
    value = await app_state.client.values.open_input(execution_id)
    return app_state.make_value_response(value, token_id=get_token_id(request))


@routes.operation(
    "POST /executions/{execution_id}/cancel",
    Scope.RUN,
    "Cancel an execution; its clean-up nodes still run, unless `force` is set",
    404,
    409,
    status=202,
)
async def cancel_execution(
    execution_id: ExecutionIdParam,
    app_state: AppStateDependency,
    body: CancelRequest | None = None,
) -> AcceptedRequest:
    body = body or CancelRequest()
    await app_state.client.cancel(execution_id, reason=body.reason, is_forced=body.force)
    return AcceptedRequest(execution_id=execution_id)


@routes.operation(
    "POST /executions/{execution_id}/signal",
    Scope.RUN,
    "Send a signal that a node of the execution waits for",
    404,
    409,
    status=202,
)
async def signal_execution(
    execution_id: ExecutionIdParam, app_state: AppStateDependency, body: SignalRequest
) -> AcceptedRequest:
    await app_state.client.signal(execution_id, body.name, body.payload, signal_id=body.signal_id)
    return AcceptedRequest(execution_id=execution_id)


@routes.operation(
    "POST /executions/{execution_id}/rerun",
    Scope.RUN,
    "Rerun a finished execution; by default only the nodes that did not complete",
    404,
    409,
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
        execution_id, body.to_rerun(), input=body.input, idempotency_key=key
    )
    return build_new_execution(await app_state.client.get_header(new_id))


# One node of an execution.

node_routes = ResourceRouter("executions")


@node_routes.operation(
    "GET /executions/{execution_id}/nodes/{node_id:path}",
    Scope.READ,
    "Get a node: attempts, config, inputs, output, error and logs; items of a map in pages",
    404,
)
async def read_node(
    execution_id: ExecutionIdParam,
    node_id: Annotated[str, Path(max_length=500)],
    app_state: AppStateDependency,
    *,
    item: Annotated[
        int | None, Query(ge=0, le=ITEM_INDEX_MAX, description="Index of an item of a map")
    ] = None,
    items_after: Annotated[int, Query(ge=-1, le=ITEM_INDEX_MAX)] = -1,
    items_limit: Annotated[int, Query(ge=1, le=LIMIT_MAX)] = ITEMS_PAGE_SIZE,
) -> NodeDetail:
    return await app_state.client.node(
        execution_id,
        node_id,
        item=item,
        items_after=items_after,
        items_limit=items_limit,
    )


# Bulk operations on all executions that match a filter.

bulk_routes = ResourceRouter("executions")


@bulk_routes.operation(
    "POST /executions/cancel",
    Scope.OPERATE,
    "Cancel all executions that match a filter, up to 500 per call",
)
async def cancel_executions(app_state: AppStateDependency, body: BulkCancelRequest) -> BulkStep:
    return await app_state.client.many.cancel_step(
        _build_filter(body), reason=body.reason, is_forced=body.force
    )


@bulk_routes.operation(
    "POST /executions/rerun",
    Scope.OPERATE,
    "Rerun all executions that match a filter, up to 100 per call",
)
async def rerun_executions(app_state: AppStateDependency, body: BulkRerunRequest) -> BulkStep:
    await app_state.check_capacity()
    return await app_state.client.many.rerun_step(
        _build_filter(body), body.to_rerun(), key=body.key
    )


def _build_filter(body: BulkRequest) -> ExecutionFilter:
    """Raises InputError if the request has no filter and does not set `every`."""
    query = ExecutionQuery(**body.model_dump(include=set(ExecutionQuery.model_fields)))
    if query == ExecutionQuery() and not body.every:
        raise InputError(
            "the request has no filter: give status, workflow, label …, or 'every': true"
        )
    return query.to_filter(after=body.after)
