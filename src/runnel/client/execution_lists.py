"""Reads lists of executions over several pages, and finds executions by full or shortened ids."""

from __future__ import annotations

from math import inf
from typing import TYPE_CHECKING, Protocol, TypeVar

from msgspec import structs

from runnel.authoring.payloads import check_labels, check_text
from runnel.core.ids import ExecutionId
from runnel.core.message_text import describe_value, escape_unprintable
from runnel.core.states import ExecutionState
from runnel.errors import InputError, NotFoundError
from runnel.ports.archive import ExecutionFilter, PageCursor

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
    from datetime import datetime

    from runnel.client.protocol import Client
    from runnel.ports.archive import Archive
    from runnel.ports.store import ExecutionHeader
    from runnel.views.execution import ExecutionSummary

TEXT_CHARS_MAX = 2_000
# The number of executions in one page of a search.
PAGE_SIZE = 200


def check_filter(criteria: ExecutionFilter) -> None:
    """Raises PayloadError if the filter has a text that a store can't search for."""
    check_text(criteria.text, "the text to search for", chars_max=TEXT_CHARS_MAX, chars_min=0)
    for name in ("workflow", "rerun_of", "parent"):
        check_text(getattr(criteria, name) or "", name, chars_max=TEXT_CHARS_MAX, chars_min=0)
    check_labels(criteria.labels)


class PartOfList(Protocol):
    """A page of a list, or a step of a bulk command. `next` is None for the last page or step."""

    @property
    def next(self) -> str | None: ...


PartT = TypeVar("PartT", bound=PartOfList)


async def iter_pages(
    read: Callable[[ExecutionFilter], Awaitable[PartT]], criteria: ExecutionFilter
) -> AsyncIterator[PartT]:
    """Yields all pages of the executions that match a filter, newest first.

    The filter's `limit` is the size of a page.
    """
    while True:
        page = await read(criteria)
        yield page
        if page.next is None:
            return
        criteria = structs.replace(criteria, after=PageCursor(page.next))


async def iter_headers(
    archive: Archive, criteria: ExecutionFilter
) -> AsyncIterator[ExecutionHeader]:
    async for page in iter_pages(archive.list_headers, criteria):
        for header in page:
            yield header


async def iter_executions(
    client: Client, criteria: ExecutionFilter
) -> AsyncIterator[ExecutionSummary]:
    """Yields all executions that match a filter, newest first.

    The filter's `limit` is the size of a page.
    """
    async for page in iter_pages(client.list_executions, criteria):
        for summary in page:
            yield summary


def search_executions(
    client: Client,
    *,
    states: Sequence[ExecutionState | str],
    workflow: str | None,
    labels: Mapping[str, str] | None,
    text: str,
    created_from: datetime | None,
    created_before: datetime | None,
    with_children: bool,
) -> AsyncIterator[ExecutionSummary]:
    """Yields all executions that match every given filter, newest first; raises InputError."""
    criteria = ExecutionFilter(
        states=parse_states(states),
        workflow=workflow,
        labels=dict(labels or {}),
        text=text,
        created_from=-inf if created_from is None else created_from.timestamp(),
        created_before=inf if created_before is None else created_before.timestamp(),
        with_children=with_children,
        limit=PAGE_SIZE,
    )
    return iter_executions(client, criteria)


def parse_states(names: Sequence[ExecutionState | str]) -> tuple[ExecutionState, ...]:
    """Parses the names of execution states, in upper or lower case; raises InputError."""
    known = {state.value: state for state in ExecutionState}
    for name in names:
        if name.upper() not in known:
            expected = ", ".join(known)
            raise InputError(f"states: expected one of {expected}; got {describe_value(name)}")
    return tuple(dict.fromkeys(known[name.upper()] for name in names))


async def list_newest_executions(
    client: Client, criteria: ExecutionFilter
) -> list[ExecutionSummary]:
    """Returns the newest executions, at most `limit`, from as many pages as needed."""
    summaries: list[ExecutionSummary] = []
    async for page in iter_pages(client.list_executions, criteria):
        summaries += page
        if len(summaries) >= criteria.limit:
            break
    return summaries[: criteria.limit]


# Lookup of execution ids, which callers may shorten.


def check_execution_id(text: str) -> None:
    """Raises NotFoundError if the id has half a surrogate pair.

    Python decodes a command-line argument that is not UTF-8 to such a text.
    """
    try:
        text.encode()
    except UnicodeEncodeError:
        raise execution_not_found_error(text) from None


def execution_not_found_error(name: str) -> NotFoundError:
    return NotFoundError(
        "execution", escape_unprintable(name), hint="'runnel list' shows the executions"
    )


def choose_by_prefix(text: str, ids: Sequence[ExecutionId]) -> ExecutionId:
    """Returns the id that equals `text`, or else the only id in `ids`.

    All `ids` begin with `text`. Raises NotFoundError if `ids` is empty, or has several ids and none
    equals `text`.
    """
    if len(ids) > 1 and text not in ids:
        raise NotFoundError(
            "single execution", text, hint="several ids begin with it; give more characters"
        )
    if not ids:
        raise execution_not_found_error(text)
    return ExecutionId(text) if text in ids else ids[0]
