"""Executions: trigger, read, list, wait, cancel, rerun, signal."""

from typing import Annotated

from fastapi import APIRouter, Query, Response

from runnel.api.answers import BODY, listed, problems, written
from runnel.api.bodies import StrictRoute
from runnel.api.filters import Chosen, ChosenPage
from runnel.api.models.executions import (
    Accepted,
    CancelRequest,
    Counts,
    ExecutionAnswer,
    ExecutionPage,
    HistoryAnswer,
    RerunRequest,
    SignalRequest,
    Triggered,
    TriggerRequest,
)
from runnel.api.models.workflows import Begun
from runnel.api.parameters import ExecutionIdPath, IdempotencyKey
from runnel.api.routes.workflows import begun
from runnel.api.security.callers import needs
from runnel.api.security.scopes import Scope
from runnel.api.site import OfSite
from runnel.core.ids import ExecutionId
from runnel.core.json_types import Json
from runnel.core.states import ExecutionState
from runnel.views import document_of, moment

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
