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
from runnel.api.requests import After, Limit, StrictRoute
from runnel.api.responses import BODY, problems
from runnel.api.security.guard import needs
from runnel.api.security.tokens import Scope
from runnel.api.state import OfSite
from runnel.client.dead_letters import (
    all_letters,
    check_editable,
    find_letter,
    letter_document,
    letter_page,
    letters_by_root,
    letters_of,
    name_of,
    retry_each,
    retry_letters,
)
from runnel.client.operations import queue_key
from runnel.core.effects import DeadLetter
from runnel.core.ids import root_of
from runnel.core.validation.checks import NAME_CHARS_MAX
from runnel.core.values import Json
from runnel.errors import InputError
from runnel.ports.archive import LetterFilter

router = APIRouter(tags=["dead letters"], route_class=StrictRoute, prefix="/dead-letters")
READ, OPERATE = [needs(Scope.READ)], [needs(Scope.OPERATE)]

Name = Annotated[
    str, Path(description="As listed; the first characters of the execution do", max_length=1_000)
]
Queue = Annotated[str | None, Query(max_length=NAME_CHARS_MAX)]
OfWorkflow = Annotated[str | None, Query(max_length=NAME_CHARS_MAX)]
OfExecution = Annotated[str, Query(max_length=500, description="The beginning of its id")]


@router.get(
    "",
    operation_id="list_dead_letters",
    summary="Dead letters, the newest first",
    response_model=DeadLetterPage,
    dependencies=READ,
    responses=problems(422),
)
async def list_dead_letters(
    site: OfSite,
    *,
    queue: Queue = None,
    workflow: OfWorkflow = None,
    execution: OfExecution = "",
    limit: Limit = 50,
    after: After = None,
) -> dict[str, Json]:
    wanted = LetterFilter(
        queue=queue_key(queue), workflow=workflow, execution=execution, limit=limit
    )
    found, more = await letter_page(site.backend.archive, wanted, after=after)
    return {"items": [letter_document(each) for each in found], "next": more}


@router.get(
    "/count",
    operation_id="count_dead_letters",
    summary="How many dead letters there are",
    dependencies=READ,
    responses=problems(422),
)
async def count(
    site: OfSite,
    *,
    queue: Queue = None,
    workflow: OfWorkflow = None,
    execution: OfExecution = "",
) -> DeadLetterCount:
    wanted = LetterFilter(queue=queue_key(queue), workflow=workflow, execution=execution)
    return DeadLetterCount(count=await site.backend.archive.count_dead_letters(wanted))


@router.post(
    "/retry",
    operation_id="retry_dead_letters",
    summary="Run again what failed in every execution that has such a letter, the oldest first",
    dependencies=OPERATE,
    responses=problems(*BODY),
)
async def retry_many(site: OfSite, wanted: BulkRetryRequest) -> BulkRetried:
    archive = site.backend.archive
    trees = await letters_by_root(archive, _filter(site, wanted))
    await site.check_room()
    answer = BulkRetried(retried=[], refused=[], left=max(0, len(trees) - wanted.limit))
    chosen = dict(islice(trees.items(), wanted.limit))
    async for each in retry_each(site.client, archive, chosen):
        names = _names(each.letters)
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
    responses=problems(*BODY),
)
async def purge_many(site: OfSite, wanted: Selection) -> Purged:
    archive = site.backend.archive
    found = [each async for each in all_letters(archive, _filter(site, wanted))]
    return Purged(purged=await archive.delete_dead_letters(found) if found else 0)


@router.post(
    "/{name:path}/retry",
    operation_id="retry_dead_letter",
    summary="Run again what failed in the execution of a letter, with other configs if given",
    status_code=201,
    dependencies=OPERATE,
    responses=problems(*BODY, 404, 409),
)
async def retry(name: Name, site: OfSite, wanted: RetryRequest | None = None) -> RetriedAnswer:
    configs = {} if wanted is None else wanted.configs
    archive = site.backend.archive
    letter = await find_letter(archive, name)
    if configs:
        check_editable(letter)
    await site.check_room()
    root = root_of(letter.token.execution_id)
    letters = await letters_of(archive, root) if root else [letter]
    new_id = await retry_letters(site.client, archive, letters, configs=configs)
    return RetriedAnswer(execution_id=new_id, rerun_of=root, letters=_names(letters))


@router.get(
    "/{name:path}",
    operation_id="read_dead_letter",
    summary="One dead letter, with the state of its execution",
    response_model=DeadLetterDetail,
    dependencies=READ,
    responses=problems(404, 422),
)
async def read(name: Name, site: OfSite) -> dict[str, Json]:
    letter = await find_letter(site.backend.archive, name)
    root = root_of(letter.token.execution_id)
    header = await site.backend.archive.get_header(root) if root else None
    state = None if header is None else header.state
    return {**letter_document(letter), "execution_status": state}


@router.delete(
    "/{name:path}",
    operation_id="purge_dead_letter",
    summary="Remove one dead letter for good",
    dependencies=OPERATE,
    responses=problems(404, 422),
)
async def purge(name: Name, site: OfSite) -> Purged:
    letter = await find_letter(site.backend.archive, name)
    return Purged(purged=await site.backend.archive.delete_dead_letters([letter]))


def _filter(site: OfSite, wanted: Selection) -> LetterFilter:
    """Raises InputError for what would be all of them without saying so, or both."""
    has_filter = bool(wanted.queue or wanted.workflow or wanted.execution or wanted.older_than_s)
    if has_filter is wanted.all:
        raise InputError("say which dead letters: by queue, workflow, execution or age, or 'all'")
    return LetterFilter(
        queue=queue_key(wanted.queue or None),
        workflow=wanted.workflow or None,
        execution=wanted.execution,
        before=site.clock.now() - wanted.older_than_s,
    )


def _names(letters: Sequence[DeadLetter]) -> list[str]:
    return [name_of(each) for each in letters]
