"""Blobs in a table."""

from runnel.backends.postgres.database import Database
from runnel.backends.postgres.rows import escaped
from runnel.errors import NotFoundError

LAST_CHARACTER = "\U0010ffff"


class PostgresBlobs:
    def __init__(self, database: Database) -> None:
        self._database = database

    async def put(self, key: str, data: bytes) -> None:
        await self._database.run("put_blob", escaped(key), data, size_bytes=len(data))

    async def get(self, key: str) -> bytes:
        row = await self._database.row("get_blob", escaped(key))
        if row is None:
            raise NotFoundError("blob", key)
        return bytes(row[0])

    async def delete(self, prefix: str) -> int:
        first = escaped(prefix)
        return await self._database.run("delete_blobs", first, first + LAST_CHARACTER)
