"""Dead letters: list, read, retry with other configs, purge; one, or all that a filter finds."""

from collections.abc import Sequence
from itertools import islice
from typing import Annotated

from fastapi import Path, Query

from runnel.api.requests import AfterParam, BulkRetryRequest, LimitParam, RetryRequest, Selection
from runnel.api.routing import BODY_STATUSES, ResourceRouter
from runnel.api.state import AppState, AppStateDependency
from runnel.client.dead_letters import (
    build_letter_detail,
    build_letter_view,
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
from runnel.errors import InputError
from runnel.ports.archive import DeadLetterFilter
from runnel.views.dead_letter import (
    BulkRetryResult,
    DeadLetterCount,
    DeadLetterDetail,
    DeadLetterView,
    PurgedLetters,
    RefusedRetry,
    RetriedLetters,
)
from runnel.views.page import Page
from runnel.views.token import Scope

routes = ResourceRouter("dead letters", prefix="/dead-letters")

LetterNameParam = Annotated[
    str, Path(description="As listed; the first characters of the execution do", max_length=1_000)
]
QueueParam = Annotated[str | None, Query(max_length=NAME_CHARS_MAX)]
WorkflowParam = Annotated[str | None, Query(max_length=NAME_CHARS_MAX)]
ExecutionPrefixParam = Annotated[str, Query(max_length=500, description="The beginning of its id")]


@routes.operation("GET", "", "Dead letters, the newest first", scope=Scope.READ, problems=(422,))
async def list_dead_letters(
    app_state: AppStateDependency,
    *,
    queue: QueueParam = None,
    workflow: WorkflowParam = None,
    execution: ExecutionPrefixParam = "",
    limit: LimitParam = 50,
    after: AfterParam = None,
) -> Page[DeadLetterView]:
    criteria = DeadLetterFilter(
        queue=to_queue_key(queue), workflow=workflow, execution=execution, limit=limit
    )
    letters, cursor = await read_letter_page(app_state.backend.archive, criteria, after=after)
    return Page(items=[build_letter_view(letter) for letter in letters], next=cursor)


@routes.operation(
    "GET", "/count", "How many dead letters there are", scope=Scope.READ, problems=(422,)
)
async def count_dead_letters(
    app_state: AppStateDependency,
    *,
    queue: QueueParam = None,
    workflow: WorkflowParam = None,
    execution: ExecutionPrefixParam = "",
) -> DeadLetterCount:
    criteria = DeadLetterFilter(queue=to_queue_key(queue), workflow=workflow, execution=execution)
    return DeadLetterCount(count=await app_state.backend.archive.count_dead_letters(criteria))


@routes.operation(
    "POST",
    "/retry",
    "Run again what failed in every execution that has such a letter, the oldest first",
    scope=Scope.OPERATE,
    problems=BODY_STATUSES,
)
async def retry_dead_letters(
    app_state: AppStateDependency, body: BulkRetryRequest
) -> BulkRetryResult:
    archive = app_state.backend.archive
    letters_per_root = await group_letters_by_root(archive, _build_filter(app_state, body))
    await app_state.check_capacity()
    chosen = dict(islice(letters_per_root.items(), body.limit))
    retried: list[RetriedLetters] = []
    refused: list[RefusedRetry] = []
    async for result in retry_each_root(app_state.client, archive, chosen):
        root, names, error = result.root, _list_names(result.letters), result.error
        if result.execution_id is not None:
            retried.append(
                RetriedLetters(execution_id=result.execution_id, rerun_of=root, letters=names)
            )
        elif error is not None:
            refused.append(
                RefusedRetry(rerun_of=root, letters=names, code=error.code, message=str(error))
            )
    left = max(0, len(letters_per_root) - body.limit)
    return BulkRetryResult(retried=retried, refused=refused, left=left)


@routes.operation(
    "POST",
    "/purge",
    "Remove dead letters for good; their executions stay as they are",
    scope=Scope.OPERATE,
    problems=BODY_STATUSES,
)
async def purge_dead_letters(app_state: AppStateDependency, body: Selection) -> PurgedLetters:
    archive = app_state.backend.archive
    letters = [letter async for letter in iter_letters(archive, _build_filter(app_state, body))]
    return PurgedLetters(purged=await archive.delete_dead_letters(letters) if letters else 0)


@routes.operation(
    "POST",
    "/{name:path}/retry",
    "Run again what failed in the execution of a letter, with other configs if given",
    scope=Scope.OPERATE,
    problems=(*BODY_STATUSES, 404, 409),
    status=201,
)
async def retry_dead_letter(
    name: LetterNameParam, app_state: AppStateDependency, body: RetryRequest | None = None
) -> RetriedLetters:
    configs = {} if body is None else body.configs
    archive = app_state.backend.archive
    letter = await find_letter(archive, name)
    if configs:
        check_editable(format_letter_name(letter), letter.token.execution_id)
    await app_state.check_capacity()
    root = get_root_id(letter.token.execution_id)
    letters = await list_execution_letters(archive, root) if root else [letter]
    new_id = await retry_letters(app_state.client, archive, letters, configs=configs)
    return RetriedLetters(execution_id=new_id, rerun_of=root, letters=_list_names(letters))


@routes.operation(
    "GET",
    "/{name:path}",
    "One dead letter, with the state of its execution",
    scope=Scope.READ,
    problems=(404, 422),
)
async def read_dead_letter(
    name: LetterNameParam, app_state: AppStateDependency
) -> DeadLetterDetail:
    letter = await find_letter(app_state.backend.archive, name)
    root = get_root_id(letter.token.execution_id)
    header = await app_state.backend.archive.get_header(root) if root else None
    return build_letter_detail(letter, None if header is None else header.state)


@routes.operation(
    "DELETE",
    "/{name:path}",
    "Remove one dead letter for good",
    scope=Scope.OPERATE,
    problems=(404, 422),
)
async def purge_dead_letter(name: LetterNameParam, app_state: AppStateDependency) -> PurgedLetters:
    letter = await find_letter(app_state.backend.archive, name)
    return PurgedLetters(purged=await app_state.backend.archive.delete_dead_letters([letter]))


def _build_filter(app_state: AppState, body: Selection) -> DeadLetterFilter:
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
    return [format_letter_name(letter) for letter in letters]
