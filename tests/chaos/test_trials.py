"""Faults that a deployment of real processes has to survive within a bound, not only in the end."""

import asyncio
from collections import Counter
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager, suppress
from typing import Any

import pytest

from runnel.app.private_servers.postgres import PostgresServer
from runnel.app.private_servers.redis import RedisServer
from runnel.app.stores import StoreSession
from runnel.authoring.documents import read_document
from runnel.backends.redis.keys import PARTITIONS_DEFAULT
from runnel.backends.redis_postgres.backend import RedisPostgresBackend
from runnel.core.ids import ExecutionId
from runnel.core.states import FINAL_EXECUTION_STATES
from runnel.errors import StoreError
from runnel.ports.store import LeaseRecord, Store
from runnel.views.execution import ExecutionView
from tests.chaos.faults import CLOCK, ChaosDeployment
from tests.chaos.run import ChaosPlan, open_deployment
from tests.conftest import MissingPart
from tests.servers import require_binary
from tests.waiting import wait_for_value

pytestmark = [pytest.mark.slow, pytest.mark.timeout(150)]

DEADLINE_S = 100.0
POLL_S = 0.1


@pytest.fixture(autouse=True)
def servers(missing_part: MissingPart) -> None:
    require_binary(RedisServer, missing_part)
    require_binary(PostgresServer, missing_part)


def make_python_node(name: str, function: str, *parents: str) -> dict[str, Any]:
    config = {"function": f"tests.chaos.functions:{function}"}
    return {"id": name, "handler": "python", "config": config, "dependencies": list(parents)}


@asynccontextmanager
async def supervised(scene: ChaosDeployment) -> AsyncIterator[None]:
    """Restarts processes that end, until the block ends."""

    async def supervise() -> None:
        while True:
            scene.fleet.supervise()
            await CLOCK.sleep(POLL_S)

    supervisor = asyncio.create_task(supervise())
    try:
        yield
    finally:
        supervisor.cancel()


async def wait_for_end(session: StoreSession, execution_id: ExecutionId) -> ExecutionView:
    async def read() -> ExecutionView | None:
        with suppress(StoreError):  # the server is down
            view = await session.client.get(execution_id)
            return view if view.status in FINAL_EXECUTION_STATES else None
        return None

    return await wait_for_value(read, every_s=POLL_S, deadline_s=DEADLINE_S)


# -- six tasks that kill their process, beside 93 that do not -------------------------------------

CRASH_LIMIT = 3
BLAMED = f"{CRASH_LIMIT + 1} processes died while they held this task and no other task"


async def test_no_innocent_task_fails_beside_six_tasks_that_kill_their_worker() -> None:
    innocents = [make_python_node(f"innocent{number}", "linger") for number in range(93)]
    poisons = [make_python_node(f"poison{number}", "die") for number in range(6)]
    nodes = [*innocents]
    for number, poison in enumerate(poisons):
        nodes.insert(34 * (number // 2), poison)
    workflow = read_document({"name": "poisoned", "on_failure": "continue", "nodes": nodes})
    plan = ChaosPlan(
        seed=0, executions=1, troubles=(), orchestrators=1, workers=1, concurrency=12, lease_s=0.6
    )

    opened = open_deployment(plan, RUNNEL_CRASH_LOOP_LIMIT=str(CRASH_LIMIT))
    async with opened as (scene, session), supervised(scene):
        ended = await wait_for_end(session, await session.client.submit(workflow))

    assert {name: str(node.status) for name, node in ended.nodes.items()} == {
        **{node["id"]: "COMPLETED" for node in innocents},
        **{node["id"]: "FAILED" for node in poisons},
    }
    for poison in poisons:
        assert BLAMED in str(ended.nodes[poison["id"]].error)


# -- a Redis that is rolled back while PostgreSQL is down -----------------------------------------

EXECUTIONS = 100
HEARTBEATS = 15
CHAIN = read_document(
    {
        "name": "noted",
        "nodes": [
            make_python_node("a", "note_run"),
            make_python_node("b", "note_run", "a"),
            make_python_node("c", "note_run", "b"),
        ],
    }
)


async def test_a_rolled_back_redis_repeats_no_task_of_ended_executions() -> None:
    plan = ChaosPlan(seed=0, executions=EXECUTIONS, troubles=(), lease_s=1.5)
    async with open_deployment(plan) as (scene, session):
        backend = session.backend
        assert isinstance(backend, RedisPostgresBackend)
        assert scene.postgres is not None
        ids = await asyncio.gather(*[session.client.submit(CHAIN) for _ in range(EXECUTIONS)])
        await wait_for_value(
            lambda: has_run(scene, EXECUTIONS // 2), every_s=POLL_S, deadline_s=DEADLINE_S
        )
        older = await asyncio.to_thread(scene.redis.save_aof)
        for execution_id in ids:
            await wait_for_end(session, execution_id)
        await wait_for_value(lambda: is_archived(backend), every_s=POLL_S, deadline_s=DEADLINE_S)
        finished = count_runs(scene)

        await asyncio.to_thread(scene.postgres.stop)
        await asyncio.to_thread(scene.redis.restore_aof, older)
        await wait_for_heartbeats(backend)
        repeated_without_postgresql = count_runs(scene) - finished
        await asyncio.to_thread(scene.postgres.start)
        later = await submit_when_possible(session)
        await wait_for_end(session, later)

        assert finished == Counter(f"{id_}/{node}" for id_ in ids for node in "abc")
        assert repeated_without_postgresql == Counter()
        assert count_runs(scene) - finished == Counter(f"{later}/{node}" for node in "abc")
        assert scene.fleet.find_logs("Traceback") == []


def count_runs(scene: ChaosDeployment) -> Counter[str]:
    """Returns how often the code of each node ran, by execution and node."""
    notes = scene.notes / "runs"
    lines = notes.read_text().splitlines() if notes.exists() else []
    return Counter("/".join(line.split("/")[:2]) for line in lines)


async def has_run(scene: ChaosDeployment, count: int) -> bool | None:
    return count_runs(scene).total() >= count or None


async def is_archived(backend: RedisPostgresBackend) -> bool | None:
    lengths = [
        await backend.journal.length(partition) for partition in await backend.store.partitions()
    ]
    return sum(lengths) == 0 or None


async def wait_for_heartbeats(backend: RedisPostgresBackend) -> None:
    """Waits until each process has had the time to claim tasks from the current server."""
    pool, key = backend.redis.pool, backend.redis.keys.heartbeat_counter

    async def read() -> int | None:
        with suppress(StoreError):  # the server is starting
            return int(await pool.call("GET", key) or 0)
        return None

    first = await wait_for_value(read, every_s=POLL_S, deadline_s=DEADLINE_S)

    async def has_passed() -> bool | None:
        return (await read() or 0) >= first + HEARTBEATS or None

    await wait_for_value(has_passed, every_s=POLL_S, deadline_s=DEADLINE_S)


async def submit_when_possible(session: StoreSession) -> ExecutionId:
    async def submit() -> ExecutionId | None:
        with suppress(StoreError):  # PostgreSQL is starting
            return await session.client.submit(CHAIN)
        return None

    return await wait_for_value(submit, every_s=POLL_S, deadline_s=DEADLINE_S)


# -- an orchestrator that dies again and again ----------------------------------------------------

CRASHES = 4
LEASE_S = 2.0
# Long enough to acquire partitions that another orchestrator releases.
LIFE_S = 0.6 * LEASE_S
# A dead owner is detected within a lease. Half a lease is left for the new owner's first renewal.
TAKEOVER_S_MAX = 1.5 * LEASE_S
SAMPLE_S = 0.05


async def test_a_crash_looping_orchestrator_leaves_no_partition_without_an_owner() -> None:
    plan = ChaosPlan(seed=0, executions=0, troubles=(), workers=1, lease_s=LEASE_S)
    async with open_deployment(plan) as (scene, session):
        backend, store = session.backend, session.backend.store
        assert isinstance(backend, RedisPostgresBackend)
        await wait_for_value(lambda: is_owned(store), every_s=POLL_S, deadline_s=DEADLINE_S)
        stop = asyncio.Event()
        measuring = asyncio.create_task(measure_silences(store, stop))
        for _ in range(CRASHES):
            known = await list_orchestrators(backend)
            await asyncio.to_thread(scene.fleet.replace, "orchestrator-1")
            await wait_for_orchestrator(backend, known)
            await CLOCK.sleep(LIFE_S)
        stop.set()
        silences = await measuring

    assert len(silences) == PARTITIONS_DEFAULT
    assert max(silences.values()) <= TAKEOVER_S_MAX, silences


async def is_owned(store: Store) -> bool | None:
    leases = [await store.observe(partition) for partition in await store.partitions()]
    return None not in leases or None


async def list_orchestrators(backend: RedisPostgresBackend) -> set[bytes]:
    redis = backend.redis
    return set(await redis.pool.call("HKEYS", redis.keys.orchestrators))


async def wait_for_orchestrator(backend: RedisPostgresBackend, known: set[bytes]) -> None:
    """Waits for the first heartbeat of an orchestrator that is not known yet."""

    async def has_started() -> bool | None:
        return bool(await list_orchestrators(backend) - known) or None

    await wait_for_value(has_started, every_s=POLL_S, deadline_s=DEADLINE_S)


async def measure_silences(store: Store, stop: asyncio.Event) -> Mapping[int, float]:
    """Returns for each partition the longest time in which no owner renewed its lease."""
    partitions = await store.partitions()
    last: dict[int, tuple[LeaseRecord | None, float]] = {}
    longest: dict[int, float] = dict.fromkeys(partitions, 0.0)
    while not await CLOCK.wait(stop, SAMPLE_S):
        leases = await asyncio.gather(*[store.observe(partition) for partition in partitions])
        now = CLOCK.monotonic()
        for partition, lease in zip(partitions, leases, strict=True):
            if partition not in last or (lease is not None and last[partition][0] != lease):
                last[partition] = (lease, now)
            longest[partition] = max(longest[partition], now - last[partition][1])
    return longest
