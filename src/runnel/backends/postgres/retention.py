"""Deletes executions that ended long enough ago."""

from runnel.backends.postgres.database import Connection, Database
from runnel.backends.postgres.queries import SQL
from runnel.core.states import ExecutionState

_BELOW = (
    "delete_nodes",
    "delete_audit_log",
    "delete_commands",
    "delete_dead_letters",
    "delete_set_aside",
)


class PostgresRetention:
    def __init__(self, database: Database) -> None:
        self._database = database

    async def delete_finished(self, state: ExecutionState, *, before: float, limit: int) -> int:
        async with self._database.transaction() as connection:
            rows = await connection.fetch(SQL["take_finished"], state.value, before, limit)
            for (root,) in rows:
                await _delete_tree(connection, root)
        return len(rows)


async def _delete_tree(connection: Connection, root: str) -> None:
    """Its children's ids begin with its own and a dot, the keys of blobs with an id and a slash."""
    for name in (*_BELOW, "delete_executions"):
        await connection.execute(SQL[name], root, f"{root}.", f"{root}/")
    await connection.execute(SQL["delete_blobs"], f"{root}.", f"{root}0")
