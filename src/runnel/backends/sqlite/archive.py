"""Definitions, executions to list and read, and dead letters, in the same database file."""

import asyncio
import sqlite3
from collections.abc import Mapping, Sequence
from functools import partial
from math import inf
from typing import Any

from runnel.backends.blob_files import FileBlobs
from runnel.backends.matching import count_through, is_searched, look_through, place_of, states_of
from runnel.backends.sqlite.database import SQL, Column, Reader, header_of, letter_of, letter_row
from runnel.backends.sqlite.writer import Writer
from runnel.core.effects import DeadLetter
from runnel.core.ids import DefinitionHash, ExecutionId, root_of
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
from runnel.ports.clock import Clock
from runnel.ports.store import Header

LAST_CHARACTER = "\U0010ffff"
# Rows that are looked through at once: 3 to 4 ms of the event loop.
CHUNK = 500


class SqliteArchive:
    def __init__(self, writer: Writer, reader: Reader) -> None:
        self._writer = writer
        self._reader = reader

    async def put_definition(self, name: str, hash_: DefinitionHash, document: bytes) -> int:
        def run(db: sqlite3.Connection) -> int:
            known = db.execute(SQL["get_version"], (hash_,)).fetchall()
            added = known or db.execute(SQL["add_definition"], (hash_, name, document)).fetchall()
            return int(added[0][0])

        known = self._reader.rows("get_version", (hash_,))
        return int(known[0][0]) if known else await self._writer.submit(run)

    async def get_definition(self, hash_: DefinitionHash) -> Definition | None:
        rows = self._reader.rows("get_definition", (hash_,))
        return _definition(rows[0]) if rows else None

    async def delete_versions(self, name: str) -> int:
        return await self._writer.submit(
            lambda db: db.execute(SQL["delete_versions"], (name,)).rowcount
        )

    async def list_workflows(self, *, after: str = "", limit: int = 50) -> Sequence[Definition]:
        return [_definition(row) for row in self._reader.rows("list_workflows", (after, limit))]

    async def list_versions(self, name: str, *, limit: int = 50) -> Sequence[Definition]:
        return [_definition(row) for row in self._reader.rows("list_versions", (name, limit))]

    async def find_version(self, name: str, version: int) -> Definition | None:
        rows = self._reader.rows("find_version", (name, version))
        return _definition(rows[0]) if rows else None

    async def get_header(self, execution_id: ExecutionId) -> Header | None:
        rows = self._reader.rows("get_header", (execution_id,))
        return header_of(rows[0]) if rows else None

    async def get_headers(self, ids: Sequence[ExecutionId]) -> Mapping[ExecutionId, Header]:
        """One by one: a look costs 20 µs here, and the file is no further away for many."""
        found = [await self.get_header(each) for each in ids]
        return {header.execution_id: header for header in found if header is not None}

    async def load(self, execution_id: ExecutionId, *, after: int = 0) -> Sequence[bytes]:
        return [row[0] for row in self._reader.rows("load_history_after", (execution_id, after))]

    async def list_headers(self, wanted: ExecutionFilter) -> HeaderPage:
        chunk = CHUNK if _has_unread(wanted) else wanted.limit + 1
        return await look_through(partial(self._read_headers, wanted), wanted, chunk=chunk)

    async def count_headers(
        self, wanted: ExecutionFilter = ALL_EXECUTIONS
    ) -> Mapping[ExecutionState, StateCount]:
        if _has_unread(wanted) or wanted.rerun_of is not None:
            return await count_through(partial(self._read_headers, wanted), wanted, chunk=CHUNK)
        start = (wanted.created_before, "")
        return {state: self._count(wanted, start, state) for state in states_of(wanted)}

    def _count(self, wanted: ExecutionFilter, start: Place, state: ExecutionState) -> StateCount:
        values = _header_values(wanted, start, LOOKED_MAX) | {"state": state.value}
        [(looked, number)] = self._reader.rows("count_in_state", values)
        return StateCount(number=number, is_least=looked == LOOKED_MAX)

    async def _read_headers(
        self, wanted: ExecutionFilter, behind: Place, count: int
    ) -> Sequence[Header]:
        await asyncio.sleep(0)  # others may do something between two chunks
        values = _header_values(wanted, behind, count)
        if wanted.parent is not None:
            return [header_of(row) for row in self._reader.rows("list_children", values)]
        if not wanted.states:
            return [header_of(row) for row in self._reader.rows("list_headers", values)]
        # One look into the index per state, then the newest of them all.
        found = [
            header_of(row)
            for state in set(wanted.states)
            for row in self._reader.rows("list_headers_in_state", values | {"state": state.value})
        ]
        found.sort(key=place_of, reverse=True)
        return found[:count]

    async def find_ids(self, prefix: str, *, limit: int = 2) -> Sequence[ExecutionId]:
        values: dict[str, Column] = {
            "prefix": prefix,
            "end": prefix + LAST_CHARACTER,
            "with_children": "." in prefix,
            "limit": limit,
        }
        return [row[0] for row in self._reader.rows("find_ids", values)]

    async def list_dead_letters(self, wanted: LetterFilter = ALL_LETTERS) -> Sequence[DeadLetter]:
        rejected_at, body = (inf, b"") if wanted.after is None else letter_row(wanted.after)
        values = _letter_values(wanted) | {"at": rejected_at, "body": body, "limit": wanted.limit}
        return [letter_of(row[0]) for row in self._reader.rows("list_dead_letters", values)]

    async def count_dead_letters(self, wanted: LetterFilter = ALL_LETTERS) -> int:
        return int(self._reader.rows("count_dead_letters", _letter_values(wanted))[0][0])

    async def delete_dead_letters(self, letters: Sequence[DeadLetter]) -> int:
        rows = [letter_row(letter) for letter in letters]
        if not rows:
            return 0
        return await self._writer.submit(
            lambda db: db.executemany(SQL["delete_dead_letter"], rows).rowcount
        )


def _has_unread(wanted: ExecutionFilter) -> bool:
    """Whether rows are read that the statement could not judge."""
    return is_searched(wanted) or wanted.parent is not None


def _header_values(wanted: ExecutionFilter, behind: Place, limit: int) -> dict[str, Column]:
    created_at, id_ = behind
    return {
        "created_at": created_at,
        "id": id_,
        "created_from": wanted.created_from,
        "workflow": wanted.workflow,
        "rerun_of": wanted.rerun_of,
        "parent": wanted.parent,
        "with_children": wanted.with_children,
        "limit": limit,
    }


def _letter_values(wanted: LetterFilter) -> dict[str, Column]:
    return {
        "queue": wanted.queue,
        "workflow": wanted.workflow,
        "execution": wanted.execution,
        "end": wanted.execution + LAST_CHARACTER,
        "before": wanted.before,
    }


def _definition(row: Sequence[Any]) -> Definition:
    hash_, name, version, document = row
    return Definition(hash=hash_, name=name, version=version, document=document)


# Deletes executions that ended long enough ago, with their blobs.

_BELOW = ("delete_histories", "delete_letters", "delete_executions")


class SqliteRetention:
    def __init__(self, writer: Writer, reader: Reader, blobs: FileBlobs, clock: Clock) -> None:
        self._writer = writer
        self._reader = reader
        self._blobs = blobs
        self._clock = clock

    async def delete_finished(self, state: ExecutionState, *, before: float, limit: int) -> int:
        """Blobs last: one whose execution is gone is waste, the reverse would be a loss."""

        def run(db: sqlite3.Connection) -> tuple[int, list[str]]:
            values = {"state": state.value, "before": before, "limit": limit}
            roots = [row[0] for row in db.execute(SQL["list_finished"], values)]
            deleted: list[str] = []
            for root in roots:
                tree = {"root": root, "first": f"{root}.", "end": f"{root}/"}
                deleted += [row[0] for row in db.execute(SQL["list_tree"], tree)]
                for name in _BELOW:
                    db.execute(SQL[name], tree)
            return len(roots), deleted

        count, deleted = await self._writer.submit(run)
        for execution_id in deleted:
            await self._blobs.delete(f"{execution_id}/")
        return count

    async def delete_ownerless(self, *, idle_s: float) -> int:
        keys = await self._blobs.written_before(self._clock.now() - idle_s)
        roots = {key: root_of(ExecutionId(key.partition("/")[0])) for key in keys}
        known = {root for root in set(roots.values()) if self._reader.rows("get_header", (root,))}
        ownerless = [key for key, root in roots.items() if root not in known]
        return sum([await self._blobs.delete(key) for key in ownerless])
