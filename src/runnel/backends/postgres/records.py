"""Records in a table: they last as long as definitions do, whatever becomes of Redis."""

from collections.abc import Sequence

from runnel.backends.postgres.database import Database, Row
from runnel.backends.postgres.rows import escaped
from runnel.errors import ConflictError
from runnel.ports.records import Record


class PostgresRecords:
    """Keys are bytes there: any text, in the order of UTF-8."""

    def __init__(self, database: Database) -> None:
        self._database = database

    async def get(self, kind: str, key: str) -> Record | None:
        row = await self._database.row("get_record", escaped(kind), key.encode())
        return None if row is None else _record(kind, row)

    async def list(self, kind: str, *, after: str = "", limit: int = 50) -> Sequence[Record]:
        rows = await self._database.rows("list_records", escaped(kind), after.encode(), limit)
        return [_record(kind, row) for row in rows]

    async def put(self, kind: str, key: str, data: bytes, *, revision: int) -> int:
        if revision == 0:
            row = await self._database.row("add_record", escaped(kind), key.encode(), data)
        else:
            values = (escaped(kind), key.encode(), data, revision)
            row = await self._database.row("put_record", *values)
        if row is None:
            raise ConflictError(kind, key, expected=revision, found=await self._found(kind, key))
        return int(row[0])

    async def delete(self, kind: str, key: str, *, revision: int | None = None) -> bool:
        deleted = await self._database.run("delete_record", escaped(kind), key.encode(), revision)
        if not deleted and revision is not None:
            found = await self._found(kind, key)
            if found:
                raise ConflictError(kind, key, expected=revision, found=found)
        return deleted > 0

    async def _found(self, kind: str, key: str) -> int:
        """A moment after the refusal: it may be another one again."""
        known = await self.get(kind, key)
        return 0 if known is None else known.revision


def _record(kind: str, row: Row) -> Record:
    key, data, revision = row
    return Record(kind=kind, key=bytes(key).decode(), data=bytes(data), revision=revision)
