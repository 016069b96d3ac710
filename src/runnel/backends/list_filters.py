"""Filters lists of executions and dead letters and splits them into pages, without an index."""

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
"""Returns at most the given number of headers after a position, newest first.

A reader returns fewer headers only if there are no more.
"""


def matches_filter(header: ExecutionHeader, criteria: ExecutionFilter) -> bool:
    """Returns True if the header matches the filter; ignores `after` and `limit`."""
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
    """Returns True if the filter uses labels or text, which no database index covers."""
    return bool(criteria.labels or criteria.text)


def get_filter_states(criteria: ExecutionFilter) -> tuple[ExecutionState, ...]:
    return tuple(dict.fromkeys(criteria.states)) or tuple(ExecutionState)


def get_page_position(header: ExecutionHeader) -> PagePosition:
    return header.created_at, header.execution_id


def find_page_start(criteria: ExecutionFilter) -> PagePosition:
    """Returns the position after which the page starts.

    Raises InputError if the `after` of the filter is not a valid cursor.
    """
    after = NEWEST_POSITION if criteria.after is None else decode_cursor(criteria.after)
    return min(after, (criteria.created_before, ""))


def build_header_page(headers: Sequence[ExecutionHeader], criteria: ExecutionFilter) -> HeaderPage:
    """Builds the page from the matching headers after the start of the page.

    If there are more headers than the limit, the page has a `next` cursor.
    """
    if len(headers) <= criteria.limit:
        return HeaderPage(headers=headers)
    page = headers[: criteria.limit]
    return HeaderPage(headers=page, next=encode_cursor(get_page_position(page[-1])))


async def scan_headers(
    read: HeaderReader,
    criteria: ExecutionFilter,
    *,
    chunk_size: int,
    first_chunk_size: int | None = None,
    scanned_max: int = SCANNED_EXECUTIONS_MAX,
) -> HeaderPage:
    """Reads headers in chunks of `chunk_size` until the page is full or all headers are read.

    Stops after `scanned_max` headers, even if the page has fewer headers than its limit. The first
    chunk may be smaller, because it is enough for a filter that most headers match.
    """
    position = find_page_start(criteria)
    matching: list[ExecutionHeader] = []
    scanned, size = 0, first_chunk_size or chunk_size
    while scanned < scanned_max:
        headers = await read(position, size)
        matching += [header for header in headers if matches_filter(header, criteria)]
        is_last_chunk = len(headers) < size or headers[-1].created_at < criteria.created_from
        size = chunk_size
        if is_last_chunk or len(matching) > criteria.limit:
            return build_header_page(matching, criteria)
        scanned += len(headers)
        position = get_page_position(headers[-1])
    return HeaderPage(headers=matching, next=encode_cursor(position))


async def count_by_scan(
    read: HeaderReader, criteria: ExecutionFilter, *, chunk_size: int
) -> Mapping[ExecutionState, ExecutionCount]:
    """Counts the newest SCANNED_EXECUTIONS_MAX executions per state.

    If there are more executions, each count is a lower bound (`is_least`).
    """
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
    """Returns True if the dead letter matches the filter; ignores `after` and `limit`."""
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
    """Returns the sort key of the dead letter; a newer letter has a larger key."""
    return letter.rejected_at, encode(letter)
