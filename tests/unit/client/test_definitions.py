"""A definition is stored once, whatever happens to those who ask for it; few are remembered."""

import asyncio
import gc

import pytest

from runnel.backends.memory import MemoryBackend
from runnel.client import definitions
from runnel.client.definitions import VERSION_KNOWN_S, DefinitionCache
from runnel.core.graph import Graph
from runnel.core.workflow import Workflow
from runnel.engine import graph_cache
from runnel.errors import StoreError
from runnel.ports.archive import Archive
from runnel.testing.clock import FakeClock, FakeIds, settle
from tests.core_driver import make_node, make_workflow


@pytest.fixture
def archive() -> Archive:
    return MemoryBackend(FakeClock(), FakeIds()).archive


class Slow(DefinitionCache):
    """Stores when it may; the first call raises `error`, if there is one."""

    def __init__(self, archive: Archive, error: Exception | None = None) -> None:
        super().__init__(archive, FakeClock())
        self.errors = [] if error is None else [error]
        self.calls = 0
        self.may_store = asyncio.Event()

    async def _store_with_children(self, workflow: Workflow) -> int:
        self.calls += 1
        await self.may_store.wait()
        if self.errors:
            raise self.errors.pop()
        return await super()._store_with_children(workflow)


async def stored(known: DefinitionCache, definition: Workflow) -> int:
    return await known.store(known.validate_and_hash(definition), definition)


async def test_many_who_store_one_definition_at_a_time_store_it_once(archive: Archive) -> None:
    known, definition = Slow(archive), make_workflow(make_node("a"))
    known.may_store.set()

    versions = await asyncio.gather(*(stored(known, definition) for _ in range(5)))

    assert (versions, known.calls) == ([1] * 5, 1)


async def test_one_who_is_cancelled_takes_no_other_along(archive: Archive) -> None:
    known, definition = Slow(archive), make_workflow(make_node("a"))
    async with asyncio.TaskGroup() as group:
        first, *others = [group.create_task(stored(known, definition)) for _ in range(3)]
        await settle()
        first.cancel()
        await settle()
        known.may_store.set()

    assert first.cancelled()
    assert [other.result() for other in others] == [1, 1]
    assert known.calls == 2


async def test_the_failure_of_one_is_not_that_of_the_others(archive: Archive) -> None:
    known, definition = Slow(archive, StoreError("the disk is full")), make_workflow(make_node("a"))
    known.may_store.set()

    storing = (stored(known, definition) for _ in range(3))
    first, *others = await asyncio.gather(*storing, return_exceptions=True)

    assert isinstance(first, StoreError)
    assert others == [1, 1]


async def test_only_so_many_are_remembered(
    archive: Archive, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(definitions, "DEFINITIONS_MAX", 3)
    monkeypatch.setattr(graph_cache, "CACHED_GRAPHS_MAX", 3)
    known, before = DefinitionCache(archive, FakeClock()), graphs_alive()
    for number in range(20):
        await stored(known, make_workflow(make_node(f"n{number}")))

    first = make_workflow(make_node("n0"))
    graph = await known.load_graph(known.validate_and_hash(first))

    assert graphs_alive() - before <= 3 + 1
    assert await stored(known, first) == 1
    assert graph.workflow == first


async def test_a_version_that_another_process_has_deleted_is_stored_again_after_a_while(
    archive: Archive,
) -> None:
    clock = FakeClock()
    known, definition = DefinitionCache(archive, clock), make_workflow(make_node("a"))
    await stored(known, definition)
    await archive.delete_versions(definition.name)

    at_once = await stored(known, definition)
    await clock.advance(VERSION_KNOWN_S)
    later = await stored(known, definition)

    assert (at_once, later) == (1, 2)


def graphs_alive() -> int:
    gc.collect()
    return sum(isinstance(each, Graph) for each in gc.get_objects())
