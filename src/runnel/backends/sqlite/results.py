"""Results that the tasks of all processes of a data directory may share."""

import sqlite3

from runnel.backends.sqlite.queries import SQL
from runnel.backends.sqlite.reader import Reader
from runnel.backends.sqlite.writer import Writer
from runnel.ports.clock import Clock

# With each one that is kept, so many whose time is over are removed: more than can have come.
SWEPT = 10


class SqliteResults:
    def __init__(self, writer: Writer, reader: Reader, clock: Clock) -> None:
        self._writer = writer
        self._reader = reader
        self._clock = clock

    async def recall(self, key: str) -> bytes | None:
        rows = self._reader.rows("get_result", (key, self._clock.now()))
        return rows[0][0] if rows else None

    async def keep(self, key: str, data: bytes, *, ttl_s: float) -> None:
        def run(db: sqlite3.Connection) -> None:
            now = self._clock.now()
            db.execute(SQL["put_result"], (key, now + ttl_s, data))
            db.execute(SQL["delete_results"], (now, SWEPT))

        await self._writer.submit(run)
