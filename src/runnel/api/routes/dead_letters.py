"""Routes of dead letters: list, read, retry with other configs, purge; one letter or many."""

from typing import Annotated

from fastapi import Path, Query

from runnel.api.requests import AfterParam, BulkRetryRequest, LimitParam, RetryRequest, Selection
from runnel.api.resource_router import ResourceRouter
from runnel.api.state import AppStateDependency
from runnel.client.dead_letters import LettersOf, build_letter_view, find_letter, read_letter_page
from runnel.client.operations import to_queue_key
from runnel.core.validation.checks import NAME_CHARS_MAX
from runnel.ports.archive import DeadLetterFilter
from runnel.views.dead_letter import (
    BulkRetryResult,
    DeadLetterCount,
    DeadLetterDetail,
    DeadLetterView,
    PurgedLetters,
    RetriedLetters,
)
from runnel.views.page import Page
from runnel.views.token import Scope

routes = ResourceRouter("dead letters", prefix="/dead-letters")

LetterNameParam = Annotated[
    str,
    Path(
        description="A name from the list; the execution id in it may be shortened",
        max_length=1_000,
    ),
]
QueueParam = Annotated[str | None, Query(max_length=NAME_CHARS_MAX)]
WorkflowParam = Annotated[str | None, Query(max_length=NAME_CHARS_MAX)]
ExecutionPrefixParam = Annotated[
    str, Query(max_length=500, description="The beginning of an execution id")
]


@routes.operation("GET ", Scope.READ, "List dead letters, newest first")
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


@routes.operation("GET /count", Scope.READ, "Count dead letters")
async def count_dead_letters(
    app_state: AppStateDependency,
    *,
    queue: QueueParam = None,
    workflow: WorkflowParam = None,
    execution: ExecutionPrefixParam = "",
) -> DeadLetterCount:
    letters = app_state.client.dead_letters
    return DeadLetterCount(
        count=await letters.count(queue=queue, workflow=workflow, execution=execution)
    )


@routes.operation(
    "POST /retry",
    Scope.OPERATE,
    "Rerun the failed nodes of every execution with a matching dead letter, oldest first",
)
async def retry_dead_letters(
    app_state: AppStateDependency, body: BulkRetryRequest
) -> BulkRetryResult:
    await app_state.check_capacity()
    return await app_state.client.dead_letters.retry_many(_build_selection(body), limit=body.limit)


@routes.operation(
    "POST /purge", Scope.OPERATE, "Delete dead letters for good; their executions do not change"
)
async def purge_dead_letters(app_state: AppStateDependency, body: Selection) -> PurgedLetters:
    letters = app_state.client.dead_letters
    return PurgedLetters(purged=await letters.purge_many(_build_selection(body)))


@routes.operation(
    "POST /{name:path}/retry",
    Scope.OPERATE,
    "Rerun the failed nodes of a dead letter's execution, with other configs if given",
    404,
    409,
    status=201,
)
async def retry_dead_letter(
    name: LetterNameParam, app_state: AppStateDependency, body: RetryRequest | None = None
) -> RetriedLetters:
    await app_state.check_capacity()
    return await app_state.client.dead_letters.retry(name, None if body is None else body.configs)


@routes.operation(
    "GET /{name:path}", Scope.READ, "Get one dead letter, with the state of its execution", 404
)
async def read_dead_letter(
    name: LetterNameParam, app_state: AppStateDependency
) -> DeadLetterDetail:
    return await app_state.client.dead_letters.get(name)


@routes.operation("DELETE /{name:path}", Scope.OPERATE, "Delete one dead letter for good", 404)
async def purge_dead_letter(name: LetterNameParam, app_state: AppStateDependency) -> PurgedLetters:
    letter = await find_letter(app_state.backend.archive, name)
    return PurgedLetters(purged=await app_state.backend.archive.delete_dead_letters([letter]))


def _build_selection(body: Selection) -> LettersOf:
    return LettersOf(
        queue=body.queue,
        workflow=body.workflow,
        execution=body.execution,
        older_than_s=body.older_than_s,
        is_all=body.all,
    )
