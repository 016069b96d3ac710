"""Definitions, executions to list and read, and dead letters."""

from collections.abc import Mapping, Sequence
from functools import partial
from math import inf
from typing import Any

import msgspec

from runnel.backends.matching import (
    count_through,
    encode_letter,
    is_searched,
    look_through,
    place_of_letter,
    states_of,
)
from runnel.backends.postgres.database import SQL, Database, changed
from runnel.backends.postgres.projection import header_of, storable
from runnel.backends.postgres.quarantine import decode_header, digest_of
from runnel.core.effects import DeadLetter
from runnel.core.ids import DefinitionHash, ExecutionId
from runnel.core.states import ExecutionState
from runnel.ports.archive import (
    ALL_EXECUTIONS,
    ALL_LETTERS,
    LOOKED_MAX,
    Definition,
    ExecutionFilter,
    HeaderPage,
    LetterFilter,
    Place,
    StateCount,
)
from runnel.ports.store import Header

# Lists and counts of executions: by an index, or looked through in bounded steps.

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


_letters = msgspec.json.Decoder(DeadLetter)
# Behind every text that begins with a prefix.
LAST_CHARACTER = "\U0010ffff"


class PostgresArchive:
    def __init__(self, database: Database) -> None:
        self._database = database
        self._listing = PostgresListing(database)

    async def put_definition(self, name: str, hash_: DefinitionHash, document: bytes) -> int:
        known = await self._database.row("get_version", hash_)
        if known is not None:
            return int(known[0])
        kept = storable(name)
        async with self._database.transaction() as connection:
            await connection.execute(SQL["lock_definitions"], kept)
            version = await connection.fetchval(SQL["get_version"], hash_)
            if version is None:
                version = await connection.fetchval(SQL["add_definition"], hash_, kept, document)
        return int(version)

    async def get_definition(self, hash_: DefinitionHash) -> Definition | None:
        row = await self._database.row("get_definition", hash_)
        if row is None:
            return None
        return Definition(hash=hash_, name=row[0], version=row[1], document=row[2])

    async def delete_versions(self, name: str) -> int:
        kept = storable(name)
        async with self._database.transaction() as connection:
            await connection.execute(SQL["lock_definitions"], kept)
            return changed(await connection.execute(SQL["delete_versions"], kept))

    async def list_workflows(self, *, after: str = "", limit: int = 50) -> Sequence[Definition]:
        rows = await self._database.rows("list_workflows", storable(after), limit)
        return [_definition(row) for row in rows]

    async def list_versions(self, name: str, *, limit: int = 50) -> Sequence[Definition]:
        rows = await self._database.rows("list_versions", storable(name), limit)
        return [_definition(row) for row in rows]

    async def find_version(self, name: str, version: int) -> Definition | None:
        row = await self._database.row("find_version", storable(name), version)
        return None if row is None else _definition(row)

    async def get_header(self, execution_id: ExecutionId) -> Header | None:
        [row] = await self._database.rows(
            "get_header", storable(execution_id), digest_of(execution_id)
        )
        if row[-1] is not None:
            return decode_header(row[-1])
        return None if row[0] is None else header_of(row)

    async def get_headers(self, ids: Sequence[ExecutionId]) -> Mapping[ExecutionId, Header]:
        rows = await self._database.rows("get_headers", [storable(each) for each in ids])
        return {header.execution_id: header for header in map(header_of, rows)}

    async def load(self, execution_id: ExecutionId, *, after: int = 0) -> Sequence[bytes]:
        rest = await self._database.rows("load_set_aside", digest_of(execution_id))
        # What is set aside follows on all the others: these have to be counted then.
        first = 0 if rest else after
        rows = await self._database.rows("load_history", storable(execution_id), first)
        return [row[0] for row in (*rows, *rest)[after - first :]]

    async def list_headers(self, wanted: ExecutionFilter) -> HeaderPage:
        return await self._listing.page(wanted)

    async def count_headers(
        self, wanted: ExecutionFilter = ALL_EXECUTIONS
    ) -> Mapping[ExecutionState, StateCount]:
        return await self._listing.counts(wanted)

    async def find_ids(self, prefix: str, *, limit: int = 2) -> Sequence[ExecutionId]:
        first = storable(prefix)
        rows = await self._database.rows(
            "find_ids", first, first + LAST_CHARACTER, "." in prefix, limit
        )
        return [ExecutionId(row[0]) for row in rows]

    async def list_dead_letters(self, wanted: LetterFilter = ALL_LETTERS) -> Sequence[DeadLetter]:
        place = (inf, b"") if wanted.after is None else place_of_letter(wanted.after)
        rows = await self._database.rows(
            "list_dead_letters", *_letter_values(wanted), *place, wanted.limit
        )
        return [_letters.decode(row[0]) for row in rows]

    async def count_dead_letters(self, wanted: LetterFilter = ALL_LETTERS) -> int:
        row = await self._database.row("count_dead_letters", *_letter_values(wanted))
        return 0 if row is None else int(row[0])

    async def delete_dead_letters(self, letters: Sequence[DeadLetter]) -> int:
        deleted = await self._database.rows(
            "delete_letters",
            [letter.token.execution_id for letter in letters],
            [encode_letter(letter) for letter in letters],
        )
        return len(deleted)


def _letter_values(wanted: LetterFilter) -> tuple[object, ...]:
    execution = storable(wanted.execution)
    return (
        None if wanted.queue is None else storable(wanted.queue),
        None if wanted.workflow is None else storable(wanted.workflow),
        execution,
        execution + LAST_CHARACTER,
        wanted.before,
    )


def _definition(row: Sequence[Any]) -> Definition:
    return Definition(hash=row[0], name=row[1], version=row[2], document=row[3])
