"""Deletes executions that ended long enough ago, with their blobs."""

import sqlite3

from runnel.backends.blobs import FileBlobs
from runnel.backends.sqlite.queries import SQL
from runnel.backends.sqlite.reader import Reader
from runnel.backends.sqlite.writer import Writer
from runnel.core.ids import ExecutionId, root_of
from runnel.core.states import ExecutionState
from runnel.ports.clock import Clock

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
