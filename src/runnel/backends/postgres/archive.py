"""Definitions, executions to list and read, and dead letters."""

from collections.abc import Mapping, Sequence
from math import inf
from typing import Any

import msgspec

from runnel.backends.letters import encode_letter, place_of
from runnel.backends.postgres.database import Database, changed
from runnel.backends.postgres.listing import PostgresListing
from runnel.backends.postgres.queries import SQL
from runnel.backends.postgres.rows import header_of, storable
from runnel.backends.postgres.set_aside import decode_header, digest_of
from runnel.core.effects import DeadLetter
from runnel.core.ids import DefinitionHash, ExecutionId
from runnel.core.states import ExecutionState
from runnel.ports.archive import (
    ALL_EXECUTIONS,
    ALL_LETTERS,
    Definition,
    ExecutionFilter,
    HeaderPage,
    LetterFilter,
    StateCount,
)
from runnel.ports.store import Header

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
        place = (inf, b"") if wanted.after is None else place_of(wanted.after)
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
