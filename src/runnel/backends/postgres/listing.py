"""Lists and counts of executions: by an index, or looked through in bounded steps."""

from collections.abc import Mapping, Sequence
from functools import partial

import msgspec

from runnel.backends.postgres.database import Database
from runnel.backends.postgres.rows import header_of, storable
from runnel.backends.wanted import (
    count_through,
    is_searched,
    look_through,
    states_of,
)
from runnel.core.states import ExecutionState
from runnel.ports.archive import LOOKED_MAX, ExecutionFilter, HeaderPage, StateCount
from runnel.ports.cursor import Place
from runnel.ports.store import Header

# Rows that are looked through at once: 8 ms, 5 of them on the event loop.
CHUNK = 1_000


class PostgresListing:
    """What asks for a text is looked through by age: a page of LOOKED_MAX rows takes 80 ms.

    Labels have an index, but it does not sort: first a few of the newest are looked through, which
    is enough for a label that many have. Then all that have it are sorted, if they are not too
    many; if they are, the newest are looked through further.
    """

    def __init__(self, database: Database) -> None:
        self._database = database

    async def page(self, wanted: ExecutionFilter) -> HeaderPage:
        read = partial(self._read, wanted)
        if not is_searched(wanted) and not _has_relative(wanted):
            return await look_through(read, wanted, chunk=wanted.limit + 1)
        if not wanted.labels or _has_relative(wanted):
            return await look_through(read, wanted, chunk=CHUNK)
        first = await look_through(read, wanted, chunk=CHUNK, looked_max=CHUNK)
        if first.next is None or len(first.headers) == wanted.limit:
            return first
        left = wanted.limit - len(first.headers)
        rest = msgspec.structs.replace(wanted, after=first.next, limit=left)
        second = await self._rest(rest)
        return HeaderPage(headers=[*first, *second], next=second.next)

    async def _rest(self, wanted: ExecutionFilter) -> HeaderPage:
        read = _Labelled(self._database, wanted)
        page = await look_through(read, wanted, chunk=CHUNK)
        if not read.are_too_many:
            return page
        return await look_through(partial(self._read, wanted), wanted, chunk=CHUNK)

    async def counts(self, wanted: ExecutionFilter) -> Mapping[ExecutionState, StateCount]:
        if wanted.labels and not _has_relative(wanted):
            read = _Labelled(self._database, wanted)
            counts = await count_through(read, wanted, chunk=CHUNK)
            if not read.are_too_many:
                return counts
        if is_searched(wanted) or _has_relative(wanted):
            return await count_through(partial(self._read, wanted), wanted, chunk=CHUNK)
        roots, states = _roots(wanted), _states(wanted)
        values = (roots, states, wanted.created_before, wanted.created_from, LOOKED_MAX)
        if wanted.workflow is None:
            rows = await self._database.rows("count_headers", *values)
        else:
            rows = await self._database.rows("count_headers_of", *values, storable(wanted.workflow))
        return {
            ExecutionState(state): StateCount(number=number, is_least=number == LOOKED_MAX)
            for state, number in rows
        }

    async def _read(self, wanted: ExecutionFilter, behind: Place, count: int) -> Sequence[Header]:
        created_at, id_ = behind
        place = (created_at, storable(id_), wanted.created_from, count)
        if wanted.parent is not None:
            rows = await self._database.rows("list_children", storable(wanted.parent), *place)
        elif wanted.rerun_of is not None:
            rows = await self._database.rows("list_reruns", storable(wanted.rerun_of), *place)
        elif wanted.workflow is not None:
            values = (_roots(wanted), _states(wanted), *place, storable(wanted.workflow))
            rows = await self._database.rows("list_headers_of", *values)
        else:
            rows = await self._database.rows(
                "list_headers", _roots(wanted), _states(wanted), *place
            )
        return [header_of(row) for row in rows]


class _Labelled:
    """Reads those with the wanted labels; nothing if there are more of them than can be sorted."""

    def __init__(self, database: Database, wanted: ExecutionFilter) -> None:
        self._database = database
        self._wanted = wanted
        self.are_too_many = False

    async def __call__(self, behind: Place, count: int) -> Sequence[Header]:
        wanted = self._wanted
        created_at, id_ = behind
        rows = await self._database.rows(
            "list_labelled",
            msgspec.json.encode(wanted.labels).decode(),
            *(created_at, storable(id_), wanted.created_from, count),
            LOOKED_MAX + 1,
            _roots(wanted),
            _states(wanted),
            None if wanted.workflow is None else storable(wanted.workflow),
        )
        self.are_too_many |= bool(rows) and rows[0][-1] > LOOKED_MAX
        return () if self.are_too_many else [header_of(row) for row in rows]


def _has_relative(wanted: ExecutionFilter) -> bool:
    """Whether it names an execution that few others belong to."""
    return wanted.rerun_of is not None or wanted.parent is not None


def _roots(wanted: ExecutionFilter) -> list[bool]:
    return [True, False] if wanted.with_children else [True]


def _states(wanted: ExecutionFilter) -> list[str]:
    return [state.value for state in states_of(wanted)]
