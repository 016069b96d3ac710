"""Executions, page after page, for callers that want them all or a certain number."""

from collections.abc import AsyncIterator

from msgspec import structs

from runnel.authoring.payloads import check_labels, check_text
from runnel.core.wording import escape_unprintable
from runnel.errors import NotFoundError
from runnel.ports.archive import Archive, ExecutionFilter
from runnel.ports.store import ExecutionHeader

TEXT_CHARS_MAX = 2_000


def check_filter(criteria: ExecutionFilter) -> None:
    """Raises PayloadError for a text that no store can look for."""
    check_text(criteria.text, "the text to search for", chars_max=TEXT_CHARS_MAX, chars_min=0)
    for name in ("workflow", "rerun_of", "parent"):
        check_text(getattr(criteria, name) or "", name, chars_max=TEXT_CHARS_MAX, chars_min=0)
    check_labels(criteria.labels)


async def iter_headers(
    archive: Archive, criteria: ExecutionFilter
) -> AsyncIterator[ExecutionHeader]:
    """Newest first; `limit` is how many are asked for at once."""
    while True:
        page = await archive.list_headers(criteria)
        for header in page:
            yield header
        if page.next is None:
            return
        criteria = structs.replace(criteria, after=page.next)


async def list_newest_headers(archive: Archive, criteria: ExecutionFilter) -> list[ExecutionHeader]:
    """As many as `limit` says, if there are, whatever has to be looked through to find them."""
    found: list[ExecutionHeader] = []
    after = criteria.after
    while True:
        left = criteria.limit - len(found)
        page = await archive.list_headers(structs.replace(criteria, after=after, limit=left))
        found += page
        after = page.next
        if after is None or len(found) >= criteria.limit:
            return found


# Ids of executions as callers give them.


def check_execution_id(text: str) -> None:
    """Half a surrogate pair (an argument that is not UTF-8) is in no id, and no store takes it."""
    try:
        text.encode()
    except UnicodeEncodeError:
        raise execution_not_found_error(text) from None


def execution_not_found_error(name: str) -> NotFoundError:
    return NotFoundError(
        "execution", escape_unprintable(name), hint="'runnel list' shows those that exist"
    )
