"""Records with several processes, after a restart, and while their server is down."""

import asyncio
from pathlib import Path

import pytest

from runnel.app.private_servers.postgres import PostgresServer
from runnel.app.private_servers.redis import RedisServer
from runnel.backends.postgres.database import PostgresDatabase, PostgresOptions
from runnel.backends.postgres.records import PostgresRecords
from runnel.backends.sqlite.backend import SqliteBackend
from runnel.engine.clock import RandomIdGenerator, RealClock
from runnel.errors import ConflictError, StoreError
from runnel.ports.records import Records
from tests.redis_postgres import make_schema_name, open_archived_backend
from tests.redis_server import flush_server

NOBODY = "postgresql://127.0.0.1:1/nobody"
CHANGES = 20


async def open_sqlite(folder: Path) -> SqliteBackend:
    return await SqliteBackend.open(folder, clock=RealClock(), ids=RandomIdGenerator())


async def count_up(records: Records) -> None:
    """Increments the record, and retries after each conflict."""
    while True:
        record = await records.get("one", "k")
        count, revision = (0, 0) if record is None else (int(record.data), record.revision)
        try:
            await records.put("one", "k", b"%d" % (count + 1), revision=revision)
        except ConflictError:
            continue
        return


async def test_two_backends_of_one_folder_lose_no_change(tmp_path: Path) -> None:
    first, second = await open_sqlite(tmp_path), await open_sqlite(tmp_path)

    await asyncio.gather(
        *(count_up(opened.records) for opened in (first, second) for _ in range(CHANGES))
    )

    record = await first.records.get("one", "k")
    await first.close()
    await second.close()
    assert record is not None
    assert int(record.data) == 2 * CHANGES


async def test_records_and_their_revisions_survive_the_process(tmp_path: Path) -> None:
    first = await open_sqlite(tmp_path)
    kept = await first.records.put("one", "kept", b"1", revision=0)
    last = await first.records.put("one", "deleted", b"2", revision=0)
    await first.records.delete("one", "deleted")
    await first.close()

    second = await open_sqlite(tmp_path)
    record = await second.records.get("one", "kept")
    next_ = await second.records.put("one", "deleted", b"3", revision=0)
    await second.close()

    assert record is not None
    assert (record.data, record.revision) == (b"1", kept)
    assert next_ > last


async def test_with_an_archive_records_survive_a_wipe_of_redis(
    shared_redis: RedisServer, shared_postgres: PostgresServer
) -> None:
    schema = make_schema_name()
    flush_server(shared_redis)
    clock, ids = RealClock(), RandomIdGenerator()
    backend = await open_archived_backend(shared_redis, shared_postgres, clock, ids, schema=schema)
    await backend.records.put("one", "k", b"1", revision=0)
    await backend.close()

    flush_server(shared_redis)
    again = await open_archived_backend(shared_redis, shared_postgres, clock, ids, schema=schema)
    record = await again.records.get("one", "k")
    await again.close()

    assert record is not None
    assert record.data == b"1"


async def test_while_postgresql_is_down_every_call_is_a_store_error() -> None:
    database = await PostgresDatabase.open(NOBODY, PostgresOptions(call_timeout_s=5.0))
    records = PostgresRecords(database)

    for call in (
        records.get("one", "k"),
        records.list("one"),
        records.put("one", "k", b"", revision=0),
        records.delete("one", "k", revision=1),
    ):
        with pytest.raises(StoreError, match=r"PostgreSQL: .*(refused|failed)"):
            await call
    await database.close()
