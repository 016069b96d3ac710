"""Records, rate buckets and cached results that all processes of a data directory share."""

import sqlite3
from collections.abc import Sequence
from typing import Any

from runnel.backends.local.tasks import take_rate_token
from runnel.backends.sqlite.database import SQL, SqliteReader
from runnel.backends.sqlite.writer import SqliteWriter
from runnel.errors import ConflictError
from runnel.ports.clock import Clock
from runnel.ports.records import Record


class SqliteRecords:
    def __init__(self, writer: SqliteWriter, reader: SqliteReader) -> None:
        self._writer = writer
        self._reader = reader

    async def get(self, kind: str, key: str) -> Record | None:
        rows = self._reader.rows("get_record", (kind, key))
        return _decode_record(kind, rows[0]) if rows else None

    async def list(self, kind: str, *, after: str = "", limit: int = 50) -> Sequence[Record]:
        rows = self._reader.rows("list_records", (kind, after, limit))
        return [_decode_record(kind, row) for row in rows]

    async def put(self, kind: str, key: str, data: bytes, *, revision: int) -> int:
        def run(db: sqlite3.Connection) -> int:
            current = _read_revision(db, kind, key)
            if current != revision:
                raise ConflictError(kind, key, expected=revision, found=current)
            db.execute(SQL["delete_record"], (kind, key))
            return int(db.execute(SQL["add_record"], (kind, key, data)).fetchall()[0][0])

        return await self._writer.submit(run)

    async def delete(self, kind: str, key: str, *, revision: int | None = None) -> bool:
        def run(db: sqlite3.Connection) -> bool:
            current = _read_revision(db, kind, key)
            if current and revision not in (None, current):
                raise ConflictError(kind, key, expected=revision or 0, found=current)
            return db.execute(SQL["delete_record"], (kind, key)).rowcount > 0

        return await self._writer.submit(run)


def _read_revision(db: sqlite3.Connection, kind: str, key: str) -> int:
    rows = db.execute(SQL["get_revision"], (kind, key)).fetchall()
    return int(rows[0][0]) if rows else 0


def _decode_record(kind: str, row: Sequence[Any]) -> Record:
    key, data, revision = row
    return Record(kind=kind, key=key, data=data, revision=revision)


# -- rate buckets, on the clock of the machine --------------------------------------------------

# A deletion reads all buckets. So a process deletes once for this number of new buckets.
BUCKETS_PER_DELETION = 1_000


class SqliteTokenBuckets:
    def __init__(self, writer: SqliteWriter, clock: Clock) -> None:
        self._writer = writer
        self._clock = clock
        self._added = 0

    async def take(
        self, tag: str, *, rate_per_second: float, burst: int, wait_s_max: float
    ) -> float:
        def run(db: sqlite3.Connection) -> float:
            now = self._clock.now()
            row = db.execute(SQL["get_bucket"], (tag,)).fetchone()
            if row is None:
                self._delete_full_buckets(db, now)
            full_at = now if row is None else row[0]
            wait_s, new_full_at = take_rate_token(
                full_at,
                now=now,
                rate_per_second=rate_per_second,
                burst=burst,
                wait_s_max=wait_s_max,
            )
            if new_full_at != full_at or row is None:
                db.execute(SQL["put_bucket"], (tag, new_full_at))
            return wait_s

        return await self._writer.submit(run)

    def _delete_full_buckets(self, db: sqlite3.Connection, now: float) -> None:
        """Deletes full buckets before the first new bucket, and then before every 1,000th.

        A tag such as `user-{{ input.user }}` has a bucket for each user.
        """
        if self._added % BUCKETS_PER_DELETION == 0:
            db.execute(SQL["delete_full_buckets"], (now,))
        self._added += 1


# -- cached results ----------------------------------------------------------------------------

# Each new result removes up to this number of expired results, so the table can't grow faster than
# it is cleaned.
EXPIRED_DELETED_MAX = 10


class SqliteResultCache:
    def __init__(self, writer: SqliteWriter, reader: SqliteReader, clock: Clock) -> None:
        self._writer = writer
        self._reader = reader
        self._clock = clock

    async def get_cached_result(self, key: str) -> bytes | None:
        rows = self._reader.rows("get_result", (key, self._clock.now()))
        return rows[0][0] if rows else None

    async def put_cached_result(self, key: str, data: bytes, *, ttl_s: float) -> None:
        def run(db: sqlite3.Connection) -> None:
            now = self._clock.now()
            db.execute(SQL["put_result"], (key, now + ttl_s, data))
            db.execute(SQL["delete_results"], (now, EXPIRED_DELETED_MAX))

        await self._writer.submit(run)
