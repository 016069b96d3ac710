"""After a takeover, the owner repairs what a lost part of a decision has left incomplete."""

import pytest
from msgspec.structs import replace

from runnel.core.codec import encode_entry
from runnel.core.commands import AcquireLimit
from runnel.core.events import LimitHeld, LimitReleased
from runnel.core.ids import NO_ITEM, ExecutionId, NodeId, Nonce, TaskToken
from runnel.core.states import ExecutionState
from runnel.core.workflow import encode_workflow, hash_workflow
from runnel.engine.orchestrator.recovery import recover_partition
from runnel.ports.store import Commit, HistoryRecord
from tests.core_driver import make_node, make_workflow
from tests.unit.engine.orchestrator.orchestrator_harness import OrchestratorHarness

GHOST = TaskToken(ExecutionId("x1"), NodeId("n"), NO_ITEM, 7, Nonce("lost"))
HELD = LimitHeld(holder=GHOST, limit=1)


async def leave_key(stage: OrchestratorHarness, *events: LimitHeld | LimitReleased) -> None:
    """Stores the state of the key 'k' as a former owner left it."""
    store = stage.backend.store
    lease = await store.acquire(0, "former")
    entry = encode_entry(1.0, events)
    await store.commit(
        lease, Commit(sequence=1, histories=[HistoryRecord(aggregate_id="limit:k", entry=entry)])
    )
    await store.release(lease)


@pytest.mark.parametrize("exists", [True, False])
async def test_a_key_whose_holder_is_gone_is_free_again(exists: bool) -> None:
    stage = OrchestratorHarness()
    await leave_key(stage, HELD)
    if exists:
        await stage.create(make_workflow(make_node("n")))

    owner = await stage.owner()
    await recover_partition(owner, stage.backend.store, stage.telemetry)

    assert list(await stage.backend.store.list_concurrency_keys(0)) == []


async def test_a_key_without_holders_is_forgotten() -> None:
    stage = OrchestratorHarness()
    await leave_key(stage, HELD, LimitReleased(holder=GHOST))

    owner = await stage.owner()
    await recover_partition(owner, stage.backend.store, stage.telemetry)

    assert list(await stage.backend.store.list_concurrency_keys(0)) == []


async def test_a_key_that_is_held_stays_held() -> None:
    stage = OrchestratorHarness()
    await stage.create(make_workflow(make_node("n", concurrency_key="k")))
    former = await stage.owner()
    await former.tick(0)
    await stage.backend.store.release(former.lease)

    owner = await stage.owner()
    await recover_partition(owner, stage.backend.store, stage.telemetry)

    other = TaskToken(ExecutionId("x2"), NodeId("n"), NO_ITEM, 1, Nonce("other"))
    await owner.submit([AcquireLimit(key="k", limit=1, holder=other)])
    assert list(await stage.backend.store.list_concurrency_keys(0)) == ["k"]
    assert len(await stage.backend.tasks.claim("w", None, limit=9, wait_s=0)) == 1


async def test_a_child_that_was_not_listed_yet_is_recovered_with_its_parent() -> None:
    """The decision was split over several commits: the history was stored, header and task were
    not.
    """
    stage = OrchestratorHarness()
    inner = make_workflow(make_node("inner"))
    definition = hash_workflow(inner), encode_workflow(inner)
    await stage.backend.archive.put_definition(inner.name, *definition)
    await stage.create(make_workflow(make_node("n", handler="workflow", child=inner)))
    former = await stage.owner()
    await former.tick(0)
    await stage.backend.store.release(former.lease)
    state = stage.backend.state
    child = ExecutionId("x1.n.1")
    state.headers[child] = replace(state.headers[child], state=ExecutionState.PENDING)
    (queued,) = await stage.backend.tasks.claim("gone", None, limit=9, wait_s=0)
    state.board.drop(queued.token)

    owner = await stage.owner()
    await recover_partition(owner, stage.backend.store, stage.telemetry)

    (again,) = await stage.backend.tasks.claim("w", None, limit=9, wait_s=0)
    assert again.token.execution_id == child
    assert again.token.attempt == 2
