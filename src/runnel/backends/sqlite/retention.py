"""Deletes finished executions from a data directory, in short transactions, and shrinks its file.

Other processes use the directory meanwhile. A transaction is therefore short, and a pause after it
lets their writers take the lock.
"""

import asyncio
import shutil
import sqlite3
from collections import deque
from functools import partial
from pathlib import Path

from runnel.backends.blob_files import FileBlobs
from runnel.backends.sqlite.database import (
    FILE_NAME,
    SQL,
    Durability,
    SqliteReader,
    connect,
    lock_data_dir,
    translate_errors,
)
from runnel.backends.sqlite.leases import SqliteLeases
from runnel.backends.sqlite.writer import BUSY_BACKOFF_S_MAX, SqliteWriter
from runnel.core.ids import ExecutionId, get_root_id
from runnel.core.states import ExecutionState
from runnel.ports.clock import Clock

# A transaction ends after this time.
TRANSACTION_S = 0.01
# A waiting writer tries at least this often, so it gets the lock in the pause.
PAUSE_S = 1.5 * BUSY_BACKOFF_S_MAX
# The most history entries of one execution that one statement deletes.
ENTRIES_PER_STATEMENT = 50
# Free pages are reused, so the file keeps some: a tenth of the used pages. Growing costs time.
FREE_PAGES_SHARE = 0.1
# The most pages that one transaction moves, which takes about 3 ms.
PAGES_PER_TRANSACTION = 100
INCREMENTAL_VACUUM = 2


class SqliteRetention:
    def __init__(
        self,
        data_dir: Path,
        writer: SqliteWriter,
        reader: SqliteReader,
        *,
        clock: Clock,
        durability: Durability,
    ) -> None:
        self._path = data_dir / FILE_NAME
        self._durability = durability
        self._writer = writer
        self._reader = reader
        self._clock = clock
        self._blobs = FileBlobs(data_dir / "blobs")
        self._pause_until = clock.monotonic()

    async def delete_finished(self, state: ExecutionState, *, before: float, limit: int) -> int:
        """Deletes executions with their histories and dead letters, then their blobs.

        A tree is deleted from its last descendant to its root. So after a crash, the root is still
        listed, and the next call deletes the remaining tree. Blobs are deleted last, so that a
        crash leaves only unused blobs. In the other order, a crash could leave an execution without
        its values.
        """
        values = {"state": state.value, "before": before, "limit": limit}
        listed = [row[0] for row in self._reader.rows("list_finished", values)]
        roots, count = deque(listed), 0
        while roots:
            await self._pause()
            deleted = await self._writer.submit(partial(self._delete_some, roots))
            self._pause_until = self._clock.monotonic() + PAUSE_S
            await self._blobs.delete_groups(deleted)
            count += len(set(deleted).intersection(listed))
        return count

    async def delete_orphaned_blobs(self, *, idle_s: float) -> int:
        keys = await self._blobs.list_written_before(self._clock.now() - idle_s)
        roots = {key: get_root_id(ExecutionId(key.partition("/")[0])) for key in keys}
        orphaned_roots = {
            root for root in set(roots.values()) if not self._reader.rows("get_header", (root,))
        }
        orphaned = [key for key, root in roots.items() if root in orphaned_roots]
        return sum([await self._blobs.delete(key) for key in orphaned])

    async def release_space(self, leases: SqliteLeases) -> int | None:
        """Returns free pages to the disk; returns the number of bytes.

        The file keeps FREE_PAGES_SHARE of free pages. A file of an earlier version can't shrink in
        steps. It is rewritten once, which blocks every writer. Returns None if a process owns a
        partition, or if the disk has no room for a copy.
        """
        pages, excess, can_shrink = self._read_page_counts()
        if excess > 0 and not can_shrink:
            if self._is_used(leases) or not self._has_room_for_copy():
                return None
            await asyncio.to_thread(_rewrite, self._path, self._durability)
        while excess > 0 and can_shrink:
            await self._pause()
            step = min(excess, PAGES_PER_TRANSACTION)
            await self._writer.submit(partial(_shrink, pages=step))
            self._pause_until = self._clock.monotonic() + PAUSE_S
            excess -= step
        self._writer.checkpointer.request()
        page_bytes = self._reader.rows("get_page_counts")[0][3]
        return int(page_bytes * (pages - self._read_page_counts()[0]))

    def _read_page_counts(self) -> tuple[int, int, bool]:
        """Returns the number of pages, the free pages above the share, and whether the file can
        shrink.
        """
        pages, free, mode, _ = self._reader.rows("get_page_counts")[0]
        excess = free - int(FREE_PAGES_SHARE * (pages - free))
        return pages, excess, mode == INCREMENTAL_VACUUM

    def _is_used(self, leases: SqliteLeases) -> bool:
        partitions = [row[0] for row in self._reader.rows("list_partitions")]
        return any(leases.observe(partition) is not None for partition in partitions)

    def _has_room_for_copy(self) -> bool:
        return shutil.disk_usage(self._path).free > 2 * self._path.stat().st_size

    async def _pause(self) -> None:
        await self._clock.sleep(self._pause_until - self._clock.monotonic())

    def _delete_some(self, roots: deque[str], db: sqlite3.Connection) -> list[str]:
        """Deletes trees for TRANSACTION_S; returns the deleted executions.

        Removes a root from `roots` with the last execution of its tree.
        """
        end = self._clock.monotonic() + TRANSACTION_S
        deleted: list[str] = []
        while roots and self._clock.monotonic() < end:
            root = roots[0]
            execution_id = _find_last_of_tree(db, root)
            if not _delete_last_entries(db, execution_id):
                continue
            db.execute(SQL["delete_letters"], (execution_id,))
            if db.execute(SQL["delete_execution"], (execution_id,)).rowcount:
                deleted.append(execution_id)
            if execution_id == root:
                roots.popleft()
        return deleted


def _find_last_of_tree(db: sqlite3.Connection, root: str) -> str:
    row = db.execute(SQL["find_last_descendant"], (f"{root}.", f"{root}/")).fetchone()
    return root if row is None else str(row[0])


def _delete_last_entries(db: sqlite3.Connection, execution_id: str) -> bool:
    """Deletes the end of a history; returns True if nothing is left.

    The beginning of a history is a history too, so a reader can still load the execution.
    """
    span = (execution_id, ENTRIES_PER_STATEMENT)
    entry = db.execute(SQL["find_entry_from_end"], span).fetchone()
    if entry is None:
        db.execute(SQL["forget_history"], (execution_id,))
        return True
    db.execute(SQL["delete_last_entries"], (execution_id, entry[0]))
    return False


def _shrink(db: sqlite3.Connection, *, pages: int) -> None:
    """Removes pages one by one, because the driver runs only the first step of the statement."""
    for _ in range(pages):
        db.execute("PRAGMA incremental_vacuum(1)")


def _rewrite(path: Path, durability: Durability) -> None:
    with lock_data_dir(path.parent), translate_errors(path):
        db = connect(path, durability)
        try:
            db.execute("PRAGMA auto_vacuum = INCREMENTAL")  # takes effect in the new file
            db.execute("VACUUM")
            db.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchone()
        finally:
            db.close()
