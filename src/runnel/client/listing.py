"""Executions, page after page, for callers that want them all or a certain number."""

from collections.abc import AsyncIterator

from msgspec import structs

from runnel.authoring.payloads import check_labels, check_text
from runnel.core.wording import printable
from runnel.errors import NotFoundError
from runnel.ports.archive import Archive, ExecutionFilter
from runnel.ports.store import Header

TEXT_CHARS_MAX = 2_000


def check_filter(wanted: ExecutionFilter) -> None:
    """Raises PayloadError for a text that no store can look for."""
    check_text(wanted.text, "the text to search for", chars_max=TEXT_CHARS_MAX, chars_min=0)
    for name in ("workflow", "rerun_of", "parent"):
        check_text(getattr(wanted, name) or "", name, chars_max=TEXT_CHARS_MAX, chars_min=0)
    check_labels(wanted.labels)


async def all_headers(archive: Archive, wanted: ExecutionFilter) -> AsyncIterator[Header]:
    """Newest first; `limit` is how many are asked for at once."""
    while True:
        page = await archive.list_headers(wanted)
        for header in page:
            yield header
        if page.next is None:
            return
        wanted = structs.replace(wanted, after=page.next)


async def newest_headers(archive: Archive, wanted: ExecutionFilter) -> list[Header]:
    """As many as `limit` says, if there are, whatever has to be looked through to find them."""
    found: list[Header] = []
    after = wanted.after
    while True:
        left = wanted.limit - len(found)
        page = await archive.list_headers(structs.replace(wanted, after=after, limit=left))
        found += page
        after = page.next
        if after is None or len(found) >= wanted.limit:
            return found


# Ids of executions as callers give them.


def check_id(text: str) -> None:
    """Half a surrogate pair (an argument that is not UTF-8) is in no id, and no store takes it."""
    try:
        text.encode()
    except UnicodeEncodeError:
        raise no_execution(text) from None


def no_execution(name: str) -> NotFoundError:
    return NotFoundError("execution", printable(name), hint="'runnel list' shows those that exist")
