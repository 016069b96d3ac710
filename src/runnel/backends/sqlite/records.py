"""Records in the same database file, for all processes of a data directory."""

import sqlite3
from collections.abc import Sequence
from typing import Any

from runnel.backends.sqlite.queries import SQL
from runnel.backends.sqlite.reader import Reader
from runnel.backends.sqlite.writer import Writer
from runnel.errors import ConflictError
from runnel.ports.records import Record


class SqliteRecords:
    def __init__(self, writer: Writer, reader: Reader) -> None:
        self._writer = writer
        self._reader = reader

    async def get(self, kind: str, key: str) -> Record | None:
        rows = self._reader.rows("get_record", (kind, key))
        return _record(kind, rows[0]) if rows else None

    async def list(self, kind: str, *, after: str = "", limit: int = 50) -> Sequence[Record]:
        rows = self._reader.rows("list_records", (kind, after, limit))
        return [_record(kind, row) for row in rows]

    async def put(self, kind: str, key: str, data: bytes, *, revision: int) -> int:
        def run(db: sqlite3.Connection) -> int:
            found = _revision(db, kind, key)
            if found != revision:
                raise ConflictError(kind, key, expected=revision, found=found)
            db.execute(SQL["delete_record"], (kind, key))
            return int(db.execute(SQL["add_record"], (kind, key, data)).fetchall()[0][0])

        return await self._writer.submit(run)

    async def delete(self, kind: str, key: str, *, revision: int | None = None) -> bool:
        def run(db: sqlite3.Connection) -> bool:
            found = _revision(db, kind, key)
            if found and revision not in (None, found):
                raise ConflictError(kind, key, expected=revision or 0, found=found)
            return db.execute(SQL["delete_record"], (kind, key)).rowcount > 0

        return await self._writer.submit(run)


def _revision(db: sqlite3.Connection, kind: str, key: str) -> int:
    rows = db.execute(SQL["get_revision"], (kind, key)).fetchall()
    return int(rows[0][0]) if rows else 0


def _record(kind: str, row: Sequence[Any]) -> Record:
    key, data, revision = row
    return Record(kind=kind, key=key, data=data, revision=revision)
