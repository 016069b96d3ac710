"""Entries that PostgreSQL refuses are quarantined: kept, reported, and blocking nothing else."""

import asyncio
import random
import string

import pytest

from runnel.app.private_servers.postgres import PostgresServer
from runnel.app.private_servers.redis import RedisServer
from runnel.backends.postgres.database import PostgresOptions
from runnel.backends.postgres.health import read_archive_facts
from runnel.backends.postgres.quarantine import compute_digest
from runnel.backends.redis_postgres.backend import RedisPostgresBackend
from runnel.core.codec import encode_entry
from runnel.core.commands import make_limit_id
from runnel.core.ids import ExecutionId
from runnel.core.states import ExecutionState
from runnel.engine.clock import RealClock
from runnel.engine.services.archiver import Archiver
from runnel.notify.event_bus import EventBus
from runnel.ports import telemetry as names
from runnel.ports.archive import ExecutionFilter
from runnel.ports.store import Commit, HistoryRecord, Lease
from runnel.testing.clock import FakeClock, FakeIds
from runnel.testing.conformance.suite import make_header
from tests.core_driver import make_node, make_workflow
from tests.engines import DEADLINE_S, WorkHandler
from tests.redis_postgres import (
    ArchivedEngine,
    fetch_rows,
    open_archived_backend,
    open_archived_engine,
)

CHAIN = make_workflow(make_node("a"), make_node("bad", "a"), make_node("c", "bad"))
FINE = make_workflow(make_node("a"), make_node("c", "a"))
# An index accepts no incompressible text of more than 2,704 bytes.
LONG = "x2." + "".join(random.Random(1).choices(string.ascii_letters + string.digits, k=6_000))


class RecordingEventBus(EventBus):
    def __init__(self) -> None:
        super().__init__()
        self.told: list[tuple[str, dict[str, object]]] = []

    def event(self, name: str, **fields: object) -> None:
        self.told.append((name, fields))
        super().event(name, **fields)


def archiver_of(backend: RedisPostgresBackend, lease: Lease, events: RecordingEventBus) -> Archiver:
    return Archiver(
        backend.journal,
        backend.ledger,
        FakeClock(),
        events,
        hot_blobs=backend.hot_blobs,
        cold_blobs=backend.cold_blobs,
        leases=lambda: [lease],
    )


def commit_of(sequence: int, *ids: str) -> Commit:
    entry = encode_entry(float(sequence), [])
    return Commit(
        sequence=sequence,
        headers=[make_header(id_) for id_ in ids],
        histories=[HistoryRecord(aggregate_id=id_, entry=entry) for id_ in ids],
    )


async def own(backend: RedisPostgresBackend) -> Lease:
    return await backend.store.restore(await backend.store.acquire(0, "one"))


async def test_a_refused_execution_does_not_block_the_archive(
    own_redis: RedisServer, shared_postgres: PostgresServer
) -> None:
    backend = await open_archived_backend(own_redis, shared_postgres, RealClock(), FakeIds())
    lease, events = await own(backend), RecordingEventBus()
    for number, ids in enumerate((["x1"], ["x1", LONG, "x2"], ["x2", LONG], ["x1"]), start=1):
        await backend.store.commit(lease, commit_of(number, *ids))
    archiver = archiver_of(backend, lease, events)

    while await archiver.tick():
        pass
    await asyncio.to_thread(own_redis.wipe)
    lease = await own(backend)

    [(name, fields)] = events.told
    assert (name, fields["execution_id"]) == (names.ARCHIVE_SET_ASIDE, LONG)
    assert "exceeds" in str(fields["reason"])
    assert (await backend.ledger.cursor(0)).sequence == 4
    archived = await fetch_rows(
        backend, "SELECT aggregate_id, sequence FROM audit_log ORDER BY sequence, ordinal"
    )
    assert archived == [("x1", 1), ("x1", 2), ("x2", 2), ("x2", 3), ("x1", 4)]
    histories = [await backend.store.load(execution_id) for execution_id in ("x1", "x2", LONG)]
    assert [[entry[:4] for entry in entries] for entries in histories] == [
        [b"[1,1", b"[1,2", b"[1,4"],
        [b"[1,2", b"[1,3"],
        [b"[1,2", b"[1,3"],
    ]
    assert set(await backend.store.running(0)) == {"x1", "x2", LONG}
    await backend.close()


async def test_a_quarantined_execution_can_be_read_after_redis_has_forgotten_it(
    own_redis: RedisServer, shared_postgres: PostgresServer
) -> None:
    backend = await open_archived_backend(own_redis, shared_postgres, RealClock(), FakeIds())
    lease = await own(backend)
    await backend.store.commit(lease, commit_of(1, LONG))
    await archiver_of(backend, lease, RecordingEventBus()).tick()

    await asyncio.to_thread(own_redis.wipe)

    header = await backend.archive.get_header(ExecutionId(LONG))
    facts = await read_archive_facts(
        shared_postgres.url, PostgresOptions(schema=backend.database.schema), RealClock()
    )
    assert (facts.quarantined, facts.unreadable) == (1, 0)
    assert header == make_header(LONG)
    assert list(await backend.archive.load(ExecutionId(LONG))) == [encode_entry(1.0, [])]
    await backend.close()


async def test_a_partly_quarantined_history_is_read_from_a_given_entry_on(
    own_redis: RedisServer, shared_postgres: PostgresServer
) -> None:
    backend = await open_archived_backend(own_redis, shared_postgres, RealClock(), FakeIds())
    lease = await own(backend)
    for sequence in (1, 2):
        await backend.store.commit(lease, commit_of(sequence, "x1"))
    await archiver_of(backend, lease, RecordingEventBus()).tick()
    await backend.database.run(
        "add_set_aside", 0, 3, "history", 0, compute_digest("x1"), b"x1", b"third", "refused"
    )
    await asyncio.to_thread(own_redis.wipe)

    x1 = ExecutionId("x1")
    tails = [list(await backend.archive.load(x1, after=after)) for after in range(4)]

    entries = [encode_entry(1.0, []), encode_entry(2.0, []), b"third"]
    assert tails == [entries, entries[1:], entries[2:], []]
    await backend.close()


async def test_a_batch_that_exceeds_the_call_timeout_is_archived_in_parts(
    shared_redis: RedisServer, shared_postgres: PostgresServer
) -> None:
    backend = await open_archived_backend(
        shared_redis, shared_postgres, RealClock(), FakeIds(), archive_call_s=0.5
    )
    lease = await own(backend)
    for sequence in range(1, 61):
        await backend.store.commit(lease, commit_of(sequence, "x1"))
    async with backend.database.transaction() as connection:
        await connection.execute(
            "CREATE FUNCTION slow() RETURNS trigger LANGUAGE plpgsql AS "
            "'BEGIN PERFORM pg_sleep(0.015); RETURN NEW; END';"
            "CREATE TRIGGER slow BEFORE INSERT ON audit_log FOR EACH ROW EXECUTE FUNCTION slow()"
        )
    archiver = archiver_of(backend, lease, RecordingEventBus())

    async with asyncio.timeout(DEADLINE_S):
        while await backend.journal.length(0):
            await archiver.tick()

    archived = await fetch_rows(backend, "SELECT sequence FROM audit_log ORDER BY sequence")
    assert archived == [(sequence,) for sequence in range(1, 61)]
    await backend.close()


async def refuse(running: ArchivedEngine) -> None:
    """Refuses only the row of the node, as if it were too large."""
    async with running.backend.database.transaction() as connection:
        await connection.execute("ALTER TABLE node_executions ADD CHECK (node_id <> 'bad')")


async def test_a_quarantined_execution_continues_after_a_wipe(
    own_redis: RedisServer, shared_postgres: PostgresServer
) -> None:
    work = WorkHandler()
    gate = work.gate("bad")
    async with open_archived_engine(own_redis, shared_postgres, work) as running:
        await refuse(running)
        ids = await running.submit_all([CHAIN, FINE] * 3)
        await work.entered["bad"].wait()
        await running.archive_all()

        await asyncio.to_thread(own_redis.wipe)
        gate.set()
        ends = await running.ends(ids)
        await running.archive_all()

        assert set(ends) == {"COMPLETED"}
        listed = await running.backend.archive.list_headers(ExecutionFilter())
        assert {str(header.state) for header in listed} == {"COMPLETED"}
        settled = await fetch_rows(
            running.backend,
            "SELECT digest, count(*) FROM set_aside WHERE kind = 'history' "
            "AND position('ExecutionFinished'::bytea IN body) > 0 GROUP BY 1",
        )
        assert [count for _, count in settled] == [1, 1, 1]
        assert await fetch_rows(
            running.backend, "SELECT count(*) FROM commands WHERE applied_at IS NULL"
        ) == [(0,)]
        state = ExecutionState.COMPLETED
        assert await running.backend.retention.delete_finished(state, before=1e10, limit=9) == 6
        assert await fetch_rows(running.backend, "SELECT count(*) FROM set_aside") == [(0,)]


@pytest.mark.parametrize("body", [b"[1,{]", b'[99,{"type":"Later"}]'])
async def test_an_unreadable_command_does_not_block_other_commands(
    own_redis: RedisServer, shared_postgres: PostgresServer, body: bytes
) -> None:
    async with open_archived_engine(
        own_redis, shared_postgres, WorkHandler(), resend_s=0.1
    ) as running:
        for partition in await running.backend.store.partitions():
            await fetch_rows(
                running.backend,
                "INSERT INTO commands (partition, execution_id, kind, key, body, sent_at) "
                "VALUES ($1, 'x', 'Later', '', $2, now() - interval '1 hour')",
                partition,
                body,
            )
        before = await running.submit_all([FINE] * 4)

        await asyncio.to_thread(own_redis.wipe)
        later = await running.submit_all([FINE] * 4)

        assert set(await running.ends([*before, *later])) == {"COMPLETED"}
        is_newer = body.startswith(b"[99")
        counts: list[int] = []

        async def poll() -> None:
            query = "SELECT count(*) FROM commands WHERE problem IS NOT NULL"
            while counts != [0 if is_newer else 4]:
                counts[:] = [(await fetch_rows(running.backend, query))[0][0]]

        async with asyncio.timeout(DEADLINE_S):
            await poll()
        assert await fetch_rows(
            running.backend, "SELECT count(*) FROM commands WHERE kind = 'Later'"
        ) == [(4,)]


async def test_a_quarantined_concurrency_key_without_holders_is_free_after_a_wipe(
    own_redis: RedisServer, shared_postgres: PostgresServer
) -> None:
    backend = await open_archived_backend(own_redis, shared_postgres, RealClock(), FakeIds())
    lease, key = await own(backend), make_limit_id("k")
    archiver = archiver_of(backend, lease, RecordingEventBus())
    held = HistoryRecord(aggregate_id=key, entry=encode_entry(1.0, []))
    await backend.store.commit(lease, Commit(sequence=1, histories=[held]))
    await archiver.tick()
    await fetch_rows(backend, "ALTER TABLE limit_log ADD CHECK (sequence < 2)")
    await backend.store.commit(lease, Commit(sequence=2, histories=[held]))
    await archiver.tick()
    before = await fetch_rows(backend, "SELECT count(*) FROM set_aside")

    await backend.store.commit(lease, Commit(sequence=3, closed=[key]))
    await archiver.tick()
    await asyncio.to_thread(own_redis.wipe)
    await own(backend)

    assert before == [(1,)]
    assert list(await backend.store.load(key)) == []
    await backend.close()
