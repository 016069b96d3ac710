"""Dead letters: list, read, retry with other configs, purge; one, or all that a filter finds."""

from typing import Annotated

from fastapi import Path, Query

from runnel.api.requests import AfterParam, BulkRetryRequest, LimitParam, RetryRequest, Selection
from runnel.api.routing import BODY_STATUSES, ResourceRouter
from runnel.api.state import AppStateDependency
from runnel.client.dead_letters import (
    LettersOf,
    build_letter_view,
    find_letter,
    read_letter_page,
)
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
    count = await app_state.client.dead_letters.count(
        queue=queue, workflow=workflow, execution=execution
    )
    return DeadLetterCount(count=count)


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
    await app_state.check_capacity()
    return await app_state.client.dead_letters.retry_many(_to_selection(body), limit=body.limit)


@routes.operation(
    "POST",
    "/purge",
    "Remove dead letters for good; their executions stay as they are",
    scope=Scope.OPERATE,
    problems=BODY_STATUSES,
)
async def purge_dead_letters(app_state: AppStateDependency, body: Selection) -> PurgedLetters:
    purged = await app_state.client.dead_letters.purge_many(_to_selection(body))
    return PurgedLetters(purged=purged)


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
    await app_state.check_capacity()
    configs = {} if body is None else body.configs
    return await app_state.client.dead_letters.retry(name, configs)


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
    return await app_state.client.dead_letters.get(name)


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


def _to_selection(body: Selection) -> LettersOf:
    return LettersOf(
        queue=body.queue,
        workflow=body.workflow,
        execution=body.execution,
        older_than_s=body.older_than_s,
        is_all=body.all,
    )
