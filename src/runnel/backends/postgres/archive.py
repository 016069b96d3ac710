"""The archive in PostgreSQL: definitions, execution headers and histories, and dead letters."""

from collections.abc import Mapping, Sequence
from functools import partial
from math import inf

import msgspec

from runnel.backends.list_filters import (
    count_by_scan,
    get_filter_states,
    get_letter_position,
    is_unindexed,
    scan_headers,
)
from runnel.backends.postgres.database import SQL, PostgresDatabase, parse_row_count
from runnel.backends.postgres.projection import replace_nul
from runnel.backends.postgres.quarantine import compute_digest
from runnel.backends.row_codec import (
    decode_definition_row,
    decode_header,
    decode_header_row,
    decode_letter,
    encode,
)
from runnel.backends.sql_files import LAST_CHARACTER
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

# -- lists and counts of executions, by an index or by a scan in chunks -------------------------

# The number of rows that a scan reads at once. One chunk takes 8 ms, of which 5 ms block the event
# loop.
CHUNK_ROWS = 1_000


class PostgresListing:
    """Lists and counts executions in PostgreSQL.

    A text search scans executions from the newest on. SCANNED_EXECUTIONS_MAX rows take 80 ms.

    Labels have an index, but the index is not sorted. A search by label first scans the newest
    executions, which is enough for a frequent label. If the page is not full, the search sorts all
    executions with the label. If there are too many of them to sort, the search continues the scan.
    """

    def __init__(self, database: PostgresDatabase) -> None:
        self._database = database

    async def read_page(self, criteria: ExecutionFilter) -> HeaderPage:
        read = partial(self._read, criteria)
        if not is_unindexed(criteria) and not _has_relative(criteria):
            return await scan_headers(read, criteria, chunk_size=criteria.limit + 1)
        if not criteria.labels or _has_relative(criteria):
            return await scan_headers(read, criteria, chunk_size=CHUNK_ROWS)
        first = await scan_headers(read, criteria, chunk_size=CHUNK_ROWS, scanned_max=CHUNK_ROWS)
        if first.next is None or len(first.headers) == criteria.limit:
            return first
        remaining = criteria.limit - len(first.headers)
        next_page = msgspec.structs.replace(criteria, after=first.next, limit=remaining)
        second = await self._read_remaining(next_page)
        return HeaderPage(headers=[*first, *second], next=second.next)

    async def _read_remaining(self, criteria: ExecutionFilter) -> HeaderPage:
        read = _LabelledReader(self._database, criteria)
        page = await scan_headers(read, criteria, chunk_size=CHUNK_ROWS)
        if not read.has_too_many:
            return page
        return await scan_headers(partial(self._read, criteria), criteria, chunk_size=CHUNK_ROWS)

    async def read_counts(
        self, criteria: ExecutionFilter
    ) -> Mapping[ExecutionState, ExecutionCount]:
        if criteria.labels and not _has_relative(criteria):
            read = _LabelledReader(self._database, criteria)
            counts = await count_by_scan(read, criteria, chunk_size=CHUNK_ROWS)
            if not read.has_too_many:
                return counts
        if is_unindexed(criteria) or _has_relative(criteria):
            return await count_by_scan(
                partial(self._read, criteria), criteria, chunk_size=CHUNK_ROWS
            )
        roots, states = _build_root_flags(criteria), _list_state_values(criteria)
        values = (
            roots,
            states,
            criteria.created_before,
            criteria.created_from,
            SCANNED_EXECUTIONS_MAX,
        )
        if criteria.workflow is None:
            rows = await self._database.rows("count_headers", *values)
        else:
            rows = await self._database.rows(
                "count_headers_of", *values, replace_nul(criteria.workflow)
            )
        return {
            ExecutionState(state): ExecutionCount(
                number=number, is_least=number == SCANNED_EXECUTIONS_MAX
            )
            for state, number in rows
        }

    async def _read(
        self, criteria: ExecutionFilter, after: PagePosition, count: int
    ) -> Sequence[ExecutionHeader]:
        created_at, id_ = after
        range_values = (created_at, replace_nul(id_), criteria.created_from, count)
        if criteria.parent is not None:
            rows = await self._database.rows(
                "list_children", replace_nul(criteria.parent), *range_values
            )
        elif criteria.rerun_of is not None:
            rows = await self._database.rows(
                "list_reruns", replace_nul(criteria.rerun_of), *range_values
            )
        elif criteria.workflow is not None:
            values = (
                _build_root_flags(criteria),
                _list_state_values(criteria),
                *range_values,
                replace_nul(criteria.workflow),
            )
            rows = await self._database.rows("list_headers_of", *values)
        else:
            rows = await self._database.rows(
                "list_headers",
                _build_root_flags(criteria),
                _list_state_values(criteria),
                *range_values,
            )
        return [decode_header_row(row) for row in rows]


class _LabelledReader:
    """Reads executions with the given labels, unless there are too many of them to sort."""

    def __init__(self, database: PostgresDatabase, criteria: ExecutionFilter) -> None:
        self._database = database
        self._criteria = criteria
        self.has_too_many = False

    async def __call__(self, after: PagePosition, count: int) -> Sequence[ExecutionHeader]:
        criteria = self._criteria
        created_at, id_ = after
        rows = await self._database.rows(
            "list_labelled",
            msgspec.json.encode(criteria.labels).decode(),
            *(created_at, replace_nul(id_), criteria.created_from, count),
            SCANNED_EXECUTIONS_MAX + 1,
            _build_root_flags(criteria),
            _list_state_values(criteria),
            None if criteria.workflow is None else replace_nul(criteria.workflow),
        )
        self.has_too_many |= bool(rows) and rows[0][-1] > SCANNED_EXECUTIONS_MAX
        return () if self.has_too_many else [decode_header_row(row) for row in rows]


def _has_relative(criteria: ExecutionFilter) -> bool:
    """Returns True if the filter selects the children or reruns of one execution, which are few."""
    return criteria.rerun_of is not None or criteria.parent is not None


def _build_root_flags(criteria: ExecutionFilter) -> list[bool]:
    return [True, False] if criteria.with_children else [True]


def _list_state_values(criteria: ExecutionFilter) -> list[str]:
    return [state.value for state in get_filter_states(criteria)]


class PostgresArchive:
    def __init__(self, database: PostgresDatabase) -> None:
        self._database = database
        self._listing = PostgresListing(database)

    async def put_definition(self, name: str, hash_: DefinitionHash, document: bytes) -> int:
        row = await self._database.row("get_version", hash_)
        if row is not None:
            return int(row[0])
        safe_name = replace_nul(name)
        async with self._database.transaction() as connection:
            await connection.execute(SQL["lock_definitions"], safe_name)
            version = await connection.fetchval(SQL["get_version"], hash_)
            if version is None:
                version = await connection.fetchval(
                    SQL["add_definition"], hash_, safe_name, document
                )
        return int(version)

    async def get_definition(self, hash_: DefinitionHash) -> Definition | None:
        row = await self._database.row("get_definition", hash_)
        if row is None:
            return None
        return Definition(hash=hash_, name=row[0], version=row[1], document=row[2])

    async def delete_versions(self, name: str) -> int:
        safe_name = replace_nul(name)
        async with self._database.transaction() as connection:
            await connection.execute(SQL["lock_definitions"], safe_name)
            return parse_row_count(await connection.execute(SQL["delete_versions"], safe_name))

    async def list_workflows(self, *, after: str = "", limit: int = 50) -> Sequence[Definition]:
        rows = await self._database.rows("list_workflows", replace_nul(after), limit)
        return [decode_definition_row(row) for row in rows]

    async def list_versions(self, name: str, *, limit: int = 50) -> Sequence[Definition]:
        rows = await self._database.rows("list_versions", replace_nul(name), limit)
        return [decode_definition_row(row) for row in rows]

    async def find_version(self, name: str, version: int) -> Definition | None:
        row = await self._database.row("find_version", replace_nul(name), version)
        return None if row is None else decode_definition_row(row)

    async def get_header(self, execution_id: ExecutionId) -> ExecutionHeader | None:
        [row] = await self._database.rows(
            "get_header", replace_nul(execution_id), compute_digest(execution_id)
        )
        if row[-1] is not None:
            return decode_header(row[-1])
        return None if row[0] is None else decode_header_row(row)

    async def get_headers(
        self, ids: Sequence[ExecutionId]
    ) -> Mapping[ExecutionId, ExecutionHeader]:
        rows = await self._database.rows(
            "get_headers", [replace_nul(execution_id) for execution_id in ids]
        )
        return {header.execution_id: header for header in map(decode_header_row, rows)}

    async def load(self, execution_id: ExecutionId, *, after: int = 0) -> Sequence[bytes]:
        quarantined = await self._database.rows("load_set_aside", compute_digest(execution_id))
        # Quarantined entries come after the archived entries, so these must be counted to apply
        # `after`.
        first = 0 if quarantined else after
        rows = await self._database.rows("load_history", replace_nul(execution_id), first)
        return [row[0] for row in (*rows, *quarantined)[after - first :]]

    async def list_headers(self, criteria: ExecutionFilter) -> HeaderPage:
        return await self._listing.read_page(criteria)

    async def count_headers(
        self, criteria: ExecutionFilter = ALL_EXECUTIONS
    ) -> Mapping[ExecutionState, ExecutionCount]:
        return await self._listing.read_counts(criteria)

    async def find_ids(self, prefix: str, *, limit: int = 2) -> Sequence[ExecutionId]:
        first = replace_nul(prefix)
        rows = await self._database.rows(
            "find_ids", first, first + LAST_CHARACTER, "." in prefix, limit
        )
        return [ExecutionId(row[0]) for row in rows]

    async def list_dead_letters(
        self, criteria: DeadLetterFilter = ALL_DEAD_LETTERS
    ) -> Sequence[DeadLetter]:
        position = (inf, b"") if criteria.after is None else get_letter_position(criteria.after)
        rows = await self._database.rows(
            "list_dead_letters", *_build_letter_values(criteria), *position, criteria.limit
        )
        return [decode_letter(row[0]) for row in rows]

    async def count_dead_letters(self, criteria: DeadLetterFilter = ALL_DEAD_LETTERS) -> int:
        row = await self._database.row("count_dead_letters", *_build_letter_values(criteria))
        return 0 if row is None else int(row[0])

    async def delete_dead_letters(self, letters: Sequence[DeadLetter]) -> int:
        deleted = await self._database.rows(
            "delete_letters",
            [letter.token.execution_id for letter in letters],
            [encode(letter) for letter in letters],
        )
        return len(deleted)


def _build_letter_values(criteria: DeadLetterFilter) -> tuple[object, ...]:
    execution = replace_nul(criteria.execution)
    return (
        None if criteria.queue is None else replace_nul(criteria.queue),
        None if criteria.workflow is None else replace_nul(criteria.workflow),
        execution,
        execution + LAST_CHARACTER,
        criteria.before,
    )
