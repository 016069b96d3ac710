"""Live orchestrators share partitions evenly and move them one at a time."""

import asyncio
import inspect
from collections import Counter
from collections.abc import Mapping
from itertools import pairwise
from typing import Any

import msgspec
import pytest

from runnel.engine.orchestrator.orchestrator import LeaseObservation
from runnel.engine.orchestrator.partition_share import (
    choose_partitions,
    make_sharing_orchestrator,
)
from runnel.ports.store import LeaseRecord, Store
from runnel.testing.clock import settle
from tests.unit.engine.orchestrator.orchestrator_harness import LEASE_S, OrchestratorHarness

LOOK_S = LEASE_S / 6


def seen(owners: str, *, still: str = "") -> dict[int, LeaseObservation]:
    """Builds observations: one letter per partition for its owner, or a dot if it is free.

    `still` are the numbers of silent leases.
    """
    return {
        number: LeaseObservation(
            lease=None
            if owner == "."
            else LeaseRecord(partition=number, owner=owner, epoch=1, counter=1),
            is_silent=str(number) in still,
        )
        for number, owner in enumerate(owners)
    }


@pytest.mark.parametrize(
    ("owners", "alive", "proven", "still", "given", "expected"),
    [
        # "b" and "c" have heartbeats, but are not proven to be alive.
        ("....", "ab", "", "", "", 2),
        ("....", "abc", "", "0123", "", 4),
        ("aabb", "abc", "", "23", "", 4),
        ("aaaa", "abc", "", "", "", 4),
        ("abbb", "abc", "c", "123", "", 2),
        ("aa.b", "abc", "", "2", "", 3),
        ("....", "a", "", "", "", 4),
        ("....", "ab", "b", "", "", 2),
        ("...", "ab", "b", "", "", 2),
        ("bbb.", "ab", "b", "", "", 1),
        ("bbbb", "ab", "b", "", "", 0),
        ("bbbb", "a", "", "", "", 0),
        ("bbbb", "a", "", "0123", "", 4),
        ("bbbb", "ab", "b", "0123", "", 2),
        ("aaaa", "a", "", "", "", 4),
        ("aaaa", "ab", "b", "", "", 3),
        ("aaab", "ab", "b", "", "", 2),
        ("aabb", "ab", "b", "", "", 2),
        ("aaaaaabbbbbbcccc", "abc", "bc", "", "", 5),
        ("aaaaaabbbbbccccc", "abc", "bc", "", "", 6),
        ("aabb.", "ab", "b", "", "", 3),
        ("aabb.", "ab", "b", "", "4", 3),
        ("aab..", "ab", "b", "", "34", 2),
        ("aab..", "ab", "b", "3", "34", 3),
        ("aab..", "a", "", "", "34", 4),
        ("aaab", "ab", "b", "", "2", 2),
        ("zzzz", "ab", "b", "", "", 0),
        ("", "a", "", "", "", 0),
    ],
    ids=lambda value: str(value) or "none",
)
def test_each_orchestrator_chooses_its_share(
    *, owners: str, alive: str, proven: str, still: str, given: str, expected: int
) -> None:
    chosen = choose_partitions(
        "a", seen(owners, still=still), alive, proven=proven, given_up={*map(int, given)}
    )

    assert len(chosen) == expected
    assert len(set(chosen)) == expected
    assert all(owners[number] in "a." or str(number) in still for number in chosen)


@pytest.mark.parametrize("alive", range(1, 6))
@pytest.mark.parametrize("partitions", [1, 2, 3, 7, 16])
def test_all_end_with_the_same_number_or_one_more(partitions: int, alive: int) -> None:
    names = "abcde"[:alive]
    owners = dict.fromkeys(range(partitions), "a")

    for _ in range(3 * partitions):
        for name in names:
            owners = apply_poll(name, owners, names)

    counts = Counter(dict.fromkeys(names, 0) | Counter(owners.values()))
    assert "." not in counts
    assert max(counts.values()) - min(counts.values()) <= 1


def apply_poll(name: str, owners: Mapping[int, str], alive: str) -> dict[int, str]:
    chosen = choose_partitions(
        name, seen("".join(owners.values())), alive, proven=alive.replace(name, "")
    )
    return {
        number: name if number in chosen else "." if owner == name else owner
        for number, owner in owners.items()
    }


class ProcessStore:
    """A store as one process sees it. While the process is dead, none of its calls arrives."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self.is_alive = asyncio.Event()
        self.is_alive.set()

    # Any: it represents each method of the store.
    def __getattr__(self, name: str) -> Any:
        attribute = getattr(self._store, name)
        if not inspect.iscoroutinefunction(attribute):
            return attribute

        async def call(*args: Any, **named: Any) -> Any:
            await self.is_alive.wait()
            return await attribute(*args, **named)

        return call


class Cluster:
    """Several orchestrators on one store."""

    def __init__(self, group: asyncio.TaskGroup, partitions: int) -> None:
        self.stage = OrchestratorHarness(partitions=partitions)
        self.clock = self.stage.clock
        self._group = group
        self._partitions = partitions
        self._stores: dict[str, ProcessStore] = {}
        self._stops: dict[str, asyncio.Event] = {}

    def start(self, name: str) -> None:
        stop = self._stops[name] = asyncio.Event()
        store = self._stores[name] = ProcessStore(self.stage.backend.store)
        parts = msgspec.structs.replace(self.stage.parts, store=store)
        orchestrator = make_sharing_orchestrator(parts, name=name, lease_s=LEASE_S)
        self._group.create_task(orchestrator.run(stop))

    def stop(self, *names: str) -> None:
        for name in names:
            self._stops[name].set()

    def pause(self, name: str) -> None:
        self._stores[name].is_alive.clear()

    def go_on(self, name: str) -> None:
        self._stores[name].is_alive.set()

    async def owned(self) -> Counter[str]:
        store = self.stage.backend.store
        records = [await store.observe(number) for number in range(self._partitions)]
        return Counter("nobody" if record is None else record.owner for record in records)


async def test_a_newcomer_gets_its_share_one_by_one_and_leaves_it_to_the_others() -> None:
    counts = []
    async with asyncio.TaskGroup() as group:
        cluster = Cluster(group, 6)
        cluster.start("one")
        await settle()
        alone = await cluster.owned()
        cluster.start("two")
        for _ in range(14):
            await cluster.clock.advance(LOOK_S)
            counts.append((await cluster.owned())["one"])
        shared = await cluster.owned()
        cluster.stop("two")
        await cluster.clock.advance(2 * LOOK_S)
        again = await cluster.owned()
        cluster.stop("one")

    assert (alone, shared, again) == ({"one": 6}, {"one": 3, "two": 3}, {"one": 6})
    assert all(before - after <= 1 for before, after in pairwise(counts))
    assert await cluster.owned() == {"nobody": 6}


@pytest.mark.parametrize("phase", range(7))
async def test_the_partitions_of_a_dead_orchestrator_are_taken_over_within_the_lease(
    phase: int,
) -> None:
    async with asyncio.TaskGroup() as group:
        cluster = Cluster(group, 4)
        cluster.start("one")
        await cluster.clock.advance(LOOK_S * phase / 7)
        cluster.start("two")
        await cluster.clock.advance(14 * LOOK_S)
        before = await cluster.owned()
        cluster.pause("one")
        await cluster.clock.advance(LEASE_S)
        after = await cluster.owned()
        cluster.go_on("one")
        cluster.stop("one", "two")

    assert (before, after) == ({"one": 2, "two": 2}, {"two": 4})
    assert cluster.stage.telemetry.named("orchestrator.dead") == [{"orchestrator": "one"}]


async def test_an_orchestrator_that_counted_as_dead_gets_a_share_again() -> None:
    async with asyncio.TaskGroup() as group:
        cluster = Cluster(group, 4)
        cluster.start("one")
        cluster.start("two")
        await cluster.clock.advance(10 * LOOK_S)
        cluster.pause("one")
        await cluster.clock.advance(LEASE_S)
        while_paused = await cluster.owned()
        cluster.go_on("one")
        await cluster.clock.advance(14 * LOOK_S)
        afterwards = await cluster.owned()
        cluster.stop("one", "two")

    assert (while_paused, afterwards) == ({"two": 4}, {"one": 2, "two": 2})


@pytest.mark.parametrize("lifetime_polls", [1, 2, 3, 5])
async def test_an_orchestrator_that_dies_after_each_start_delays_no_partition(
    lifetime_polls: int,
) -> None:
    dead: list[str] = []
    owners: list[Counter[str]] = []
    async with asyncio.TaskGroup() as group:
        cluster = Cluster(group, 8)
        cluster.start("one")
        cluster.start("loop")
        await cluster.clock.advance(14 * LOOK_S)
        cluster.pause("loop")
        for number in range(30):
            if number % lifetime_polls == 0:
                dead.append(f"loop{number}")
                cluster.start(dead[-1])
            await cluster.clock.advance(LOOK_S)
            if (number + 1) % lifetime_polls == 0:
                cluster.pause(dead[-1])
            owners.append(await cluster.owned())
        for name in ("loop", *dead):
            cluster.go_on(name)
            cluster.stop(name)
        cluster.stop("one")

    assert owners[0] == {"one": 4, "loop": 4}
    assert [counts for counts in owners[6:] if counts != {"one": 8}] == []
