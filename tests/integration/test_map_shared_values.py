"""Values that all items of a map share are stored once, so the tasks stay small."""

import asyncio
from pathlib import Path
from typing import Any

import pytest

from runnel.app.private_servers.postgres import PostgresServer
from runnel.app.private_servers.redis import RedisServer
from runnel.backends.redis_postgres.backend import RedisPostgresBackend
from runnel.client.reruns import RerunSpec
from runnel.core.codec import decode_entry
from runnel.core.events import MapStarted
from runnel.core.ids import ExecutionId
from runnel.core.retry import RetryPolicy
from runnel.core.states import ExecutionState
from runnel.core.values import SHARED_BYTES_MAX
from runnel.errors import NotFoundError
from runnel.ports import Backend
from runnel.ports.records import BlobStore
from tests.core_driver import make_node, make_workflow
from tests.engines import DEADLINE_S, WorkHandler, open_engine, wait_for_end
from tests.redis_postgres import fetch_rows, open_archived_engine

ITEMS = 20_000
TASK_BYTES_MAX = 700
TEXT = "t" * SHARED_BYTES_MAX
ONCE = RetryPolicy(max_retries=0)
EACH = {"n": "{{ item }}", "size": "{{ input.text | length }}"}
MAP = make_workflow(
    make_node("each", for_each="input.items", config=EACH, retry=ONCE), output="{{ each }}"
)


def make_input(count: int) -> dict[str, Any]:
    return {"items": list(range(count)), "text": TEXT}


def expected_output(count: int) -> list[dict[str, int]]:
    return [{"n": number, "size": len(TEXT)} for number in range(count)]


async def read_unclaimed_tasks(backend: RedisPostgresBackend) -> list[bytes]:
    """Returns the encoded unclaimed tasks from Redis."""
    call, keys = backend.redis.pool.call, backend.redis.keys
    tasks: list[bytes] = []
    for lane in await call("KEYS", f"{keys.lanes}*"):
        tasks += await call("ZRANGE", lane, 0, -1)
    return tasks


@pytest.mark.slow
@pytest.mark.timeout(240)
async def test_the_tasks_of_a_map_of_20_000_items_do_not_carry_its_list(
    shared_redis: RedisServer, shared_postgres: PostgresServer
) -> None:
    work = WorkHandler()
    gate = work.gate("each")
    definition = make_workflow(
        make_node("each", for_each="input.items", config={"n": "{{ item }}"})
    )
    async with open_archived_engine(
        shared_redis, shared_postgres, work, journal_entries_max=100_000
    ) as running:
        execution_id = await running.client.submit(definition, make_input(ITEMS))
        await work.entered["each"].wait()
        waiting = await read_unclaimed_tasks(running.backend)
        gate.set()

        view = await wait_for_end(running.engine, execution_id)

    assert len(waiting) > 100
    assert max(map(len, waiting)) < TASK_BYTES_MAX
    assert view.output == [{"n": number} for number in range(ITEMS)]


async def test_the_shared_values_of_a_map_are_deleted_with_its_execution(
    shared_redis: RedisServer, shared_postgres: PostgresServer
) -> None:
    async with open_archived_engine(
        shared_redis, shared_postgres, WorkHandler(), keep_s=0.0
    ) as running:
        execution_id = await running.client.submit(MAP, make_input(100))
        await wait_for_end(running.engine, execution_id)
        await running.archive_all()
        backend, key = running.backend, await find_shared_key(running.backend, execution_id)
        in_archive = "SELECT count(*) FROM blobs WHERE key = $1"
        before = await fetch_rows(backend, in_archive, key)

        await backend.retention.delete_finished(ExecutionState.COMPLETED, before=1e10, limit=10)

        async with asyncio.timeout(DEADLINE_S):
            while await is_stored(backend.hot_blobs, key):
                pass
        assert before == [(1,)]
        assert await fetch_rows(backend, in_archive, key) == [(0,)]


async def test_the_shared_values_of_a_map_are_restored_to_a_wiped_redis(
    own_redis: RedisServer, shared_postgres: PostgresServer
) -> None:
    work = WorkHandler()
    gate = work.gate("each")
    async with open_archived_engine(own_redis, shared_postgres, work) as running:
        execution_id = await running.client.submit(MAP, make_input(200))
        await work.entered["each"].wait()
        await running.archive_all()

        await asyncio.to_thread(own_redis.wipe)
        gate.set()

        view = await wait_for_end(running.engine, execution_id)
        key = await find_shared_key(running.backend, execution_id)
        shared = await running.backend.hot_blobs.get(key)
    assert view.output == expected_output(200)
    assert len(shared) > SHARED_BYTES_MAX


@pytest.mark.parametrize("kind", ["sqlite", "redis"])
async def test_a_map_resumes_after_a_restart_and_a_rerun_has_its_own_shared_values(
    kind: str, redis_url: str | None, tmp_path: Path
) -> None:
    work = WorkHandler()
    gate = work.gate("each")
    async with open_engine(kind, tmp_path, work, redis_url=redis_url, lease_s=1.0) as engine:
        execution_id = await engine.client.submit(MAP, make_input(100))
        await work.entered["each"].wait()

    gate.set()
    work.failures["each"] = [*[None] * 30, ValueError("no")]
    async with open_engine(
        kind, tmp_path, work, redis_url=redis_url, lease_s=1.0, adopts=True
    ) as engine:
        assert (await wait_for_end(engine, execution_id)).status == "FAILED"
        again = await engine.client.rerun(execution_id, RerunSpec(is_newest=True))
        view = await wait_for_end(engine, again)
        keys = [await find_shared_key(engine.backend, id_) for id_ in (execution_id, again)]
        stored = [await is_stored(engine.backend.blobs, key) for key in keys]

    assert view.output == expected_output(100)
    assert stored == [kind == "redis"] * 2


async def find_shared_key(backend: Backend, execution_id: ExecutionId) -> str:
    """Returns the blob key of the input that the map shares, or an empty text."""
    entries = await backend.archive.load(execution_id)
    events = [event for entry in entries for event in decode_entry(entry).events]
    [started] = [event for event in events if isinstance(event, MapStarted)]
    shared = started.shared.get("input")
    return "" if shared is None or shared.blob is None else shared.blob


async def is_stored(blobs: BlobStore, key: str) -> bool:
    try:
        return len(await blobs.get(key)) > SHARED_BYTES_MAX
    except NotFoundError:
        return False
