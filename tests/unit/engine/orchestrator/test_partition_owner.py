"""One partition owner and its batches."""

import asyncio

import msgspec
import pytest

from runnel.core.commands import CancelExecution
from runnel.core.ids import ExecutionId
from runnel.core.values import SHARED_BYTES_MAX
from runnel.core.workflow import EnginePolicy
from runnel.engine.orchestrator import partition_owner as owner_module
from runnel.errors import StoreError
from runnel.ports.store import Commit, CommitLimits, Lease
from runnel.testing.clock import settle
from tests.core_driver import make_node, make_workflow
from tests.unit.engine.orchestrator.orchestrator_harness import OrchestratorHarness

NAP = make_workflow(make_node("nap", handler="sleep", config={"seconds": 60}))


async def test_a_halted_owner_reads_nothing_more() -> None:
    stage = OrchestratorHarness()
    owner = await stage.owner()
    execution_id = await stage.create(NAP)

    owner.halt()
    await owner.run()

    assert (await stage.header(execution_id)).state == "PENDING"


async def test_a_cancelled_owner_ends_and_is_not_just_woken() -> None:
    stage = OrchestratorHarness()
    owner = await stage.owner()

    async with asyncio.TaskGroup() as group:
        running = group.create_task(owner.run())
        await settle()
        running.cancel()

    assert running.cancelled()


@pytest.mark.parametrize("times", [1, 2, 3])
async def test_an_owner_that_is_halted_repeatedly_ends_in_order(times: int) -> None:
    owner = await OrchestratorHarness().owner()

    async with asyncio.TaskGroup() as group:
        running = group.create_task(owner.run())
        await settle()
        for _ in range(times):
            owner.halt()

    assert not running.cancelled()
    assert running.cancelling() == 0


async def test_a_halted_owner_can_still_be_cancelled() -> None:
    owner = await OrchestratorHarness().owner()

    async with asyncio.TaskGroup() as group:
        running = group.create_task(owner.run())
        await settle()
        owner.halt()
        running.cancel()
        owner.halt()

    assert running.cancelled()


async def test_a_command_for_an_execution_that_does_not_exist_is_consumed_and_changes_nothing() -> (
    None
):
    stage = OrchestratorHarness()
    owner = await stage.owner()
    await stage.backend.mailbox.send([CancelExecution(execution_id=ExecutionId("nobody"))])

    assert [await owner.tick(0), await owner.tick(0)] == [1, 0]
    assert await stage.backend.archive.get_header(ExecutionId("nobody")) is None
    assert await stage.backend.archive.list_dead_letters() == []


async def test_many_due_timers_are_committed_in_batches() -> None:
    stage = OrchestratorHarness(limits=CommitLimits(commands=4))
    owner = await stage.owner()
    ids = [await stage.create(NAP, f"x{number}") for number in range(20)]
    while await owner.tick(0):
        pass
    sizes = record_commits(stage)

    await stage.clock.advance(60)
    handled = await owner.tick(0)

    assert handled == 20
    assert sizes == [4] * 5
    assert {(await stage.header(id_)).state for id_ in ids} == {"COMPLETED"}


def record_commits(stage: OrchestratorHarness) -> list[int]:
    """Returns a list to which each later commit adds the number of executions that it finishes."""
    store, sizes = stage.backend.store, list[int]()
    real_commit = store.commit

    async def recorded(lease: Lease, commit: Commit) -> None:
        sizes.append(len(commit.headers))
        await real_commit(lease, commit)

    store.commit = recorded  # type: ignore[method-assign]  # watched by this test only
    return sizes


async def test_an_output_too_large_to_store_fails_its_execution(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(owner_module, "BLOB_BYTES_MAX", 100)
    stage = OrchestratorHarness(policy=EnginePolicy(inline_bytes_max=50))
    owner = await stage.owner()
    nap = make_node("nap", handler="sleep", config={"seconds": 0})
    execution_id = await stage.create(make_workflow(nap, output="x" * 200))

    while await owner.tick(0):
        pass

    header = await stage.header(execution_id)
    assert header.state == "FAILED"
    assert "the output has 202 bytes, at most 100 are allowed" in (header.error or "")


@pytest.mark.parametrize("tasks_are_written", [True, False])
async def test_values_of_items_are_offloaded_only_by_stores_that_serialize_tasks(
    tasks_are_written: bool,
) -> None:
    stage = OrchestratorHarness(limits=CommitLimits(serializes_tasks=tasks_are_written))
    owner = await stage.owner()
    definition = make_workflow(make_node("each", for_each="input.items"))
    text = "x" * SHARED_BYTES_MAX
    execution_id = await stage.create(definition, input_={"items": [0] * 100, "text": text})

    while await owner.tick(0):
        pass

    [queue] = await stage.backend.tasks.queues()
    assert queue.depth == 100
    [task, *_] = await stage.backend.tasks.claim("w", None, limit=100, wait_s=0)
    key = task.execution_input.blob
    assert task.token.execution_id == execution_id
    if tasks_are_written:
        assert key is not None
        assert msgspec.json.decode(await stage.backend.blobs.get(key))["text"] == text
    else:
        assert key is None


async def test_a_poisoned_command_is_not_quarantined_while_the_store_is_down(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    stage = OrchestratorHarness()
    owner = await stage.owner()
    await stage.create(NAP)

    async def away(_aggregate_id: str) -> None:
        raise StoreError("the database is locked")

    def broken(*_arguments: object) -> None:
        stage.backend.store.load = away  # type: ignore[method-assign, assignment]  # a fault
        raise RuntimeError("a bug")

    monkeypatch.setattr(owner_module, "create", broken)

    with pytest.raises(StoreError):
        await owner.tick(0)
    assert await stage.backend.archive.list_dead_letters() == []
