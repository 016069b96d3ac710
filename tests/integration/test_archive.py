"""Every execution that ran on Redis is archived in PostgreSQL completely, once and unchanged."""

from collections import Counter
from collections.abc import AsyncIterator

import pytest

from runnel.app.private_servers.postgres import PostgresServer
from runnel.app.private_servers.redis import RedisServer
from runnel.core.ids import NO_ITEM, ExecutionId
from runnel.core.retry import RetryPolicy
from runnel.core.states import NodeState
from runnel.core.workflow import OnFailure, Workflow
from runnel.ports.archive import ExecutionFilter
from tests.core_driver import make_node, make_workflow
from tests.engines import WorkHandler
from tests.redis_postgres import ArchivedEngine, fetch_rows, open_archived_engine

QUICK = RetryPolicy(max_retries=2, initial_delay=0.01, jitter=False)
CHILD = make_workflow(make_node("x"), make_node("y", "x"))
LARGE = "l" * 300_000

MIXED: list[Workflow] = [
    make_workflow(make_node("a"), make_node("b", "a"), make_node("c", "b")),
    make_workflow(
        make_node("a"), make_node("b", "a"), make_node("c", "a"), make_node("d", "b", "c")
    ),
    make_workflow(
        make_node("a"), make_node("m", "a", for_each="input.items", config={"v": "{{ item }}"})
    ),
    make_workflow(make_node("a"), make_node("broken", "a"), make_node("c", "broken")),
    make_workflow(
        make_node("a"),
        make_node("broken", "a"),
        make_node("c", "a"),
        on_failure=OnFailure.CONTINUE,
    ),
    make_workflow(make_node("flaky", retry=QUICK), make_node("b", "flaky")),
    make_workflow(make_node("a"), make_node("w", "a", handler="workflow", child=CHILD)),
    make_workflow(make_node("k", concurrency_key="one", concurrency_limit=1)),
]


@pytest.fixture
def work() -> WorkHandler:
    return WorkHandler()


@pytest.fixture
async def running(
    shared_redis: RedisServer, shared_postgres: PostgresServer, work: WorkHandler
) -> AsyncIterator[ArchivedEngine]:
    async with open_archived_engine(shared_redis, shared_postgres, work) as opened:
        yield opened


async def test_the_archive_has_every_commit_of_redis_exactly_once(
    running: ArchivedEngine, work: WorkHandler
) -> None:
    work.failures["broken"] = [ValueError("no")] * 60
    work.failures["flaky"] = [RuntimeError("again")] * 20
    ids = await running.submit_all(MIXED * 25)

    states = Counter(await running.ends(ids))
    await running.archive_all()

    assert states == {"COMPLETED": 150, "FAILED": 50}
    await check_headers(running, count=len(ids) + 25)
    await check_log(running)
    for execution_id in ids:
        await check_nodes(running, execution_id)
    assert await fetch_rows(
        running.backend, "SELECT count(*) FROM commands WHERE applied_at IS NULL"
    ) == [(0,)]
    assert await fetch_rows(running.backend, "SELECT count(*) FROM limit_log") == [(0,)]


async def check_headers(running: ArchivedEngine, *, count: int) -> None:
    criteria = ExecutionFilter(with_children=True, limit=1_000)
    archived = await running.backend.archive.list_headers(criteria)
    kept = [
        await running.backend.redis.archive.get_header(header.execution_id) for header in archived
    ]

    assert len(archived.headers) == count
    assert kept == list(archived)


async def check_log(running: ArchivedEngine) -> None:
    """Checks that every history equals that of Redis, and that no commit of a partition is
    missing.
    """
    rows = await fetch_rows(
        running.backend, "SELECT aggregate_id, entry FROM audit_log ORDER BY sequence, ordinal"
    )
    histories: dict[str, list[bytes]] = {}
    for aggregate_id, entry in rows:
        histories.setdefault(aggregate_id, []).append(entry)
    for execution_id, entries in histories.items():
        assert entries == list(await running.backend.store.load(execution_id))
    for number in await running.backend.store.partitions():
        cursor = await running.backend.ledger.cursor(number)
        assert await running.backend.journal.length(number) == 0
        key = f"{running.backend.redis.keys.partition}{number}"
        sequence = await running.backend.redis.pool.call("HGET", key, "sequence")
        assert cursor.sequence == int(sequence or 0)


async def check_nodes(running: ArchivedEngine, execution_id: ExecutionId) -> None:
    """Checks that each node row equals the state of the replayed execution."""
    execution = await running.client.load(execution_id)
    archived = {
        (node_id, item): (state, attempts, started_at, finished_at, error)
        for node_id, item, state, attempts, started_at, finished_at, error in await fetch_rows(
            running.backend,
            "SELECT node_id, item, state, attempts, started_at, finished_at, error "
            "FROM node_executions WHERE execution_id = $1",
            execution_id,
        )
    }
    for compiled, run in zip(execution.graph.nodes, execution.nodes, strict=True):
        if run.state is NodeState.CANCELLED and not run.attempt:
            continue  # it never started
        state, attempts, started_at, finished_at, error = archived[compiled.node.id, NO_ITEM]
        assert (state, attempts) == (run.state, run.attempt)
        assert (started_at, finished_at) == (run.started_at, run.finished_at)
        if run.state is NodeState.FAILED:
            assert error == str(run.error)
        if compiled.index in execution.maps:
            items = [item for node_id, item in archived if node_id == compiled.node.id]
            assert sorted(items) == [NO_ITEM, 0, 1, 2, 3]
