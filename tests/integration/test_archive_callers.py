"""Replies to callers, and the lifetime of their commands, on Redis with its archive."""

import asyncio
from collections.abc import AsyncIterator

import asyncpg
import msgspec
import pytest

from runnel.app.private_servers.postgres import PostgresServer
from runnel.app.private_servers.redis import RedisServer
from runnel.backends.postgres.database import SQL
from runnel.backends.postgres.ledger import PostgresLedger, build_record_values
from runnel.backends.redis_postgres.backend import RedisPostgresBackend
from runnel.client.store_client import StoreClient
from runnel.core.commands import CancelExecution, CreateExecution, SendSignal
from runnel.core.ids import DefinitionHash, ExecutionId
from runnel.core.values import INLINE_BYTES_MAX, make_inline_value
from runnel.engine.clock import RandomIdGenerator, RealClock
from runnel.errors import ArchiveBehindError, StoreError
from runnel.notify.waiter import Completion
from runnel.ports.store import Commit
from runnel.testing.conformance.suite import make_message
from tests.core_driver import make_node, make_workflow
from tests.engines import WorkHandler
from tests.redis_postgres import (
    fetch_rows,
    make_schema_name,
    open_archived_backend,
    open_archived_engine,
)
from tests.redis_server import flush_server

DEADLINE_S = 10.0
# Sessions that wait for the end of another transaction, in a schema of this name.
WAITING = """
SELECT count(DISTINCT waiting.pid) FROM pg_locks AS waiting
JOIN pg_locks AS known ON known.pid = waiting.pid AND known.relation IS NOT NULL
JOIN pg_class ON pg_class.oid = known.relation
JOIN pg_namespace ON pg_namespace.oid = relnamespace
WHERE NOT waiting.granted AND nspname = $1
"""


@pytest.fixture
def schema() -> str:
    return make_schema_name()


@pytest.fixture
async def backend(
    shared_redis: RedisServer, shared_postgres: PostgresServer, schema: str
) -> AsyncIterator[RedisPostgresBackend]:
    flush_server(shared_redis)
    opened = await open_archived_backend(
        shared_redis, shared_postgres, RealClock(), RandomIdGenerator(), schema=schema
    )
    yield opened
    await opened.close()


class Turnstile:
    """Blocks writes of commands while it is held; a second one waits for its lock like a caller."""

    def __init__(self, postgres: PostgresServer, schema: str) -> None:
        self._url = postgres.url
        self._table = f'"{schema}".commands'
        self._connection: asyncpg.Connection | None = None

    async def hold(self) -> None:
        self._connection = await asyncpg.connect(self._url)
        await self._connection.execute("BEGIN")
        await self._connection.execute(f"LOCK TABLE {self._table} IN EXCLUSIVE MODE")

    async def until_in_line(self, count: int) -> None:
        """Waits until the given number of sessions wait for the table."""
        looking = await asyncpg.connect(self._url)
        statement = (
            "SELECT count(*) FROM pg_locks WHERE NOT granted AND relation = $1::text::regclass"
        )
        try:
            async with asyncio.timeout(DEADLINE_S):
                while await looking.fetchval(statement, self._table) < count:
                    pass
        finally:
            await looking.close()

    async def release(self) -> None:
        assert self._connection is not None
        await self._connection.execute("COMMIT")
        await self._connection.close()


async def test_a_cancelled_caller_does_not_cancel_others(
    backend: RedisPostgresBackend, shared_postgres: PostgresServer, schema: str
) -> None:
    await backend.mailbox.send([make_message("before")])
    first, second = Turnstile(shared_postgres, schema), Turnstile(shared_postgres, schema)
    await first.hold()
    async with asyncio.TaskGroup() as group:
        group.create_task(backend.mailbox.send([make_message("first")]))
        await first.until_in_line(1)
        holding = group.create_task(second.hold())
        await first.until_in_line(2)
        hasty = group.create_task(backend.mailbox.send([make_message("hasty")]))
        patient = group.create_task(backend.mailbox.send([make_message("patient")]))
        await first.release()
        await holding
        await second.until_in_line(1)

        hasty.cancel()
        await asyncio.wait([hasty])
        await second.release()
        await patient

    assert hasty.cancelled()
    assert await fetch_rows(backend, "SELECT count(*) FROM commands") == [(4,)]


async def test_a_call_without_callers_ends_when_its_backend_closes(
    backend: RedisPostgresBackend, shared_postgres: PostgresServer, schema: str
) -> None:
    await backend.mailbox.send([make_message("before")])
    turnstile = Turnstile(shared_postgres, schema)
    await turnstile.hold()
    async with asyncio.TaskGroup() as group:
        hasty = group.create_task(backend.mailbox.send([make_message("hasty")]))
        await turnstile.until_in_line(1)
        hasty.cancel()
        await asyncio.wait([hasty])

        await backend.close()

    assert asyncio.all_tasks() == {asyncio.current_task()}
    await turnstile.release()


async def test_a_command_after_the_end_of_its_execution_is_marked_as_applied_and_not_sent_again(
    shared_redis: RedisServer, shared_postgres: PostgresServer
) -> None:
    async with open_archived_engine(
        shared_redis, shared_postgres, WorkHandler(), resend_s=0.1
    ) as running:
        [ended] = await running.submit_all([make_workflow(make_node("a"))])
        await running.ends([ended])
        await running.archive_all()
        signal = SendSignal(
            execution_id=ended, name="go", payload=make_inline_value(1), signal_id="s1"
        )

        await running.backend.mailbox.send([CancelExecution(execution_id=ended), signal])

        async with asyncio.timeout(DEADLINE_S):
            while await fetch_rows(
                running.backend, "SELECT 1 FROM commands WHERE applied_at IS NULL"
            ):
                pass
        resent = await fetch_rows(
            running.backend,
            "SELECT kind FROM commands WHERE sent_at > recorded_at + interval '50 ms'",
        )
    assert resent == []


LARGE = {"text": "l" * (INLINE_BYTES_MAX + 1)}


async def blobs_in_redis(backend: RedisPostgresBackend) -> list[bytes]:
    call = backend.redis.pool.call
    names: list[bytes] = await call("ZRANGE", backend.redis.keys.blobs, 0, -1)
    return [*names, *await call("KEYS", f"*{backend.redis.keys.blob}*")]


async def test_the_large_input_of_a_submission_that_postgresql_refused_is_not_kept(
    shared_redis: RedisServer, own_postgres: PostgresServer
) -> None:
    flush_server(shared_redis)
    backend = await open_archived_backend(
        shared_redis,
        own_postgres,
        RealClock(),
        RandomIdGenerator(),
        schema="runnel",
        archive_call_s=1.0,
    )
    client = StoreClient(
        backend, RealClock(), RandomIdGenerator(), get_completion=lambda _id: Completion()
    )
    await client.submit(make_workflow(make_node("a")))
    own_postgres.kill()

    with pytest.raises(StoreError, match="PostgreSQL"):
        await client.submit(make_workflow(make_node("a")), LARGE)

    assert await blobs_in_redis(backend) == []
    await backend.close()


async def test_the_large_input_of_a_submission_refused_for_a_full_journal_is_not_kept(
    backend: RedisPostgresBackend,
) -> None:
    client = StoreClient(
        backend, RealClock(), RandomIdGenerator(), get_completion=lambda _id: Completion()
    )
    lease = await backend.store.restore(await backend.store.acquire(0, "one"))
    for sequence in range(1, 801):
        await backend.store.commit(lease, Commit(sequence=sequence))

    with pytest.raises(ArchiveBehindError):
        await client.submit(make_workflow(make_node("a")), LARGE)

    assert await blobs_in_redis(backend) == []
    assert await fetch_rows(backend, "SELECT key FROM blobs") == []


async def test_without_postgresql_redis_data_can_be_read_but_no_command_is_accepted(
    shared_redis: RedisServer, own_postgres: PostgresServer
) -> None:
    work = WorkHandler()
    gate = work.gate("b")
    signal = make_node("go", handler="wait_for_signal", config={"signal": "go"})
    waits = make_workflow(make_node("a", config=LARGE), make_node("b", "a"), signal)
    async with open_archived_engine(shared_redis, own_postgres, work) as running:
        [id_] = await running.submit_all([waits])
        held = await running.client.hold(waits)
        await work.entered["b"].wait()
        await asyncio.to_thread(own_postgres.kill)
        client = running.client

        ids = [await client.find(id_), await client.find(id_[:-1]), await client.find(held)]
        view, history = await client.get(id_), await client.history(id_)
        waiting = await client.get(held)
        output = await client.values.output(id_, "a")

        for call in (client.cancel(id_), client.signal(id_, "go"), client.trigger(held, {})):
            with pytest.raises(StoreError, match="PostgreSQL"):
                await call
        gate.set()
    assert ids == [id_, id_, held]
    assert (str(view.status), str(waiting.status)) == ("RUNNING", "PENDING")
    assert output == LARGE
    assert history


async def test_a_pending_execution_can_be_read_without_postgresql(
    shared_redis: RedisServer, own_postgres: PostgresServer
) -> None:
    flush_server(shared_redis)
    backend = await open_archived_backend(
        shared_redis,
        own_postgres,
        RealClock(),
        RandomIdGenerator(),
        schema="runnel",
        archive_call_s=1.0,
    )
    client = StoreClient(
        backend, RealClock(), RandomIdGenerator(), get_completion=lambda _id: Completion()
    )
    id_ = await client.submit(make_workflow(make_node("a")))
    await asyncio.to_thread(own_postgres.kill)

    view = await client.get(await client.find(id_))

    assert str(view.status) == "PENDING"
    with pytest.raises(StoreError, match="PostgreSQL"):
        await client.find("nobody")
    await backend.close()


async def test_two_callers_that_create_the_same_executions_in_another_order_do_not_deadlock(
    backend: RedisPostgresBackend, shared_postgres: PostgresServer, schema: str
) -> None:
    """A third caller holds both in the middle, when each has created one of them."""
    ledger, looking = PostgresLedger(backend.database), await asyncpg.connect(shared_postgres.url)
    create = CreateExecution(
        execution_id=ExecutionId("b"),
        workflow="w",
        definition=DefinitionHash("d"),
        version=1,
        created_at=1.0,
    )
    creations = [
        (0, msgspec.structs.replace(create, execution_id=execution_id)) for execution_id in "abc"
    ]
    async with (
        asyncio.timeout(DEADLINE_S),
        asyncio.TaskGroup() as group,
        backend.database.transaction() as connection,
    ):
        await connection.execute(SQL["record"], *build_record_values([(0, create)]))
        for number, commands in enumerate([creations, creations[::-1]], start=1):
            group.create_task(ledger.record(commands))
            while await looking.fetchval(WAITING, schema) < number:
                """It waits for the third, or for the first."""

    await looking.close()
    assert await fetch_rows(backend, "SELECT count(*) FROM commands") == [(7,)]
