"""Finds, lists, retries and deletes the dead letters of a store."""

import base64
import binascii
import hashlib
from collections.abc import AsyncIterator, Mapping, Sequence
from itertools import islice
from math import inf, isfinite, nextafter
from typing import Any

import msgspec

from runnel.client.idempotency import derive_execution_id
from runnel.client.operations import to_queue_key, to_queue_name
from runnel.client.reruns import NEW_INPUT_LABEL, RerunClient, RerunSpec
from runnel.core.effects import DeadLetter
from runnel.core.execution import Execution
from runnel.core.ids import NO_ITEM, ExecutionId, format_node_name, get_root_id
from runnel.core.message_text import escape_unprintable, format_names
from runnel.core.states import ExecutionState
from runnel.core.values import Json
from runnel.errors import InputError, NotFoundError, WrongStateError
from runnel.ports.archive import Archive, DeadLetterFilter, ExecutionFilter
from runnel.ports.clock import Clock
from runnel.views import Timestamp
from runnel.views.dead_letter import (
    BulkRetryResult,
    DeadLetterDetail,
    DeadLetterView,
    RefusedRetry,
    RetriedLetters,
)

PAGE_SIZE = 500
RETRIES_PER_STEP = 100


class LettersOf(msgspec.Struct, frozen=True, kw_only=True):
    """Selects the dead letters that match all given fields.

    `execution` is the beginning of an execution id. `is_all` selects every dead letter; it can't be
    combined with another field.
    """

    queue: str | None = None
    workflow: str | None = None
    execution: str = ""
    older_than_s: float = 0.0
    is_all: bool = False


class StoreDeadLetters:
    """The client's `DeadLetters` over a store."""

    def __init__(self, client: RerunClient, archive: Archive, clock: Clock) -> None:
        self._client = client
        self._archive = archive
        self._clock = clock

    async def list(
        self, *, queue: str | None = None, workflow: str | None = None, execution: str = ""
    ) -> AsyncIterator[DeadLetterView]:
        criteria = DeadLetterFilter(
            queue=to_queue_key(queue), workflow=workflow, execution=execution
        )
        async for letter in iter_letters(self._archive, criteria):
            yield build_letter_view(letter)

    async def count(
        self, *, queue: str | None = None, workflow: str | None = None, execution: str = ""
    ) -> int:
        return await self._archive.count_dead_letters(
            DeadLetterFilter(queue=to_queue_key(queue), workflow=workflow, execution=execution)
        )

    async def get(self, name: str) -> DeadLetterDetail:
        letter = await find_letter(self._archive, name)
        root = get_root_id(letter.token.execution_id)
        header = await self._archive.get_header(root) if root else None
        return build_letter_detail(letter, None if header is None else header.state)

    async def retry(self, name: str, configs: Mapping[str, Json] | None = None) -> RetriedLetters:
        letter = await find_letter(self._archive, name)
        if configs:
            check_editable(format_letter_name(letter), letter.token.execution_id)
        root = get_root_id(letter.token.execution_id)
        letters = await list_execution_letters(self._archive, root) if root else [letter]
        new_id = await retry_letters(self._client, self._archive, letters, configs=configs)
        return RetriedLetters(
            execution_id=new_id,
            rerun_of=root,
            letters=[format_letter_name(letter) for letter in letters],
        )

    async def retry_many(
        self, selection: LettersOf, *, limit: int = RETRIES_PER_STEP
    ) -> BulkRetryResult:
        by_root = await group_letters_by_root(self._archive, self._build_filter(selection))
        retried: list[RetriedLetters] = []
        refused: list[RefusedRetry] = []
        for root, letters in islice(by_root.items(), limit):
            names = [format_letter_name(letter) for letter in letters]
            try:
                new_id = await retry_letters(self._client, self._archive, letters)
            except InputError as error:
                refused.append(
                    RefusedRetry(rerun_of=root, letters=names, code=error.code, message=str(error))
                )
            else:
                retried.append(RetriedLetters(execution_id=new_id, rerun_of=root, letters=names))
        return BulkRetryResult(retried=retried, refused=refused, left=max(0, len(by_root) - limit))

    async def purge(self, name: str) -> None:
        await self._archive.delete_dead_letters([await find_letter(self._archive, name)])

    async def purge_many(self, selection: LettersOf) -> int:
        letters = iter_letters(self._archive, self._build_filter(selection))
        selected = [letter async for letter in letters]
        return await self._archive.delete_dead_letters(selected) if selected else 0

    def _build_filter(self, selection: LettersOf) -> DeadLetterFilter:
        """Returns the filter of a selection.

        Raises InputError unless the selection has either `is_all` or at least one other field.
        """
        has_filter = bool(
            selection.queue or selection.workflow or selection.execution or selection.older_than_s
        )
        if has_filter is selection.is_all:
            raise InputError(
                "select dead letters by queue, workflow, execution or age, or select 'all' of "
                "them, but not both"
            )
        return DeadLetterFilter(
            queue=to_queue_key(selection.queue or None),
            workflow=selection.workflow or None,
            execution=selection.execution,
            before=self._clock.now() - selection.older_than_s,
        )


_encode = msgspec.json.Encoder(order="sorted").encode


def format_letter_name(letter: DeadLetter) -> str:
    """Returns the name of a dead letter: `execution/node` or `execution/node[item]`.

    The name is unique, and the same in every process. The dead letter of a command that the
    orchestrator could not process has a short hash in place of the node.
    """
    token = letter.token
    if not token.node_id:
        return f"{token.execution_id}/~{compute_letter_digest(letter)}"
    node = format_node_name(escape_unprintable(token.node_id), token.item)
    return f"{token.execution_id}/{node}"


def _has_name(letter: DeadLetter, suffix: str) -> bool:
    """Returns True if `suffix` is the name without the execution, also in the form `node/item`."""
    token = letter.token
    former = f"{escape_unprintable(token.node_id)}/{token.item}"
    return suffix == format_letter_name(letter).partition("/")[2] or (
        token.item != NO_ITEM and suffix == former
    )


def compute_letter_digest(letter: DeadLetter) -> str:
    """Returns a hash that distinguishes dead letters with the same timestamp."""
    return _hash(msgspec.json.encode(letter))


def check_editable(name: str, execution_id: ExecutionId) -> None:
    """Raises InputError for a dead letter of a child execution.

    A retry can't replace the config of a child's node.
    """
    if "." in execution_id:
        raise InputError(
            f"dead letter {name} is from a child execution, so a retry can't replace its "
            "config; change the workflow, and rerun the root execution with --newest"
        )


async def iter_letters(archive: Archive, criteria: DeadLetterFilter) -> AsyncIterator[DeadLetter]:
    """Yields all dead letters that match a filter, newest first. Ignores the filter's `limit`."""
    criteria = msgspec.structs.replace(criteria, limit=PAGE_SIZE)
    while True:
        page = await archive.list_dead_letters(criteria)
        for letter in page:
            yield letter
        if len(page) < PAGE_SIZE:
            return
        criteria = msgspec.structs.replace(criteria, after=page[-1])


async def find_letter(archive: Archive, text: str) -> DeadLetter:
    """Returns the dead letter with a given name, or the only one of an execution.

    The execution id in the text may be shortened. Raises NotFoundError if no dead letter matches,
    or more than one.
    """
    execution, slash, suffix = text.strip().partition("/")
    letters = [letter async for letter in _iter_by_prefix(archive, execution)]
    if slash:
        letters = [letter for letter in letters if _has_name(letter, suffix)]
    exact = [letter for letter in letters if letter.token.execution_id == execution]
    letters = exact or letters
    if not letters:
        raise NotFoundError(
            "dead letter", escape_unprintable(text), hint="'runnel dlq list' shows all dead letters"
        )
    if len(letters) > 1:
        names = format_names([format_letter_name(letter) for letter in letters])
        raise NotFoundError(
            "single dead letter", escape_unprintable(text), hint=f"several match: {names}"
        )
    return letters[0]


async def list_execution_letters(archive: Archive, root: ExecutionId) -> list[DeadLetter]:
    """Lists the dead letters of an execution and its children, which one rerun retries together."""
    letters = iter_letters(archive, DeadLetterFilter(execution=root))
    return [letter async for letter in letters if get_root_id(letter.token.execution_id) == root]


async def delete_execution_letters(archive: Archive, root: ExecutionId) -> None:
    """Deletes the dead letters of an execution and its children, after a rerun replaced them."""
    letters = await list_execution_letters(archive, root)
    if letters:
        await archive.delete_dead_letters(letters)


async def retry_letters(
    client: RerunClient,
    archive: Archive,
    letters: Sequence[DeadLetter],
    *,
    configs: Mapping[str, Json] | None = None,
) -> ExecutionId:
    """Reruns the failed nodes of the letters' execution, which deletes the letters.

    A repeated or concurrent call returns the same rerun. `configs` replace the configs of nodes. A
    config from an earlier retry is kept unless `configs` replaces it again. Raises WrongStateError
    and InputError.
    """
    root = get_root_id(letters[0].token.execution_id)
    await _check_retryable(archive, root, letters[0])
    kept = _find_replaced_configs(await client.load(root), letters)
    spec = RerunSpec(is_whole=False, configs={**kept, **(configs or {})})
    key = f"dead letters {_hash(_encode(spec.configs))}"
    await _check_not_completed_by_rerun(archive, letters[0], derive_execution_id(root, key))
    return await client.rerun(root, spec, idempotency_key=key)


async def _iter_by_prefix(archive: Archive, prefix: str) -> AsyncIterator[DeadLetter]:
    try:
        prefix.encode()
    except UnicodeEncodeError:  # the text has half a surrogate pair, which no id contains
        return
    async for letter in iter_letters(archive, DeadLetterFilter(execution=prefix)):
        yield letter


async def _check_retryable(archive: Archive, root: ExecutionId, letter: DeadLetter) -> None:
    name = format_letter_name(letter)
    header = await archive.get_header(root) if root else None
    if header is None:
        why = "its execution was deleted" if root else "it has no execution"
        raise WrongStateError(
            f"dead letter {name} can't be retried, because {why}; "
            f"'runnel dlq purge {name}' deletes the dead letter"
        )
    if header.state is ExecutionState.COMPLETED:
        raise WrongStateError(
            f"dead letter {name}: another attempt completed its execution, so there is nothing to "
            f"retry; 'runnel dlq purge {name}' deletes the dead letter"
        )


async def _check_not_completed_by_rerun(
    archive: Archive, letter: DeadLetter, retry_id: ExecutionId
) -> None:
    """Raises WrongStateError if a rerun other than `retry_id` has done the work of the letter.

    Such a letter remains if the process that started the rerun died before it deleted the letter.
    """
    root = get_root_id(letter.token.execution_id)
    # A filter by state may lack an execution that completed a moment ago.
    page = await archive.list_headers(ExecutionFilter(rerun_of=root))
    reruns = [
        header.execution_id
        for header in page
        if header.state is ExecutionState.COMPLETED and NEW_INPUT_LABEL not in header.labels
    ]
    if reruns and retry_id not in reruns:
        name = format_letter_name(letter)
        raise WrongStateError(
            f"dead letter {name}: execution {reruns[0]} is a completed rerun, so there is nothing "
            f"to retry; 'runnel dlq purge {name}' deletes the dead letter"
        )


def _find_replaced_configs(former: Execution, letters: Sequence[DeadLetter]) -> dict[str, Json]:
    """Returns the configs of failed tasks that an earlier retry has replaced."""
    nodes = {node.id: node.config for node in former.graph.workflow.nodes}
    configs = {
        letter.token.node_id: msgspec.json.decode(letter.config)
        for letter in letters
        if letter.token.execution_id == former.id and letter.token.node_id in nodes
    }
    return {node_id: config for node_id, config in configs.items() if config != nodes[node_id]}


def _hash(data: bytes) -> str:
    return hashlib.blake2b(data, digest_size=4).hexdigest()


# The functions below build views, pages and groups of dead letters.


class _LetterCursor(msgspec.Struct, frozen=True, array_like=True):
    """The position after a page of dead letters: the time and the digest of its last letter."""

    at: float
    digest: str


def build_letter_view(letter: DeadLetter) -> DeadLetterView:
    return DeadLetterView(**_build_letter_fields(letter))


def build_letter_detail(letter: DeadLetter, state: ExecutionState | None) -> DeadLetterDetail:
    """Builds the detail of a dead letter.

    `state` is the state of the execution that a retry would rerun, or None if that execution was
    deleted.
    """
    return DeadLetterDetail(**_build_letter_fields(letter), execution_status=state)


def _build_letter_fields(letter: DeadLetter) -> dict[str, Any]:
    token = letter.token
    return {
        "name": format_letter_name(letter),
        "execution_id": token.execution_id,
        "workflow": letter.workflow,
        "node": token.node_id,
        "item": None if token.item == NO_ITEM else token.item,
        "attempts": token.attempt,
        "queue": to_queue_name(letter.queue),
        "handler": letter.handler,
        "reason": letter.reason,
        "error": str(letter.error),
        "traceback": letter.error.traceback,
        "config": msgspec.json.decode(letter.config),
        "rejected_at": Timestamp(letter.rejected_at),
    }


async def read_letter_page(
    archive: Archive, criteria: DeadLetterFilter, *, after: str | None
) -> tuple[Sequence[DeadLetter], str | None]:
    """Returns a page of dead letters, newest first, and the `after` of the next page.

    The second value is None after the last page. If letters are deleted between two calls, no other
    letter is skipped. Raises InputError for an invalid `after`.
    """
    if after is None:
        letters = await archive.list_dead_letters(criteria)
    else:
        letters = await _read_page_after(archive, criteria, _decode_cursor(after))
    return letters, _encode_cursor(letters[-1]) if len(letters) == criteria.limit else None


async def group_letters_by_root(
    archive: Archive, criteria: DeadLetterFilter
) -> Mapping[ExecutionId, Sequence[DeadLetter]]:
    """Returns all dead letters of each execution that has at least one match.

    One rerun retries all letters of an execution, also those that the filter does not match. The
    execution with the oldest letter comes first.
    """
    roots: dict[ExecutionId, None] = {}
    all_letters = [letter async for letter in iter_letters(archive, DeadLetterFilter())]
    trees: dict[ExecutionId, list[DeadLetter]] = {}
    for letter in reversed(all_letters):
        trees.setdefault(get_root_id(letter.token.execution_id), []).append(letter)
    chosen = [letter async for letter in iter_letters(archive, criteria)]
    for letter in reversed(chosen):
        roots[get_root_id(letter.token.execution_id)] = None
    return {root: trees[root] for root in roots if root in trees}


async def _read_page_after(
    archive: Archive, criteria: DeadLetterFilter, cursor: _LetterCursor
) -> Sequence[DeadLetter]:
    """Returns the page of dead letters after a cursor.

    If the letter of the cursor was deleted, the page repeats the letters that have the same
    timestamp.
    """
    before = min(criteria.before, nextafter(cursor.at, inf))
    remaining = msgspec.structs.replace(criteria, before=before)
    letters: list[DeadLetter] = []
    async for letter in iter_letters(archive, remaining):
        if letter.rejected_at == cursor.at and compute_letter_digest(letter) == cursor.digest:
            letters.clear()
            continue
        if letter.rejected_at < cursor.at and len(letters) >= criteria.limit:
            break
        letters.append(letter)
    return letters[: criteria.limit]


def _encode_cursor(letter: DeadLetter) -> str:
    place = _LetterCursor(letter.rejected_at, compute_letter_digest(letter))
    return base64.urlsafe_b64encode(msgspec.json.encode(place)).decode().rstrip("=")


def _decode_cursor(text: str) -> _LetterCursor:
    try:
        data = base64.urlsafe_b64decode(text.encode() + b"=" * (-len(text) % 4))
        place = msgspec.json.decode(data, type=_LetterCursor)
    except (ValueError, binascii.Error, msgspec.MsgspecError) as error:
        raise _invalid_cursor_error(text) from error
    if not isfinite(place.at):
        raise _invalid_cursor_error(text)
    return place


def _invalid_cursor_error(text: str) -> InputError:
    shown = text.encode(errors="backslashreplace").decode()[:40]
    return InputError(f"after: expected the value of `next` from the previous page, got '{shown}'")
