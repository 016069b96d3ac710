"""Many executions at once, by a filter."""

import msgspec
from fastapi import APIRouter

from runnel.api.answers import BODY, problems
from runnel.api.bodies import StrictRoute
from runnel.api.filters import Chosen
from runnel.api.models.bulk import (
    BulkAnswer,
    BulkCancelRequest,
    BulkRequest,
    BulkRerunRequest,
)
from runnel.api.security.callers import needs
from runnel.api.security.scopes import Scope
from runnel.api.site import OfSite
from runnel.bulk import BulkStep, cancel_many, rerun_many
from runnel.core.json_types import Json
from runnel.errors import InputError
from runnel.ports.archive import ExecutionFilter

router = APIRouter(tags=["executions"], route_class=StrictRoute)
OPERATE = [needs(Scope.OPERATE)]


@router.post(
    "/executions/cancel",
    operation_id="cancel_executions",
    summary="End all executions that a filter finds, up to 500 in each step",
    response_model=BulkAnswer,
    dependencies=OPERATE,
    responses=problems(*BODY),
)
async def cancel(site: OfSite, wanted: BulkCancelRequest) -> dict[str, Json]:
    step = await cancel_many(
        site.client,
        site.backend.mailbox,
        _filter(wanted),
        reason=wanted.reason,
        is_forced=wanted.force,
    )
    return _answer(step)


@router.post(
    "/executions/rerun",
    operation_id="rerun_executions",
    summary="Rerun all executions that a filter finds, up to 100 in each step",
    response_model=BulkAnswer,
    dependencies=OPERATE,
    responses=problems(*BODY),
)
async def rerun(site: OfSite, wanted: BulkRerunRequest) -> dict[str, Json]:
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
