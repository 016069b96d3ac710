"""Queries for the archived state of a partition, which Redis may have lost."""

from collections.abc import AsyncIterator, Collection, Mapping, Sequence

import msgspec

from runnel.backends.postgres.database import PostgresDatabase
from runnel.backends.postgres.projection import escape_nul, unescape_nul
from runnel.backends.postgres.quarantine import compute_digest
from runnel.backends.row_codec import decode_header, decode_header_row
from runnel.core.commands import LIMIT_PREFIX
from runnel.core.ids import ExecutionId, get_root_id
from runnel.ports.store import ExecutionHeader

PAGE_SIZE = 50
KNOWN_BATCH_SIZE = 1_000


class ArchivedExecution(msgspec.Struct, frozen=True):
    """An execution with its header, all history entries, and the sequence of its last change."""

    header: ExecutionHeader
    entries: Sequence[bytes]
    sequence: int


class RestoreQueries:
    def __init__(self, database: PostgresDatabase) -> None:
        self._database = database

    async def list_changed(self, partition: int, *, after: int) -> Sequence[ExecutionId]:
        """Returns the executions that commits with a sequence above `after` changed."""
        rows = await self._database.rows("list_touched", partition, after)
        quarantined = await self._list_quarantined(partition, after=after)
        return sorted({*(ExecutionId(row[0]) for row in rows), *quarantined})

    async def list_unfinished(
        self, partition: int, *, extra_ids: Collection[ExecutionId] = ()
    ) -> Sequence[ExecutionId]:
        """Returns all executions of unfinished trees, and of the trees of `extra_ids`.

        Ended children are included, because a parent that has not received the result of a child
        would create the child again. Quarantined executions are included as well, because their
        headers in the table may be out of date.
        """
        unfinished = await self._database.rows("list_unfinished", partition)
        quarantined = await self._list_quarantined(partition)
        roots = sorted(
            {
                get_root_id(id_)
                for id_ in (*(row[0] for row in unfinished), *extra_ids, *quarantined)
            }
        )
        tree_rows = await self._database.rows("list_trees", roots)
        return sorted({*(ExecutionId(row[0]) for row in tree_rows), *quarantined})

    async def list_known(self, partition: int, roots: Sequence[ExecutionId]) -> set[ExecutionId]:
        """Returns those of the roots that the archive has, in any state."""
        known = {get_root_id(id_) for id_ in await self._list_quarantined(partition)}
        for first in range(0, len(roots), KNOWN_BATCH_SIZE):
            page = list(roots[first : first + KNOWN_BATCH_SIZE])
            known |= {ExecutionId(row[0]) for row in await self._database.rows("list_known", page)}
        return known

    async def read_executions(self, ids: Sequence[ExecutionId]) -> AsyncIterator[ArchivedExecution]:
        """Yields the executions; in each history, quarantined entries come after the archived
        entries.
        """
        for first in range(0, len(ids), PAGE_SIZE):
            page = list(ids[first : first + PAGE_SIZE])
            histories: dict[str, list[tuple[int, bytes]]] = {}
            for id_, sequence, entry in await self._database.rows("load_histories", page):
                histories.setdefault(id_, []).append((sequence, entry))
            rows = await self._database.rows("get_headers", page)
            headers: dict[str, ExecutionHeader] = {row[0]: decode_header_row(row) for row in rows}
            ids_by_digest = {compute_digest(id_): id_ for id_ in page}
            quarantined = await self._database.rows("list_set_aside", [*ids_by_digest])
            for digest, kind, sequence, body in quarantined:
                if kind == "header":
                    headers[ids_by_digest[digest]] = decode_header(body)
                elif kind == "history":
                    histories.setdefault(ids_by_digest[digest], []).append((sequence, body))
            for id_, header in headers.items():
                history = histories.get(id_, [])
                last = history[-1][0] if history else 0
                yield ArchivedExecution(header, [entry for _, entry in history], last)

    async def _list_quarantined(self, partition: int, *, after: int = 0) -> set[ExecutionId]:
        rows = await self._database.rows("list_ids_set_aside", partition, after)
        ids = {ExecutionId(row[0].decode()) for row in rows}
        return {id_ for id_ in ids if not id_.startswith(LIMIT_PREFIX)}

    async def read_limits(self, partition: int) -> Mapping[str, Sequence[bytes]]:
        """Returns the history of each concurrency key that has holders or waiters, by its id."""
        histories: dict[str, list[bytes]] = {}
        for key, entry in await self._database.rows("list_limits", partition):
            histories.setdefault(unescape_nul(key), []).append(entry)
        for key, entry in await self._database.rows("list_limits_set_aside", partition):
            histories.setdefault(key.decode(), []).append(entry)
        return histories

    async def list_blob_keys(self, root: ExecutionId) -> Sequence[str]:
        """Returns the blob keys of an execution and all its descendants."""
        name = escape_nul(root)
        rows = await self._database.rows("list_blobs", f"{name}.", f"{name}0")
        return [unescape_nul(row[0]) for row in rows]
