"""Rate buckets that all processes of a data directory share, on the machine's clock."""

import sqlite3

from runnel.backends.local.buckets import take
from runnel.backends.sqlite.queries import SQL
from runnel.backends.sqlite.writer import Writer
from runnel.ports.clock import Clock


class SqliteBuckets:
    def __init__(self, writer: Writer, clock: Clock) -> None:
        self._writer = writer
        self._clock = clock

    async def take(
        self, tag: str, *, rate_per_second: float, burst: int, wait_s_max: float
    ) -> float:
        def run(db: sqlite3.Connection) -> float:
            now = self._clock.now()
            row = db.execute(SQL["get_bucket"], (tag,)).fetchone()
            full_at = now if row is None else row[0]
            wait_s, new = take(
                full_at,
                now=now,
                rate_per_second=rate_per_second,
                burst=burst,
                wait_s_max=wait_s_max,
            )
            if new != full_at or row is None:
                db.execute(SQL["put_bucket"], (tag, new))
            return wait_s

        return await self._writer.submit(run)
