"""Reads lists of executions over several pages, and finds executions by full or shortened ids."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol, TypeVar

from msgspec import structs

from runnel.authoring.payloads import check_labels, check_text
from runnel.core.ids import ExecutionId
from runnel.core.message_text import escape_unprintable
from runnel.errors import NotFoundError
from runnel.ports.archive import PageCursor

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Awaitable, Callable, Sequence

    from runnel.client.protocol import Client
    from runnel.ports.archive import Archive, ExecutionFilter
    from runnel.ports.store import ExecutionHeader
    from runnel.views.execution import ExecutionSummary

TEXT_CHARS_MAX = 2_000


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
