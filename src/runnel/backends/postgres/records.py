"""Records, blobs and retention in PostgreSQL tables, so that they survive the loss of Redis."""

from collections.abc import Sequence

from runnel.backends.postgres.database import SQL, Connection, PostgresDatabase, Row
from runnel.backends.postgres.projection import escape_nul
from runnel.backends.sql_files import LAST_CHARACTER
from runnel.core.states import ExecutionState
from runnel.errors import ConflictError, NotFoundError
from runnel.ports.records import Record


class PostgresRecords:
    """Implements the Records port.

    Keys are stored as UTF-8 bytes, so they can hold any text and sort by bytes.
    """

    def __init__(self, database: PostgresDatabase) -> None:
        self._database = database

    async def get(self, kind: str, key: str) -> Record | None:
        row = await self._database.row("get_record", escape_nul(kind), key.encode())
        return None if row is None else _decode_record(kind, row)

    async def list(self, kind: str, *, after: str = "", limit: int = 50) -> Sequence[Record]:
        rows = await self._database.rows("list_records", escape_nul(kind), after.encode(), limit)
        return [_decode_record(kind, row) for row in rows]

    async def put(self, kind: str, key: str, data: bytes, *, revision: int) -> int:
        if revision == 0:
            row = await self._database.row("add_record", escape_nul(kind), key.encode(), data)
        else:
            values = (escape_nul(kind), key.encode(), data, revision)
            row = await self._database.row("put_record", *values)
        if row is None:
            raise ConflictError(
                kind, key, expected=revision, found=await self._read_revision(kind, key)
            )
        return int(row[0])

    async def delete(self, kind: str, key: str, *, revision: int | None = None) -> bool:
        deleted = await self._database.run(
            "delete_record", escape_nul(kind), key.encode(), revision
        )
        if not deleted and revision is not None:
            current = await self._read_revision(kind, key)
            if current:
                raise ConflictError(kind, key, expected=revision, found=current)
        return deleted > 0

    async def _read_revision(self, kind: str, key: str) -> int:
        """Returns the current revision of a record, which may have changed since the conflict."""
        record = await self.get(kind, key)
        return 0 if record is None else record.revision


def _decode_record(kind: str, row: Row) -> Record:
    key, data, revision = row
    return Record(kind=kind, key=bytes(key).decode(), data=bytes(data), revision=revision)


# -- blobs -------------------------------------------------------------------------------------


class PostgresBlobs:
    def __init__(self, database: PostgresDatabase) -> None:
        self._database = database

    async def put(self, key: str, data: bytes) -> None:
        await self._database.run("put_blob", escape_nul(key), data, size_bytes=len(data))

    async def get(self, key: str) -> bytes:
        row = await self._database.row("get_blob", escape_nul(key))
        if row is None:
            raise NotFoundError("blob", key)
        return bytes(row[0])

    async def read_parts(
        self, keys: Sequence[str], *, start: int, size: int
    ) -> Sequence[bytes | None]:
        names = [escape_nul(key) for key in keys]
        rows = await self._database.rows("read_blob_parts", names, start + 1, size)
        parts = {name: bytes(part) for name, part in rows}
        return [parts.get(name) for name in names]

    async def delete(self, prefix: str) -> int:
        first = escape_nul(prefix)
        return await self._database.run("delete_blobs", first, first + LAST_CHARACTER)


# -- retention: deletes executions that ended before a given time -------------------------------

_TREE_DELETES = (
    "delete_nodes",
    "delete_audit_log",
    "delete_commands",
    "delete_dead_letters",
    "delete_set_aside",
)


class PostgresRetention:
    def __init__(self, database: PostgresDatabase) -> None:
        self._database = database

    async def delete_finished(self, state: ExecutionState, *, before: float, limit: int) -> int:
        async with self._database.transaction() as connection:
            rows = await connection.fetch(SQL["take_finished"], state.value, before, limit)
            for (root,) in rows:
                await _delete_tree(connection, root)
        return len(rows)


async def _delete_tree(connection: Connection, root: str) -> None:
    """Deletes an execution with its descendants and blobs.

    The ids of descendants begin with the id of the root and a dot; blob keys begin with an id and a
    slash.
    """
    for name in (*_TREE_DELETES, "delete_executions"):
        await connection.execute(SQL[name], root, f"{root}.", f"{root}/")
    await connection.execute(SQL["delete_blobs"], f"{root}.", f"{root}0")
