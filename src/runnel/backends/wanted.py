"""Which executions are wanted, and a page of them, for stores that have to look at each."""

from collections import Counter
from collections.abc import Awaitable, Callable, Mapping, Sequence

from msgspec import structs

from runnel.core.states import ExecutionState
from runnel.ports.archive import LOOKED_MAX, ExecutionFilter, HeaderPage, StateCount
from runnel.ports.cursor import NEWEST, Place, cursor_at, place_at
from runnel.ports.store import Header

ReadHeaders = Callable[[Place, int], Awaitable[Sequence[Header]]]
"""The newest behind a place, at most so many; fewer only when there are no more."""


def is_wanted(header: Header, wanted: ExecutionFilter) -> bool:
    """Whatever page it is on."""
    return (
        (not wanted.states or header.state in wanted.states)
        and wanted.workflow in (None, header.workflow)
        and wanted.rerun_of in (None, header.rerun_of)
        and (
            header.parent_id == wanted.parent
            if wanted.parent is not None
            else wanted.with_children or header.parent_id is None
        )
        and wanted.created_from <= header.created_at < wanted.created_before
        and all(header.labels.get(key) == value for key, value in wanted.labels.items())
        and (not wanted.text or _mentions(header, wanted.text.casefold()))
    )


def _mentions(header: Header, text: str) -> bool:
    said = (header.execution_id, header.workflow, header.error or "", *header.labels.values())
    return any(text in each.casefold() for each in said)


def is_searched(wanted: ExecutionFilter) -> bool:
    """Whether it asks for what no index of a database sorts by."""
    return bool(wanted.labels or wanted.text)


def states_of(wanted: ExecutionFilter) -> tuple[ExecutionState, ...]:
    return tuple(dict.fromkeys(wanted.states)) or tuple(ExecutionState)


def place_of(header: Header) -> Place:
    return header.created_at, header.execution_id


def start_of(wanted: ExecutionFilter) -> Place:
    """What is wanted is behind this place; raises InputError for an `after` that is none."""
    after = NEWEST if wanted.after is None else place_at(wanted.after)
    return min(after, (wanted.created_before, ""))


def page_of(headers: Sequence[Header], wanted: ExecutionFilter) -> HeaderPage:
    """Of all that are wanted behind its start; one more than its limit says that there are more."""
    if len(headers) <= wanted.limit:
        return HeaderPage(headers=headers)
    page = headers[: wanted.limit]
    return HeaderPage(headers=page, next=cursor_at(place_of(page[-1])))


async def look_through(
    read: ReadHeaders, wanted: ExecutionFilter, *, chunk: int, looked_max: int = LOOKED_MAX
) -> HeaderPage:
    """Reads `chunk` by `chunk` until the page is full, all is read, or enough was looked at."""
    place = start_of(wanted)
    found: list[Header] = []
    looked = 0
    while looked < looked_max:
        headers = await read(place, chunk)
        found += [header for header in headers if is_wanted(header, wanted)]
        is_over = len(headers) < chunk or headers[-1].created_at < wanted.created_from
        if is_over or len(found) > wanted.limit:
            return page_of(found, wanted)
        looked += len(headers)
        place = place_of(headers[-1])
    return HeaderPage(headers=found, next=cursor_at(place))


async def count_through(
    read: ReadHeaders, wanted: ExecutionFilter, *, chunk: int
) -> Mapping[ExecutionState, StateCount]:
    """Of the newest LOOKED_MAX: at least so many, if there are more."""
    everything = structs.replace(wanted, after=None, limit=LOOKED_MAX)
    page = await look_through(read, everything, chunk=chunk)
    counts = Counter(header.state for header in page)
    is_least = page.next is not None
    return {
        state: StateCount(number=counts[state], is_least=is_least) for state in states_of(wanted)
    }
