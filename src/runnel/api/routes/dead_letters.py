"""Dead letters: list, read, retry with other configs, purge; one, or all that a filter finds."""

from collections.abc import Sequence
from itertools import islice
from typing import Annotated

from fastapi import APIRouter, Path, Query

from runnel.api.models import (
    BulkRetried,
    BulkRetryRequest,
    DeadLetterCount,
    DeadLetterDetail,
    DeadLetterPage,
    NotRetried,
    Purged,
    RetriedAnswer,
    RetryRequest,
    Selection,
)
from runnel.api.requests import AfterParam, LimitParam, StrictRoute
from runnel.api.responses import BODY_STATUSES, describe_problems
from runnel.api.security.guard import require_scope
from runnel.api.security.tokens import Scope
from runnel.api.state import AppStateDependency
from runnel.client.dead_letters import (
    build_letter_document,
    check_editable,
    find_letter,
    format_letter_name,
    group_letters_by_root,
    iter_letters,
    list_execution_letters,
    read_letter_page,
    retry_each_root,
    retry_letters,
)
from runnel.client.operations import to_queue_key
from runnel.core.effects import DeadLetter
from runnel.core.ids import get_root_id
from runnel.core.validation.checks import NAME_CHARS_MAX
from runnel.core.values import Json
from runnel.errors import InputError
from runnel.ports.archive import DeadLetterFilter

router = APIRouter(tags=["dead letters"], route_class=StrictRoute, prefix="/dead-letters")
READ, OPERATE = [require_scope(Scope.READ)], [require_scope(Scope.OPERATE)]

LetterNameParam = Annotated[
    str, Path(description="As listed; the first characters of the execution do", max_length=1_000)
]
QueueParam = Annotated[str | None, Query(max_length=NAME_CHARS_MAX)]
WorkflowParam = Annotated[str | None, Query(max_length=NAME_CHARS_MAX)]
ExecutionPrefixParam = Annotated[str, Query(max_length=500, description="The beginning of its id")]


@router.get(
    "",
    operation_id="list_dead_letters",
    summary="Dead letters, the newest first",
    response_model=DeadLetterPage,
    dependencies=READ,
    responses=describe_problems(422),
)
async def list_dead_letters(
    app_state: AppStateDependency,
    *,
    queue: QueueParam = None,
    workflow: WorkflowParam = None,
    execution: ExecutionPrefixParam = "",
    limit: LimitParam = 50,
    after: AfterParam = None,
) -> dict[str, Json]:
    wanted = DeadLetterFilter(
        queue=to_queue_key(queue), workflow=workflow, execution=execution, limit=limit
    )
    found, more = await read_letter_page(app_state.backend.archive, wanted, after=after)
    return {"items": [build_letter_document(each) for each in found], "next": more}


@router.get(
    "/count",
    operation_id="count_dead_letters",
    summary="How many dead letters there are",
    dependencies=READ,
    responses=describe_problems(422),
)
async def count(
    app_state: AppStateDependency,
    *,
    queue: QueueParam = None,
    workflow: WorkflowParam = None,
    execution: ExecutionPrefixParam = "",
) -> DeadLetterCount:
    wanted = DeadLetterFilter(queue=to_queue_key(queue), workflow=workflow, execution=execution)
    return DeadLetterCount(count=await app_state.backend.archive.count_dead_letters(wanted))


@router.post(
    "/retry",
    operation_id="retry_dead_letters",
    summary="Run again what failed in every execution that has such a letter, the oldest first",
    dependencies=OPERATE,
    responses=describe_problems(*BODY_STATUSES),
)
async def retry_many(app_state: AppStateDependency, body: BulkRetryRequest) -> BulkRetried:
    archive = app_state.backend.archive
    trees = await group_letters_by_root(archive, _build_filter(app_state, body))
    await app_state.check_capacity()
    answer = BulkRetried(retried=[], refused=[], left=max(0, len(trees) - body.limit))
    chosen = dict(islice(trees.items(), body.limit))
    async for each in retry_each_root(app_state.client, archive, chosen):
        names = _list_names(each.letters)
        if each.execution_id is not None:
            answer.retried.append(
                RetriedAnswer(execution_id=each.execution_id, rerun_of=each.root, letters=names)
            )
        elif each.error is not None:
            message = str(each.error)
            answer.refused.append(
                NotRetried(rerun_of=each.root, letters=names, code=each.error.code, message=message)
            )
    return answer


@router.post(
    "/purge",
    operation_id="purge_dead_letters",
    summary="Remove dead letters for good; their executions stay as they are",
    dependencies=OPERATE,
    responses=describe_problems(*BODY_STATUSES),
)
async def purge_many(app_state: AppStateDependency, body: Selection) -> Purged:
    archive = app_state.backend.archive
    found = [each async for each in iter_letters(archive, _build_filter(app_state, body))]
    return Purged(purged=await archive.delete_dead_letters(found) if found else 0)


@router.post(
    "/{name:path}/retry",
    operation_id="retry_dead_letter",
    summary="Run again what failed in the execution of a letter, with other configs if given",
    status_code=201,
    dependencies=OPERATE,
    responses=describe_problems(*BODY_STATUSES, 404, 409),
)
async def retry(
    name: LetterNameParam, app_state: AppStateDependency, wanted: RetryRequest | None = None
) -> RetriedAnswer:
    configs = {} if wanted is None else wanted.configs
    archive = app_state.backend.archive
    letter = await find_letter(archive, name)
    if configs:
        check_editable(format_letter_name(letter), letter.token.execution_id)
    await app_state.check_capacity()
    root = get_root_id(letter.token.execution_id)
    letters = await list_execution_letters(archive, root) if root else [letter]
    new_id = await retry_letters(app_state.client, archive, letters, configs=configs)
    return RetriedAnswer(execution_id=new_id, rerun_of=root, letters=_list_names(letters))


@router.get(
    "/{name:path}",
    operation_id="read_dead_letter",
    summary="One dead letter, with the state of its execution",
    response_model=DeadLetterDetail,
    dependencies=READ,
    responses=describe_problems(404, 422),
)
async def read(name: LetterNameParam, app_state: AppStateDependency) -> dict[str, Json]:
    letter = await find_letter(app_state.backend.archive, name)
    root = get_root_id(letter.token.execution_id)
    header = await app_state.backend.archive.get_header(root) if root else None
    state = None if header is None else header.state
    return {**build_letter_document(letter), "execution_status": state}


@router.delete(
    "/{name:path}",
    operation_id="purge_dead_letter",
    summary="Remove one dead letter for good",
    dependencies=OPERATE,
    responses=describe_problems(404, 422),
)
async def purge(name: LetterNameParam, app_state: AppStateDependency) -> Purged:
    letter = await find_letter(app_state.backend.archive, name)
    return Purged(purged=await app_state.backend.archive.delete_dead_letters([letter]))


def _build_filter(app_state: AppStateDependency, body: Selection) -> DeadLetterFilter:
    """Raises InputError for what would be all of them without saying so, or both."""
    has_filter = bool(body.queue or body.workflow or body.execution or body.older_than_s)
    if has_filter is body.all:
        raise InputError("say which dead letters: by queue, workflow, execution or age, or 'all'")
    return DeadLetterFilter(
        queue=to_queue_key(body.queue or None),
        workflow=body.workflow or None,
        execution=body.execution,
        before=app_state.clock.now() - body.older_than_s,
    )


def _list_names(letters: Sequence[DeadLetter]) -> list[str]:
    return [format_letter_name(each) for each in letters]
