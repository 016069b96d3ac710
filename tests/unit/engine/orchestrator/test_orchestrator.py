"""Leases: when a partition is acquired, and when it is given up."""

import asyncio
from collections.abc import Callable, Sequence
from typing import Any

import pytest

from runnel.core.ids import ExecutionId
from runnel.errors import FencedError, PartitionUnavailableError, StoreError
from runnel.ports.store import InboxEntry, Lease
from runnel.testing.clock import settle
from tests.core_driver import make_node, make_workflow
from tests.unit.engine.orchestrator.orchestrator_harness import LEASE_S, OrchestratorHarness

NAP = make_workflow(make_node("nap", handler="sleep", config={"seconds": 60}))
BEAT_S = LEASE_S / 3
LOOK_S = LEASE_S / 6


async def test_a_lease_is_acquired_only_when_it_is_not_renewed() -> None:
    stage = OrchestratorHarness()
    store = stage.backend.store
    other = await store.acquire(0, "other")

    async with stage.orchestrating() as orchestrator:
        for _ in range(10):
            await stage.clock.advance(BEAT_S)
            await store.renew(other)
        while_renewed = orchestrator.owns(0)
        await stage.clock.advance(LEASE_S + 2 * BEAT_S)
        afterwards = orchestrator.owns(0)

    assert not while_renewed
    assert afterwards


async def test_a_lease_that_is_renewed_just_in_time_is_not_acquired() -> None:
    stage = OrchestratorHarness()
    store = stage.backend.store
    other = await store.acquire(0, "other")
    acquire, attempts = store.acquire, 0

    async def too_late(*arguments: Any, **named: Any) -> Any:
        nonlocal attempts
        attempts += 1
        await store.renew(other)
        return await acquire(*arguments, **named)

    store.acquire = too_late  # type: ignore[method-assign]  # a race for this test only
    async with stage.orchestrating() as orchestrator:
        await stage.clock.advance(LEASE_S)
        owned = orchestrator.owns(0)

    assert attempts == 1
    assert not owned


async def test_a_takeover_from_a_silent_owner_is_reported() -> None:
    stage = OrchestratorHarness()
    await stage.backend.store.acquire(0, "other")

    async with stage.orchestrating() as orchestrator:
        await stage.clock.advance(LEASE_S)
        owned = orchestrator.owns(0)

    assert owned
    reported = stage.telemetry.named("partition.taken_over")
    assert reported == [{"partition": 0, "former": "other"}]


async def test_a_partition_that_another_process_has_acquired_is_given_up() -> None:
    stage = OrchestratorHarness()
    store = stage.backend.store

    async with stage.orchestrating() as orchestrator:
        await settle()
        owned = orchestrator.owns(0)
        taken = await store.acquire(0, "other", expected=await store.observe(0))
        await stage.clock.advance(BEAT_S)
        still = orchestrator.owns(0)

    assert (owned, still) == (True, False)
    lost = [
        (fields["partition"], fields["is_fenced"])
        for fields in stage.telemetry.named("partition.lost")
    ]
    assert lost == [(0, True)]
    assert stage.telemetry.named("partition.taken_over") == []
    await store.renew(taken)  # stopping does not take it from its new owner


async def test_an_owner_whose_lease_is_lost_ends_although_its_inbox_is_empty() -> None:
    stage = OrchestratorHarness()
    store = stage.backend.store

    async def unfenced(_lease: Lease, *, limit: int, wait_s: float) -> Sequence[InboxEntry]:
        """Reads without a check of the lease, as on a server."""
        await stage.clock.wait(asyncio.Event(), wait_s)
        return ()

    store.read_inbox = unfenced  # type: ignore[method-assign,assignment]  # its first name
    async with stage.orchestrating() as orchestrator:
        await settle()
        await store.acquire(0, "other", expected=await store.observe(0))
        await stage.clock.advance(BEAT_S)
        owners = orchestrator.owners()
        reported = [name for name, _ in stage.telemetry.events]

    assert list(owners) == []
    assert reported == ["partition.acquired", "partition.lost", "partition.released"]


async def test_a_refused_renewal_gives_the_partition_up_until_it_is_free_again() -> None:
    stage = OrchestratorHarness()
    store = stage.backend.store

    async with stage.orchestrating() as orchestrator:
        await settle()
        store.renew = failing_once(  # type: ignore[method-assign]  # a fault
            store.renew, FencedError(0, held="epoch 1", current="epoch 2")
        )
        await stage.clock.advance(LOOK_S)
        refused = not orchestrator.owns(0)
        await stage.clock.advance(LOOK_S)
        again = orchestrator.owns(0)

    assert (refused, again) == (True, True)
    assert await store.observe(0) is None


async def test_a_stop_during_recovery_releases_the_partition() -> None:
    stage = OrchestratorHarness()
    store = stage.backend.store
    running = store.running

    async def stopping(partition: int) -> Sequence[ExecutionId]:
        stage.stop.set()
        await settle()
        return await running(partition)

    store.running = stopping  # type: ignore[method-assign]  # a signal at the worst moment
    async with stage.orchestrating() as orchestrator:
        await settle()

    assert orchestrator.recovered.is_set()
    assert await store.observe(0) is None


AWAY = StoreError("the database is locked")


def failing_once(method: Callable[..., Any], error: StoreError = AWAY) -> Callable[..., Any]:
    is_first = True

    async def call(*arguments: Any, **named: Any) -> Any:
        nonlocal is_first
        if is_first:
            is_first = False
            raise error
        return await method(*arguments, **named)

    return call


@pytest.mark.parametrize(
    ("error", "owned"),
    [(PartitionUnavailableError(0, "its lock file can't be opened"), [1]), (AWAY, [])],
    ids=["one partition", "the store"],
)
async def test_an_unavailable_partition_does_not_block_others_unless_the_store_is_down(
    error: StoreError, owned: list[int]
) -> None:
    stage = OrchestratorHarness(partitions=2)
    store = stage.backend.store
    store.observe = failing_once(store.observe, error)  # type: ignore[method-assign]  # a fault

    async with stage.orchestrating(0, 1) as orchestrator:
        await settle()
        at_first = [partition for partition in (0, 1) if orchestrator.owns(partition)]
        await stage.clock.advance(BEAT_S)
        later = [partition for partition in (0, 1) if orchestrator.owns(partition)]

    assert (at_first, later) == (owned, [0, 1])
    assert [fields["error"] for fields in stage.telemetry.named("store.failed")] == [str(error)]


async def test_nothing_counts_as_recovered_before_a_poll_has_succeeded() -> None:
    stage = OrchestratorHarness()
    store = stage.backend.store
    store.observe = failing_once(store.observe)  # type: ignore[method-assign]  # a fault

    async with stage.orchestrating() as orchestrator:
        await settle()
        at_first = orchestrator.recovered.is_set()
        await stage.clock.advance(BEAT_S)
        afterwards = orchestrator.recovered.is_set()

    assert (at_first, afterwards) == (False, True)


async def test_a_store_that_fails_while_recovering_ends_no_execution() -> None:
    stage = OrchestratorHarness()
    owner = await stage.owner()
    execution_id = await stage.create(NAP)
    await owner.tick(0)
    await stage.backend.store.release(owner.lease)
    store = stage.backend.store
    store.load = failing_once(store.load)  # type: ignore[method-assign]  # a fault

    async with stage.orchestrating():
        await stage.clock.advance(70)

    assert (await stage.header(execution_id)).state == "COMPLETED"
    assert len(stage.telemetry.named("partition.lost")) == 1


async def test_a_store_that_fails_while_deciding_ends_no_execution() -> None:
    stage = OrchestratorHarness()
    archive = stage.backend.archive
    archive.get_definition = failing_once(archive.get_definition)  # type: ignore[method-assign]

    async with stage.orchestrating():
        execution_id = await stage.create(NAP)
        await stage.clock.advance(80)

    assert (await stage.header(execution_id)).state == "COMPLETED"
    assert await archive.list_dead_letters() == []


async def test_leases_are_renewed_while_the_acquisition_of_another_takes_long() -> None:
    """As with an archive that does not answer."""
    stage = OrchestratorHarness(partitions=3)
    store = stage.backend.store
    acquire, answers = store.acquire, asyncio.Event()

    async def slow(partition: int, owner: str, **named: Any) -> Lease:
        if partition > 0:
            await answers.wait()
            raise PartitionUnavailableError(partition, "no answer")
        return await acquire(partition, owner, **named)

    store.acquire = slow  # type: ignore[method-assign]  # a slow archive
    async with stage.orchestrating(0, 1, 2) as orchestrator:
        await settle()
        signs = []
        for _ in range(12):
            await stage.clock.advance(LOOK_S)
            signs.append(await store.observe(0))
        answers.set()
        await stage.clock.advance(LOOK_S)
        owned = [orchestrator.owns(partition) for partition in (0, 1, 2)]

    assert len(set(map(str, signs))) == 12
    assert owned == [True, False, False]
