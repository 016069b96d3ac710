"""Definitions, headers, histories, dead letters and retention in the SQLite database."""

import asyncio
import sqlite3
from collections.abc import Mapping, Sequence
from functools import partial
from math import inf

from runnel.backends.blob_files import FileBlobs
from runnel.backends.list_filters import (
    count_by_scan,
    get_filter_states,
    get_page_position,
    is_unindexed,
    scan_headers,
)
from runnel.backends.row_codec import (
    Column,
    decode_definition_row,
    decode_header_row,
    decode_letter,
)
from runnel.backends.sql_files import LAST_CHARACTER
from runnel.backends.sqlite.database import (
    SQL,
    SqliteReader,
    build_letter_row,
)
from runnel.backends.sqlite.writer import SqliteWriter
from runnel.core.effects import DeadLetter
from runnel.core.ids import DefinitionHash, ExecutionId, get_root_id
from runnel.core.states import ExecutionState
from runnel.ports.archive import (
    ALL_DEAD_LETTERS,
    ALL_EXECUTIONS,
    SCANNED_EXECUTIONS_MAX,
    DeadLetterFilter,
    Definition,
    ExecutionCount,
    ExecutionFilter,
    HeaderPage,
    PagePosition,
)
from runnel.ports.clock import Clock
from runnel.ports.store import ExecutionHeader

# The number of rows that a scan reads at once. One chunk blocks the event loop for 3 to 4 ms.
CHUNK_ROWS = 500


class SqliteArchive:
    def __init__(self, writer: SqliteWriter, reader: SqliteReader) -> None:
        self._writer = writer
        self._reader = reader

    async def put_definition(self, name: str, hash_: DefinitionHash, document: bytes) -> int:
        def run(db: sqlite3.Connection) -> int:
            version_rows = db.execute(SQL["get_version"], (hash_,)).fetchall()
            if not version_rows:
                values = (hash_, name, document)
                version_rows = db.execute(SQL["add_definition"], values).fetchall()
            return int(version_rows[0][0])

        version_rows = self._reader.rows("get_version", (hash_,))
        return int(version_rows[0][0]) if version_rows else await self._writer.submit(run)

    async def get_definition(self, hash_: DefinitionHash) -> Definition | None:
        rows = self._reader.rows("get_definition", (hash_,))
        return decode_definition_row(rows[0]) if rows else None

    async def delete_versions(self, name: str) -> int:
        return await self._writer.submit(
            lambda db: db.execute(SQL["delete_versions"], (name,)).rowcount
        )

    async def list_workflows(self, *, after: str = "", limit: int = 50) -> Sequence[Definition]:
        rows = self._reader.rows("list_workflows", (after, limit))
        return [decode_definition_row(row) for row in rows]

    async def list_versions(self, name: str, *, limit: int = 50) -> Sequence[Definition]:
        rows = self._reader.rows("list_versions", (name, limit))
        return [decode_definition_row(row) for row in rows]

    async def find_version(self, name: str, version: int) -> Definition | None:
        rows = self._reader.rows("find_version", (name, version))
        return decode_definition_row(rows[0]) if rows else None

    async def get_header(self, execution_id: ExecutionId) -> ExecutionHeader | None:
        rows = self._reader.rows("get_header", (execution_id,))
        return decode_header_row(rows[0]) if rows else None

    async def get_headers(
        self, ids: Sequence[ExecutionId]
    ) -> Mapping[ExecutionId, ExecutionHeader]:
        """Returns the headers of the ids that exist, with one query per id.

        A query on SQLite takes 20 µs, so a combined query would not be faster.
        """
        headers = [await self.get_header(execution_id) for execution_id in ids]
        return {header.execution_id: header for header in headers if header is not None}

    async def load(self, execution_id: ExecutionId, *, after: int = 0) -> Sequence[bytes]:
        return [row[0] for row in self._reader.rows("load_history_after", (execution_id, after))]

    async def list_headers(self, criteria: ExecutionFilter) -> HeaderPage:
        chunk = CHUNK_ROWS if _has_unindexed(criteria) else criteria.limit + 1
        return await scan_headers(partial(self._read_headers, criteria), criteria, chunk_size=chunk)

    async def count_headers(
        self, criteria: ExecutionFilter = ALL_EXECUTIONS
    ) -> Mapping[ExecutionState, ExecutionCount]:
        if _has_unindexed(criteria) or criteria.rerun_of is not None:
            return await count_by_scan(
                partial(self._read_headers, criteria), criteria, chunk_size=CHUNK_ROWS
            )
        start = (criteria.created_before, "")
        return {
            state: self._count_in_state(criteria, start, state)
            for state in get_filter_states(criteria)
        }

    def _count_in_state(
        self, criteria: ExecutionFilter, start: PagePosition, state: ExecutionState
    ) -> ExecutionCount:
        values = _build_header_values(criteria, start, SCANNED_EXECUTIONS_MAX) | {
            "state": state.value
        }
        [(scanned, number)] = self._reader.rows("count_in_state", values)
        return ExecutionCount(number=number, is_least=scanned == SCANNED_EXECUTIONS_MAX)

    async def _read_headers(
        self, criteria: ExecutionFilter, after: PagePosition, count: int
    ) -> Sequence[ExecutionHeader]:
        await asyncio.sleep(0)  # lets other tasks of the event loop run between two chunks
        values = _build_header_values(criteria, after, count)
        if criteria.parent is not None:
            return [decode_header_row(row) for row in self._reader.rows("list_children", values)]
        if not criteria.states:
            return [decode_header_row(row) for row in self._reader.rows("list_headers", values)]
        # Queries the index once per state, then keeps the newest headers of all states.
        headers = [
            decode_header_row(row)
            for state in set(criteria.states)
            for row in self._reader.rows("list_headers_in_state", values | {"state": state.value})
        ]
        headers.sort(key=get_page_position, reverse=True)
        return headers[:count]

    async def find_ids(self, prefix: str, *, limit: int = 2) -> Sequence[ExecutionId]:
        values: dict[str, Column] = {
            "prefix": prefix,
            "end": prefix + LAST_CHARACTER,
            "with_children": "." in prefix,
            "limit": limit,
        }
        return [row[0] for row in self._reader.rows("find_ids", values)]

    async def list_dead_letters(
        self, criteria: DeadLetterFilter = ALL_DEAD_LETTERS
    ) -> Sequence[DeadLetter]:
        rejected_at, body = (
            (inf, b"") if criteria.after is None else build_letter_row(criteria.after)
        )
        values = _build_letter_values(criteria) | {
            "at": rejected_at,
            "body": body,
            "limit": criteria.limit,
        }
        return [decode_letter(row[0]) for row in self._reader.rows("list_dead_letters", values)]

    async def count_dead_letters(self, criteria: DeadLetterFilter = ALL_DEAD_LETTERS) -> int:
        return int(self._reader.rows("count_dead_letters", _build_letter_values(criteria))[0][0])

    async def delete_dead_letters(self, letters: Sequence[DeadLetter]) -> int:
        rows = [build_letter_row(letter) for letter in letters]
        if not rows:
            return 0
        return await self._writer.submit(
            lambda db: db.executemany(SQL["delete_dead_letter"], rows).rowcount
        )


def _has_unindexed(criteria: ExecutionFilter) -> bool:
    """Returns True if the filter has a condition that the SQL statement can't check."""
    return is_unindexed(criteria) or criteria.parent is not None


def _build_header_values(
    criteria: ExecutionFilter, after: PagePosition, limit: int
) -> dict[str, Column]:
    created_at, id_ = after
    return {
        "created_at": created_at,
        "id": id_,
        "created_from": criteria.created_from,
        "workflow": criteria.workflow,
        "rerun_of": criteria.rerun_of,
        "parent": criteria.parent,
        "with_children": criteria.with_children,
        "limit": limit,
    }


def _build_letter_values(criteria: DeadLetterFilter) -> dict[str, Column]:
    return {
        "queue": criteria.queue,
        "workflow": criteria.workflow,
        "execution": criteria.execution,
        "end": criteria.execution + LAST_CHARACTER,
        "before": criteria.before,
    }


# -- retention: deletes executions that ended long enough ago, with their blobs ----------------

_TREE_DELETES = ("delete_histories", "delete_letters", "delete_executions")


class SqliteRetention:
    def __init__(
        self, writer: SqliteWriter, reader: SqliteReader, blobs: FileBlobs, clock: Clock
    ) -> None:
        self._writer = writer
        self._reader = reader
        self._blobs = blobs
        self._clock = clock

    async def delete_finished(self, state: ExecutionState, *, before: float, limit: int) -> int:
        """Deletes executions with their histories and dead letters, then their blobs.

        Blobs are deleted last, so that a crash leaves only unused blobs. In the other order, a
        crash could leave an execution without its values.
        """

        def run(db: sqlite3.Connection) -> tuple[int, list[str]]:
            values = {"state": state.value, "before": before, "limit": limit}
            roots = [row[0] for row in db.execute(SQL["list_finished"], values)]
            deleted: list[str] = []
            for root in roots:
                tree = {"root": root, "first": f"{root}.", "end": f"{root}/"}
                deleted += [row[0] for row in db.execute(SQL["list_tree"], tree)]
                for name in _TREE_DELETES:
                    db.execute(SQL[name], tree)
            return len(roots), deleted

        count, deleted = await self._writer.submit(run)
        for execution_id in deleted:
            await self._blobs.delete(f"{execution_id}/")
        return count

    async def delete_orphaned_blobs(self, *, idle_s: float) -> int:
        keys = await self._blobs.list_written_before(self._clock.now() - idle_s)
        roots = {key: get_root_id(ExecutionId(key.partition("/")[0])) for key in keys}
        orphaned_roots = {
            root for root in set(roots.values()) if not self._reader.rows("get_header", (root,))
        }
        orphaned = [key for key, root in roots.items() if root in orphaned_roots]
        return sum([await self._blobs.delete(key) for key in orphaned])
