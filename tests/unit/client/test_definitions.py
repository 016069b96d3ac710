"""The cache stores a definition once, although callers are cancelled, and has a maximum size."""

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


class SlowDefinitionCache(DefinitionCache):
    """Stores once `may_store` is set; the first call raises `error`, if one is given."""

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


async def store_definition(cache: DefinitionCache, definition: Workflow) -> int:
    return await cache.store(cache.validate_and_hash(definition), definition)


async def test_concurrent_callers_store_a_definition_once(archive: Archive) -> None:
    cache, definition = SlowDefinitionCache(archive), make_workflow(make_node("a"))
    cache.may_store.set()

    versions = await asyncio.gather(*(store_definition(cache, definition) for _ in range(5)))

    assert (versions, cache.calls) == ([1] * 5, 1)


async def test_a_cancelled_caller_does_not_cancel_the_other_callers(archive: Archive) -> None:
    cache, definition = SlowDefinitionCache(archive), make_workflow(make_node("a"))
    async with asyncio.TaskGroup() as group:
        first, *remaining = [
            group.create_task(store_definition(cache, definition)) for _ in range(3)
        ]
        await settle()
        first.cancel()
        await settle()
        cache.may_store.set()

    assert first.cancelled()
    assert [other.result() for other in remaining] == [1, 1]
    assert cache.calls == 2


async def test_a_failed_call_does_not_fail_the_other_calls(archive: Archive) -> None:
    cache, definition = (
        SlowDefinitionCache(archive, StoreError("the disk is full")),
        make_workflow(make_node("a")),
    )
    cache.may_store.set()

    storing = (store_definition(cache, definition) for _ in range(3))
    first, *remaining = await asyncio.gather(*storing, return_exceptions=True)

    assert isinstance(first, StoreError)
    assert remaining == [1, 1]


async def test_the_cache_holds_a_limited_number_of_definitions(
    archive: Archive, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(definitions, "DEFINITIONS_MAX", 3)
    monkeypatch.setattr(graph_cache, "CACHED_GRAPHS_MAX", 3)
    cache, before = DefinitionCache(archive, FakeClock()), count_graphs()
    for number in range(20):
        await store_definition(cache, make_workflow(make_node(f"n{number}")))

    first = make_workflow(make_node("n0"))
    graph = await cache.load_graph(cache.validate_and_hash(first))

    assert count_graphs() - before <= 3 + 1
    assert await store_definition(cache, first) == 1
    assert graph.workflow == first


async def test_a_version_that_another_process_deleted_is_stored_again_after_the_cache_time(
    archive: Archive,
) -> None:
    clock = FakeClock()
    cache, definition = DefinitionCache(archive, clock), make_workflow(make_node("a"))
    await store_definition(cache, definition)
    await archive.delete_versions(definition.name)

    at_once = await store_definition(cache, definition)
    await clock.advance(VERSION_KNOWN_S)
    later = await store_definition(cache, definition)

    assert (at_once, later) == (1, 2)


def count_graphs() -> int:
    gc.collect()
    return sum(isinstance(object_, Graph) for object_ in gc.get_objects())
