"""Filters and pages of executions and of dead letters, for stores that have no index for them."""

from collections import Counter
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence

from msgspec import structs

from runnel.backends.row_codec import encode
from runnel.core.effects import DeadLetter
from runnel.core.states import ExecutionState
from runnel.ports.archive import (
    NEWEST_POSITION,
    SCANNED_EXECUTIONS_MAX,
    DeadLetterFilter,
    ExecutionCount,
    ExecutionFilter,
    HeaderPage,
    PagePosition,
    decode_cursor,
    encode_cursor,
)
from runnel.ports.store import ExecutionHeader

HeaderReader = Callable[[PagePosition, int], Awaitable[Sequence[ExecutionHeader]]]
"""The newest behind a place, at most so many; fewer only when there are no more."""


def matches_filter(header: ExecutionHeader, criteria: ExecutionFilter) -> bool:
    """Whatever page it is on."""
    return (
        (not criteria.states or header.state in criteria.states)
        and criteria.workflow in (None, header.workflow)
        and criteria.rerun_of in (None, header.rerun_of)
        and (
            header.parent_id == criteria.parent
            if criteria.parent is not None
            else criteria.with_children or header.parent_id is None
        )
        and criteria.created_from <= header.created_at < criteria.created_before
        and all(header.labels.get(key) == value for key, value in criteria.labels.items())
        and (not criteria.text or _contains_text(header, criteria.text.casefold()))
    )


def _contains_text(header: ExecutionHeader, text: str) -> bool:
    texts = (header.execution_id, header.workflow, header.error or "", *header.labels.values())
    return any(text in searched.casefold() for searched in texts)


def is_unindexed(criteria: ExecutionFilter) -> bool:
    """Whether it asks for what no index of a database sorts by."""
    return bool(criteria.labels or criteria.text)


def get_filter_states(criteria: ExecutionFilter) -> tuple[ExecutionState, ...]:
    return tuple(dict.fromkeys(criteria.states)) or tuple(ExecutionState)


def get_page_position(header: ExecutionHeader) -> PagePosition:
    return header.created_at, header.execution_id


def find_page_start(criteria: ExecutionFilter) -> PagePosition:
    """What is wanted is behind this place; raises InputError for an `after` that is none."""
    after = NEWEST_POSITION if criteria.after is None else decode_cursor(criteria.after)
    return min(after, (criteria.created_before, ""))


def build_header_page(headers: Sequence[ExecutionHeader], criteria: ExecutionFilter) -> HeaderPage:
    """Of all that are wanted behind its start; one more than its limit says that there are more."""
    if len(headers) <= criteria.limit:
        return HeaderPage(headers=headers)
    page = headers[: criteria.limit]
    return HeaderPage(headers=page, next=encode_cursor(get_page_position(page[-1])))


async def scan_headers(
    read: HeaderReader,
    criteria: ExecutionFilter,
    *,
    chunk_size: int,
    scanned_max: int = SCANNED_EXECUTIONS_MAX,
) -> HeaderPage:
    """Reads `chunk_size` by `chunk_size` until the page is full, all is read, or enough was looked
    at.
    """
    position = find_page_start(criteria)
    matching: list[ExecutionHeader] = []
    scanned = 0
    while scanned < scanned_max:
        headers = await read(position, chunk_size)
        matching += [header for header in headers if matches_filter(header, criteria)]
        is_over = len(headers) < chunk_size or headers[-1].created_at < criteria.created_from
        if is_over or len(matching) > criteria.limit:
            return build_header_page(matching, criteria)
        scanned += len(headers)
        position = get_page_position(headers[-1])
    return HeaderPage(headers=matching, next=encode_cursor(position))


async def count_by_scan(
    read: HeaderReader, criteria: ExecutionFilter, *, chunk_size: int
) -> Mapping[ExecutionState, ExecutionCount]:
    """Of the newest SCANNED_EXECUTIONS_MAX: at least so many, if there are more."""
    everything = structs.replace(criteria, after=None, limit=SCANNED_EXECUTIONS_MAX)
    page = await scan_headers(read, everything, chunk_size=chunk_size)
    counts = Counter(header.state for header in page)
    is_least = page.next is not None
    return {
        state: ExecutionCount(number=counts[state], is_least=is_least)
        for state in get_filter_states(criteria)
    }


# -- dead letters --------------------------------------------------------------------------


def matches_letter_filter(letter: DeadLetter, criteria: DeadLetterFilter) -> bool:
    """Whatever page it is on."""
    return (
        criteria.queue in (None, letter.queue)
        and criteria.workflow in (None, letter.workflow)
        and letter.token.execution_id.startswith(criteria.execution)
        and letter.rejected_at < criteria.before
    )


def build_letter_page(
    letters: Iterable[DeadLetter], criteria: DeadLetterFilter
) -> list[DeadLetter]:
    positioned = [
        (get_letter_position(letter), letter)
        for letter in letters
        if matches_letter_filter(letter, criteria)
    ]
    if criteria.after is not None:
        end = get_letter_position(criteria.after)
        positioned = [pair for pair in positioned if pair[0] < end]
    positioned.sort(key=lambda pair: pair[0], reverse=True)
    return [letter for _, letter in positioned[: criteria.limit]]


def get_letter_position(letter: DeadLetter) -> tuple[float, bytes]:
    """Where it stands in a list, with the newest last."""
    return letter.rejected_at, encode(letter)
