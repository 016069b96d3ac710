"""An owner that is told to stop, and an orchestrator whose first look fails."""

import asyncio
from collections.abc import Sequence

import pytest

from runnel.backends.memory import MemoryBackend
from runnel.engine.orchestrator.aggregates import Graphs
from runnel.engine.orchestrator.orchestrator import Orchestrator
from runnel.engine.orchestrator.owner import Owner
from runnel.engine.orchestrator.parts import Parts
from runnel.errors import StoreError
from runnel.runtime.hub import Hub
from runnel.testing.clock import FakeClock, FakeIds, settle


@pytest.fixture
def clock() -> FakeClock:
    return FakeClock()


@pytest.fixture
def parts(clock: FakeClock) -> Parts:
    ids = FakeIds()
    backend = MemoryBackend(clock, ids)
    return Parts(
        store=backend.store,
        archive=backend.archive,
        blobs=backend.blobs,
        clock=clock,
        ids=ids,
        telemetry=Hub(),
    )


@pytest.fixture
async def owner(parts: Parts) -> Owner:
    return Owner(parts, Graphs(parts.archive), await parts.store.acquire(0, "one"))


@pytest.mark.parametrize("times", [1, 2, 3])
async def test_an_owner_that_is_halted_ends_in_order_however_often_it_is_told(
    owner: Owner, times: int
) -> None:
    async with asyncio.TaskGroup() as group:
        running = group.create_task(owner.run())
        await settle()
        for _ in range(times):
            owner.halt()

    assert not running.cancelled()
    assert running.cancelling() == 0


async def test_an_owner_that_is_cancelled_while_it_is_halted_ends_cancelled(owner: Owner) -> None:
    async with asyncio.TaskGroup() as group:
        running = group.create_task(owner.run())
        await settle()
        owner.halt()
        running.cancel()
        owner.halt()

    assert running.cancelled()


async def test_nothing_counts_as_recovered_before_a_look_has_succeeded(
    parts: Parts, clock: FakeClock
) -> None:
    errors = [StoreError("the database is locked")]

    async def wanted() -> Sequence[int]:
        if errors:
            raise errors.pop()
        return [0]

    orchestrator, stop = (
        Orchestrator(parts, name="one", wanted=wanted, lease_s=3.0),
        asyncio.Event(),
    )
    async with asyncio.TaskGroup() as group:
        group.create_task(orchestrator.run(stop))
        await settle()
        is_early = orchestrator.recovered.is_set()
        await clock.advance(1.0)
        is_recovered = orchestrator.recovered.is_set()
        stop.set()

    assert (is_early, is_recovered) == (False, True)
