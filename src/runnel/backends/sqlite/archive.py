"""Definitions, headers, histories and dead letters in the SQLite database."""

import asyncio
import sqlite3
from collections.abc import Mapping, Sequence
from functools import partial
from math import inf

from runnel.backends.list_filters import (
    HeaderReader,
    count_by_scan,
    find_page_start,
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
from runnel.core.ids import DefinitionHash, ExecutionId
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
        return await scan_headers(
            self._make_reader(criteria),
            criteria,
            chunk_size=CHUNK_ROWS,
            first_chunk_size=criteria.limit + 1,
        )

    async def count_headers(
        self, criteria: ExecutionFilter = ALL_EXECUTIONS
    ) -> Mapping[ExecutionState, ExecutionCount]:
        if is_unindexed(criteria) or _has_relative(criteria):
            read = self._make_reader(criteria)
            return await count_by_scan(read, criteria, chunk_size=CHUNK_ROWS)
        start = (criteria.created_before, "")
        if criteria.workflow is not None:
            counts = self._count_of_workflow(criteria, start)
            if counts is not None:
                return counts
        return {
            state: self._count_in_state(criteria, start, state)
            for state in get_filter_states(criteria)
        }

    def _count_of_workflow(
        self, criteria: ExecutionFilter, start: PagePosition
    ) -> Mapping[ExecutionState, ExecutionCount] | None:
        """Returns None if the workflow has too many executions to read all of them."""
        values = _build_header_values(criteria, start, SCANNED_EXECUTIONS_MAX)
        rows = self._reader.rows("count_of_workflow", values)
        if sum(scanned for _, scanned, _ in rows) == SCANNED_EXECUTIONS_MAX:
            return None
        numbers = {state: number for state, _, number in rows}
        return {
            state: ExecutionCount(number=numbers.get(state.value, 0))
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

    def _make_reader(self, criteria: ExecutionFilter) -> HeaderReader:
        """Returns a reader by the index that suits the filter.

        The reader of the most selective index may ignore other conditions of the filter, which the
        caller checks for each header.
        """
        if criteria.parent is not None:
            return partial(self._read_headers, criteria, "list_children")
        if criteria.rerun_of is not None:
            return partial(self._read_headers, criteria, "list_reruns")
        if criteria.workflow is not None and not (criteria.states and self._is_frequent(criteria)):
            return partial(self._read_headers, criteria, "list_headers_of")
        if criteria.states:
            return partial(self._read_headers_by_state, criteria)
        return partial(self._read_headers, criteria, "list_headers")

    def _is_frequent(self, criteria: ExecutionFilter) -> bool:
        """Returns True if it takes many rows to filter the executions of the workflow by state.

        Most workflows have few executions in a state that users search for, such as FAILED.
        """
        values = _build_header_values(criteria, find_page_start(criteria), CHUNK_ROWS)
        return bool(self._reader.rows("has_more_of_workflow", values))

    async def _read_headers(
        self, criteria: ExecutionFilter, query: str, after: PagePosition, count: int
    ) -> Sequence[ExecutionHeader]:
        await asyncio.sleep(0)  # lets other tasks of the event loop run between two chunks
        rows = self._reader.rows(query, _build_header_values(criteria, after, count))
        return [decode_header_row(row) for row in rows]

    async def _read_headers_by_state(
        self, criteria: ExecutionFilter, after: PagePosition, count: int
    ) -> Sequence[ExecutionHeader]:
        """Queries the index once per state, then keeps the newest headers of all states."""
        await asyncio.sleep(0)
        values = _build_header_values(criteria, after, count)
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


def _has_relative(criteria: ExecutionFilter) -> bool:
    """Returns True if the filter selects the children or reruns of one execution, which are few."""
    return criteria.rerun_of is not None or criteria.parent is not None


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
