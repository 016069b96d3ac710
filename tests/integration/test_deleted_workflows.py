"""Workflows are deleted by name. Their executions and concurrent submits lose nothing."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path

import pytest

from runnel.app.embedded_engine import EmbeddedEngine
from runnel.backends.memory import MemoryBackend
from runnel.client.definitions import VERSION_KNOWN_S
from runnel.client.reruns import RerunSpec
from runnel.client.store_client import StoreClient
from runnel.core.commands import Command
from runnel.core.ids import ExecutionId
from runnel.core.workflow import Workflow
from runnel.errors import NotFoundError, WrongStateError
from runnel.notify.waiter import Completion
from runnel.ports.archive import ExecutionFilter
from runnel.ports.store import NO_BLOBS
from runnel.testing.clock import FakeClock, FakeIds
from tests.core_driver import make_node
from tests.engines import WorkHandler, flush_redis, open_engine, run_to_end, wait_for_end

FLOW = Workflow(name="flow", nodes=(make_node("a", handler="work", config={"n": 1}),))
CHANGED = Workflow(name="flow", nodes=(make_node("a", handler="work", config={"n": 2}),))


@pytest.fixture
def work() -> WorkHandler:
    return WorkHandler()


@pytest.fixture(params=["memory", "sqlite", "redis"])
async def engine(
    request: pytest.FixtureRequest, tmp_path: Path, work: WorkHandler
) -> AsyncIterator[EmbeddedEngine]:
    url = flush_redis(request) if request.param == "redis" else None
    async with open_engine(request.param, tmp_path, work, redis_url=url) as opened:
        yield opened


async def list_versions(client: StoreClient, name: str = "flow") -> list[int]:
    try:
        return [stored.version for stored in await client.library.versions(name)]
    except NotFoundError:
        return []


async def test_the_executions_of_a_deleted_workflow_remain(engine: EmbeddedEngine) -> None:
    first = await run_to_end(engine, FLOW)
    await run_to_end(engine, CHANGED)

    deleted = await engine.client.library.delete("flow")

    assert deleted == 2
    assert await list_versions(engine.client) == []
    assert [workflow.name for workflow in await engine.client.library.list()] == []
    assert await engine.client.get(ExecutionId(first.execution_id)) == first
    with pytest.raises(NotFoundError):
        await engine.client.library.delete("flow")
    with pytest.raises(NotFoundError):
        await engine.client.rerun(ExecutionId(first.execution_id), RerunSpec(is_newest=True))


async def test_a_workflow_stored_after_its_deletion_gets_the_next_version(
    engine: EmbeddedEngine,
) -> None:
    await run_to_end(engine, FLOW)
    await engine.client.library.delete("flow")

    again = await run_to_end(engine, FLOW)
    changed = await engine.client.library.store(CHANGED)

    assert (again.version, again.status, changed.version) == (2, "COMPLETED", 3)
    assert await list_versions(engine.client) == [3, 2]


async def test_a_deletion_is_refused_while_executions_are_not_final(
    engine: EmbeddedEngine, work: WorkHandler
) -> None:
    gate = work.gate("a")
    ids = [await engine.client.submit(FLOW) for _ in range(2)]
    held = await engine.client.hold(CHANGED)

    with pytest.raises(WrongStateError, match="3 executions are not final"):
        await engine.client.library.delete("flow")

    assert await list_versions(engine.client) == [2, 1]
    gate.set()
    for id_ in ids:
        await wait_for_end(engine, id_)
    with pytest.raises(WrongStateError, match="1 execution is not final"):
        await engine.client.library.delete("flow")
    await engine.client.cancel(held)
    await wait_for_end(engine, held)
    assert await engine.client.library.delete("flow") == 2


class InterruptedStore(MemoryBackend):
    """A store that calls `before` once, just before it stores a command or deletes versions."""

    def __init__(self, clock: FakeClock) -> None:
        super().__init__(clock, FakeIds("store"))
        self.before: Callable[[], Awaitable[object]] | None = None
        self._send = self.mailbox.send
        self._delete = self.archive.delete_versions
        self.mailbox.send = self.send  # type: ignore[method-assign]  # calls `before` first
        self.archive.delete_versions = self.delete  # type: ignore[method-assign]  # as above

    async def send(
        self,
        commands: Sequence[Command],
        *,
        blobs: Mapping[str, bytes] = NO_BLOBS,
        requires_definition: bool = False,
    ) -> None:
        await self._call_before()
        await self._send(commands, blobs=blobs, requires_definition=requires_definition)

    async def delete(self, name: str) -> int:
        await self._call_before()
        return await self._delete(name)

    async def _call_before(self) -> None:
        before, self.before = self.before, None
        if before is not None:
            await before()


def make_client(store: InterruptedStore, clock: FakeClock, ids: str) -> StoreClient:
    return StoreClient(
        store, clock, FakeIds(ids), get_completion=lambda _execution_id: Completion()
    )


async def check_readable(client: StoreClient, execution_id: ExecutionId, flow: Workflow) -> None:
    execution = await client.load(execution_id)
    assert (execution.id, execution.graph.workflow) == (execution_id, flow)


async def test_a_submit_during_a_deletion_creates_the_next_version() -> None:
    clock = FakeClock()
    store = InterruptedStore(clock)
    client = make_client(store, clock, "one")
    await client.library.store(FLOW)
    store.before = lambda: client.library.delete("flow")

    execution_id = await client.submit(FLOW)

    assert await list_versions(client) == [2]
    await check_readable(client, execution_id, FLOW)


async def test_a_run_by_name_does_not_restore_a_concurrently_deleted_workflow() -> None:
    clock = FakeClock()
    store = InterruptedStore(clock)
    client = make_client(store, clock, "one")
    await client.library.store(FLOW)
    stored = await client.library.find("flow")
    store.before = lambda: client.library.delete("flow")

    with pytest.raises(NotFoundError, match="no version 1 of workflow 'flow'"):
        await client.create_execution(stored.graph.workflow, version=stored.version)

    assert await list_versions(client) == []
    assert not (await client.list_executions(ExecutionFilter())).items


async def test_a_submit_of_another_process_during_a_deletion_creates_the_next_version() -> None:
    clock = FakeClock()
    store = InterruptedStore(clock)
    client, other = (make_client(store, clock, prefix) for prefix in ("one", "two"))
    for workflow in (FLOW, CHANGED):
        await client.library.store(workflow)
    await other.library.store(FLOW)
    ids: list[ExecutionId] = []

    async def submit() -> None:
        ids.append(await other.submit(FLOW))

    store.before = submit

    deleted = await client.library.delete("flow")

    assert (deleted, await list_versions(client)) == (2, [3])
    await check_readable(client, ids[0], FLOW)


async def test_a_process_with_a_cached_version_stores_the_workflow_again_later() -> None:
    clock = FakeClock()
    store = InterruptedStore(clock)
    client, other = (make_client(store, clock, prefix) for prefix in ("one", "two"))
    await other.library.store(FLOW)
    await client.library.delete("flow")

    early = await other.submit(FLOW)
    await clock.advance(VERSION_KNOWN_S)
    hidden = await list_versions(client)
    late = await other.submit(FLOW)

    assert (hidden, await list_versions(client)) == ([], [2])
    for execution_id in (early, late):
        await check_readable(client, execution_id, FLOW)


async def test_concurrent_runs_by_name_and_deletions_are_atomic(
    engine: EmbeddedEngine,
) -> None:
    """A started execution runs to its end, and a refused run leaves nothing in the store."""
    client = engine.client
    await client.library.store(FLOW)

    async def run() -> ExecutionId | None:
        try:
            stored = await client.library.find("flow")
            started = await client.create_execution(stored.graph.workflow, version=stored.version)
        except NotFoundError:
            return None
        return started.execution_id

    async def delete() -> None:
        with suppress(WrongStateError, NotFoundError):
            await client.library.delete("flow")

    async with asyncio.TaskGroup() as group:
        runs = [group.create_task(run()) for _ in range(10)]
        group.create_task(delete())
        runs += [group.create_task(run()) for _ in range(10)]

    started = {run_task.result() for run_task in runs} - {None}
    for execution_id in started:
        assert (await wait_for_end(engine, ExecutionId(str(execution_id)))).status == "COMPLETED"
    listed = await client.list_executions(ExecutionFilter())
    assert {header.execution_id for header in listed} == started


async def test_concurrent_submits_and_deletions_lose_no_execution(engine: EmbeddedEngine) -> None:
    async def submit() -> ExecutionId:
        return await engine.client.submit(FLOW)

    async def delete() -> None:
        for _ in range(5):
            try:
                await engine.client.library.delete("flow")
            except (WrongStateError, NotFoundError):
                await asyncio.sleep(0)

    async with asyncio.TaskGroup() as group:
        tasks = [group.create_task(submit()) for _ in range(30)]
        deletions = [group.create_task(delete()) for _ in range(3)]

    views = [await wait_for_end(engine, task.result()) for task in tasks]
    assert {view.status for view in views} == {"COMPLETED"}
    assert all(deletion.done() for deletion in deletions)
    last = await engine.client.submit(FLOW)
    await wait_for_end(engine, last)
    assert len(await list_versions(engine.client)) == 1
