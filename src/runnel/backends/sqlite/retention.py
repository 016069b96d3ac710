"""Deletes executions that ended long enough ago, with their blobs."""

import sqlite3

from runnel.backends.sqlite.queries import SQL
from runnel.backends.sqlite.writer import Writer
from runnel.core.states import ExecutionState
from runnel.ports.blobs import BlobStore

_BELOW = ("delete_histories", "delete_letters", "delete_executions")


class SqliteRetention:
    def __init__(self, writer: Writer, blobs: BlobStore) -> None:
        self._writer = writer
        self._blobs = blobs

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
