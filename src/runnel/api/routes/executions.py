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
    Chosen,
    ChosenPage,
    ExecutionIdPath,
    IdempotencyKey,
    StrictRoute,
)
from runnel.api.responses import BODY, listed, problems, written
from runnel.api.routes.workflows import begun
from runnel.api.security.guard import needs
from runnel.api.security.tokens import Scope
from runnel.api.state import OfSite
from runnel.client.bulk import BulkStep, cancel_many, rerun_many
from runnel.client.nodes import ITEMS, detail_document
from runnel.core.ids import ExecutionId
from runnel.core.states import ExecutionState
from runnel.core.values import Json
from runnel.errors import InputError
from runnel.ports.archive import ExecutionFilter
from runnel.views.execution import document_of, moment

router = APIRouter(tags=["executions"], route_class=StrictRoute)
READ, RUN = [needs(Scope.READ)], [needs(Scope.RUN)]
WAIT_S_MAX = 60.0


@router.post(
    "/workflow/trigger/{execution_id}",
    operation_id="trigger_execution",
    summary="Start an execution that was submitted",
    dependencies=RUN,
    responses=problems(*BODY, 404, 409),
)
async def trigger(
    execution_id: ExecutionIdPath,
    site: OfSite,
    wanted: TriggerRequest | None = None,
    key: IdempotencyKey = None,
) -> Triggered:
    id_ = ExecutionId(execution_id)
    input_ = None if wanted is None else wanted.input_params
    await site.check_room()
    await site.client.trigger(id_, input_, idempotency_key=key)
    header = await site.backend.archive.get_header(id_)
    state = ExecutionState.PENDING if header is None else header.state
    return Triggered(execution_id=execution_id, status=state)


@router.get(
    "/executions",
    operation_id="list_executions",
    summary="Executions, the newest first",
    response_model=ExecutionPage,
    dependencies=READ,
    responses=problems(422),
)
async def list_executions(site: OfSite, chosen: Annotated[ChosenPage, Query()]) -> Response:
    wanted = chosen.to_filter(limit=chosen.limit, after=chosen.after)
    page = await site.client.list_executions(wanted)
    return written({"items": [listed(each) for each in page], "next": page.next})


@router.get(
    "/executions/count",
    operation_id="count_executions",
    summary="How many executions there are in each state",
    response_model=Counts,
    dependencies=READ,
    responses=problems(422),
)
async def count(site: OfSite, chosen: Annotated[Chosen, Query()]) -> dict[str, Json]:
    found = await site.client.count_executions(chosen.to_filter())
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
    responses=problems(404, 422),
)
@router.get(
    "/executions/{execution_id}",
    operation_id="read_execution",
    summary="An execution with its nodes",
    response_model=ExecutionAnswer,
    dependencies=READ,
    responses=problems(404, 422),
)
async def read(execution_id: ExecutionIdPath, site: OfSite) -> Response:
    return written(document_of(await site.client.get(ExecutionId(execution_id))))


@router.get(
    "/executions/{execution_id}/wait",
    operation_id="wait_for_execution",
    summary="An execution once it is final, or after so many seconds as it is then",
    response_model=ExecutionAnswer,
    dependencies=READ,
    responses=problems(404, 422),
)
async def wait(
    execution_id: ExecutionIdPath,
    site: OfSite,
    timeout: Annotated[float, Query(ge=0, le=WAIT_S_MAX, description="In seconds")] = 30.0,
) -> Response:
    await site.wait(ExecutionId(execution_id), timeout)
    return await read(execution_id, site)


@router.get(
    "/executions/{execution_id}/history",
    operation_id="read_history",
    summary="Everything that has happened in an execution",
    response_model=HistoryAnswer,
    dependencies=READ,
    responses=problems(404, 422),
)
async def history(
    execution_id: ExecutionIdPath,
    site: OfSite,
    after: Annotated[
        int, Query(ge=0, le=2**31, description="So many are known already, and left out")
    ] = 0,
) -> Response:
    found = await site.client.history(ExecutionId(execution_id), after=after)
    items = [{"at": moment(each.at), "event": each.event, "fields": each.fields} for each in found]
    return written({"items": items})


@router.post(
    "/executions/{execution_id}/cancel",
    operation_id="cancel_execution",
    summary="End an execution; its clean-up nodes still run, unless it is forced",
    status_code=202,
    dependencies=RUN,
    responses=problems(*BODY, 404, 409),
)
async def cancel(
    execution_id: ExecutionIdPath, site: OfSite, wanted: CancelRequest | None = None
) -> Accepted:
    wanted = wanted or CancelRequest()
    id_ = ExecutionId(execution_id)
    await site.client.cancel(id_, reason=wanted.reason, is_forced=wanted.force)
    return Accepted(execution_id=execution_id)


@router.post(
    "/executions/{execution_id}/signal",
    operation_id="signal_execution",
    summary="Tell an execution what one of its nodes waits for",
    status_code=202,
    dependencies=RUN,
    responses=problems(*BODY, 404, 409),
)
async def signal(execution_id: ExecutionIdPath, site: OfSite, wanted: SignalRequest) -> Accepted:
    await site.client.signal(
        ExecutionId(execution_id), wanted.name, wanted.payload, signal_id=wanted.signal_id
    )
    return Accepted(execution_id=execution_id)


@router.post(
    "/executions/{execution_id}/rerun",
    operation_id="rerun_execution",
    summary="Run a finished execution again, by default only what did not complete",
    status_code=201,
    dependencies=RUN,
    responses=problems(*BODY, 404, 409),
)
async def rerun(
    execution_id: ExecutionIdPath,
    site: OfSite,
    wanted: RerunRequest | None = None,
    key: IdempotencyKey = None,
) -> Begun:
    wanted = wanted or RerunRequest()
    await site.check_room()
    new_id = await site.client.rerun(
        ExecutionId(execution_id), wanted.to_rerun(), input_=wanted.input, idempotency_key=key
    )
    return begun(await site.client.header(new_id))


# One node of an execution.

nodes_router = APIRouter(tags=["executions"], route_class=StrictRoute)
PLACE_MAX = 2**31 - 1


@nodes_router.get(
    "/executions/{execution_id}/nodes/{node_id:path}",
    operation_id="read_node",
    summary="A node: its attempts, config, inputs, output, error and logs; items of a map in pages",
    response_model=NodeDetailAnswer,
    dependencies=[needs(Scope.READ)],
    responses=problems(404, 422),
)
async def read_node(
    execution_id: ExecutionIdPath,
    node_id: Annotated[str, Path(max_length=500)],
    site: OfSite,
    *,
    item: Annotated[int | None, Query(ge=0, le=PLACE_MAX, description="One of a map")] = None,
    items_after: Annotated[int, Query(ge=-1, le=PLACE_MAX)] = -1,
    items_limit: Annotated[int, Query(ge=1, le=LIMIT_MAX)] = ITEMS,
) -> dict[str, Json]:
    detail = await site.client.nodes.get(
        ExecutionId(execution_id),
        node_id,
        item=item,
        items_after=items_after,
        items_limit=items_limit,
    )
    return detail_document(detail)


# Many executions at once, by a filter.

bulk_router = APIRouter(tags=["executions"], route_class=StrictRoute)
OPERATE = [needs(Scope.OPERATE)]


@bulk_router.post(
    "/executions/cancel",
    operation_id="cancel_executions",
    summary="End all executions that a filter finds, up to 500 in each step",
    response_model=BulkAnswer,
    dependencies=OPERATE,
    responses=problems(*BODY),
)
async def cancel_executions(site: OfSite, wanted: BulkCancelRequest) -> dict[str, Json]:
    step = await cancel_many(
        site.client,
        site.backend.mailbox,
        _filter(wanted),
        reason=wanted.reason,
        is_forced=wanted.force,
    )
    return _answer(step)


@bulk_router.post(
    "/executions/rerun",
    operation_id="rerun_executions",
    summary="Rerun all executions that a filter finds, up to 100 in each step",
    response_model=BulkAnswer,
    dependencies=OPERATE,
    responses=problems(*BODY),
)
async def rerun_executions(site: OfSite, wanted: BulkRerunRequest) -> dict[str, Json]:
    await site.check_room()
    step = await rerun_many(
        site.client, site.backend.archive, _filter(wanted), wanted.to_rerun(), key=wanted.key
    )
    return _answer(step)


def _filter(wanted: BulkRequest) -> ExecutionFilter:
    """Everything has to be asked for in so many words."""
    chosen = Chosen(**wanted.model_dump(include=set(Chosen.model_fields)))
    if chosen == Chosen() and not wanted.every:
        raise InputError("which executions? Say status, workflow, label …, or 'every': true")
    return chosen.to_filter(after=wanted.after)


def _answer(step: BulkStep) -> dict[str, Json]:
    document: dict[str, Json] = msgspec.to_builtins(step)
    return document
