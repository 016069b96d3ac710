"""Two engines on a Redis and a PostgreSQL with faults in random order."""

import asyncio
import os
from collections import Counter
from contextlib import AsyncExitStack
from random import Random

import pytest

from runnel.app.private_servers.postgres import PostgresServer
from runnel.app.private_servers.redis import RedisServer
from runnel.core.codec import decode_entry
from runnel.core.events import (
    ExecutionFinished,
    NodeCancelled,
    NodeCompleted,
    NodeFailed,
    NodeSkipped,
)
from runnel.core.ids import ExecutionId
from runnel.errors import StoreError
from tests.core_driver import make_node, make_workflow
from tests.engines import WorkHandler
from tests.integration.test_archive import MIXED
from tests.redis_postgres import ArchivedEngine, fetch_rows, make_schema_name, open_archived_engine

# RUNNEL_CHAOS="seed rounds" for a longer run.
SEED, ROUNDS = map(int, os.environ.get("RUNNEL_CHAOS", "1 6").split())
EXECUTIONS = 12
ENDS = (ExecutionFinished, NodeCompleted, NodeFailed, NodeSkipped, NodeCancelled)
# Its outputs are offloaded to blobs, and read by the next nodes.
LARGE = make_workflow(
    make_node("a", config={"text": "l" * 300_000}), make_node("b", "a"), make_node("c", "b")
)


class Accidents:
    """Faults of the servers; engines continue during each of them."""

    def __init__(self, redis: RedisServer, postgres: PostgresServer, chance: Random) -> None:
        self._redis = redis
        self._postgres = postgres
        self._chance = chance
        self._copy = redis.save_aof()

    def happen(self) -> str:
        name = self._chance.choice(
            ["wiped", "set_back", "saved", "redis_restarted", "redis_killed", "postgres_killed"]
        )
        getattr(self, name)()
        return name

    def wiped(self) -> None:
        self._redis.wipe()

    def set_back(self) -> None:
        self._redis.restore_aof(self._copy)

    def saved(self) -> None:
        self._copy = self._redis.save_aof()

    def redis_restarted(self) -> None:
        self._redis.restart()

    def redis_killed(self) -> None:
        self._redis.kill()
        self._redis.start()

    def postgres_killed(self) -> None:
        self._postgres.kill()
        self._postgres.start()


@pytest.mark.slow
@pytest.mark.timeout(600)
async def test_every_execution_ends_exactly_once_despite_random_server_faults(
    own_redis: RedisServer, own_postgres: PostgresServer
) -> None:
    chance = Random(SEED)
    work = WorkHandler()
    work.failures["broken"] = [ValueError("no")] * 10_000
    ids: list[ExecutionId] = []
    happened: list[str] = []
    schema = make_schema_name()
    async with AsyncExitStack() as stack:
        engines = [
            await stack.enter_async_context(
                open_archived_engine(own_redis, own_postgres, work, schema=schema, keep_s=0.5)
            )
            for _ in range(2)
        ]
        accidents = Accidents(own_redis, own_postgres, chance)
        for _ in range(ROUNDS):
            ids += await submit_some(chance.choice(engines), chance)
            happened.append(await asyncio.to_thread(accidents.happen))
        await asyncio.to_thread(own_postgres.start)
        final = await ends_of(engines[0], ids)

        await engines[0].archive_all()
        settled = await settlements(engines[0])
        views = [await engines[0].client.get(execution_id) for execution_id in ids]

    assert len(final) == len(ids) > ROUNDS, happened
    assert {settled[id_, "", None] for id_ in ids} == {1}, happened
    assert set(settled.values()) == {1}, happened
    assert {view.execution_id: str(view.status) for view in views} == final


async def submit_some(running: ArchivedEngine, chance: Random) -> list[ExecutionId]:
    """Submits some executions; a refused one was not promised."""
    workflows = [chance.choice([*MIXED, LARGE]) for _ in range(EXECUTIONS)]
    submissions = [
        running.client.submit(workflow, {"items": [1, 2, 3, 4]}) for workflow in workflows
    ]
    answers = await asyncio.gather(*submissions, return_exceptions=True)
    problems = [answer for answer in answers if isinstance(answer, Exception)]
    assert all(isinstance(answer, StoreError) for answer in problems)
    return [ExecutionId(answer) for answer in answers if isinstance(answer, str)]


async def ends_of(running: ArchivedEngine, ids: list[ExecutionId]) -> dict[str, str]:
    """Returns the end of each execution in the archive; no more faults happen by then."""
    final: dict[str, str] = {}
    async with asyncio.timeout(120):
        while len(final) < len(ids):
            rows = await fetch_rows(
                running.backend,
                "SELECT id, state FROM executions WHERE finished_at IS NOT NULL AND id = ANY ($1)",
                ids,
            )
            final = dict(rows)
    return final


async def settlements(running: ArchivedEngine) -> Counter[tuple[object, ...]]:
    """Counts how often each execution, node and item ended, from the audit log."""
    rows = await fetch_rows(running.backend, "SELECT aggregate_id, entry FROM audit_log")
    return Counter(
        (id_, getattr(event, "node", ""), getattr(event, "item", None))
        for id_, entry in rows
        for event in decode_entry(entry).events
        if isinstance(event, ENDS)
    )
