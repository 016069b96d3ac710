"""The aggregates that an owner loads, keeps and drops."""

import pytest

from runnel.backends.memory import MemoryBackend
from runnel.core.agenda import Agenda
from runnel.core.codec import encode_entry
from runnel.core.events import ExecutionStarted
from runnel.core.execution import Execution
from runnel.core.ids import DefinitionHash, ExecutionId
from runnel.core.workflow import encode_workflow, hash_workflow
from runnel.engine import graph_cache
from runnel.engine.blob_cache import BlobCache
from runnel.engine.graph_cache import GraphCache
from runnel.engine.orchestrator.aggregates import AggregateCache, CachedExecutionsLimit
from runnel.errors import BrokenInvariantError
from runnel.ports.store import Commit, HistoryRecord
from runnel.testing.clock import FakeClock, FakeIds
from tests.core_driver import CoreDriver, make_node, make_workflow


@pytest.fixture
def backend() -> MemoryBackend:
    return MemoryBackend(FakeClock(), FakeIds())


async def test_a_graph_is_compiled_once_until_others_displace_it(
    backend: MemoryBackend, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(graph_cache, "CACHED_GRAPHS_MAX", 2)
    definitions = [make_workflow(make_node(name)) for name in "abc"]
    a, b, c = hashes = [hash_workflow(definition) for definition in definitions]
    for hash_, definition in zip(hashes, definitions, strict=True):
        await backend.archive.put_definition("w", hash_, encode_workflow(definition))
    graphs = GraphCache(backend.archive)

    first = await graphs.get(a)
    again = await graphs.get(a)
    for hash_ in (b, c):
        await graphs.get(hash_)

    assert again is first
    assert await graphs.get(a) is not first


async def test_a_definition_that_is_not_stored_is_a_broken_invariant(
    backend: MemoryBackend,
) -> None:
    with pytest.raises(BrokenInvariantError, match="definition nowhere is used but not stored"):
        await GraphCache(backend.archive).get(DefinitionHash("nowhere"))


async def test_a_history_without_its_beginning_is_a_broken_invariant(
    backend: MemoryBackend,
) -> None:
    lease = await backend.store.acquire(0, "test")
    headless = HistoryRecord(aggregate_id="x1", entry=encode_entry(1.0, [ExecutionStarted()]))
    await backend.store.commit(lease, Commit(sequence=1, histories=[headless]))
    aggregates = make_cache(backend, CachedExecutionsLimit(10))

    with pytest.raises(BrokenInvariantError, match="does not begin with ExecutionCreated"):
        await aggregates.execution("x1")


def make_cache(backend: MemoryBackend, limit: CachedExecutionsLimit) -> AggregateCache:
    graphs, blobs = GraphCache(backend.archive), BlobCache(backend.blobs)
    return AggregateCache(backend.store, graphs, blobs, limit=limit)


def make_execution(name: str) -> Execution:
    execution = CoreDriver(make_workflow(make_node("a"))).start().root
    execution.id = ExecutionId(name)
    return execution


def test_all_partitions_of_a_process_share_the_limit_of_cached_executions(
    backend: MemoryBackend,
) -> None:
    limit = CachedExecutionsLimit(10)
    caches = [make_cache(backend, limit) for _ in range(3)]
    for number, cache in enumerate(caches):
        for n in range(8):
            cache.add(make_execution(f"x{number}-{n}"), Agenda())
        cache.settle()

    assert sum(map(len, caches)) == 10
    assert min(map(len, caches)) > 0


def test_executions_with_changes_that_are_not_stored_stay_in_memory(
    backend: MemoryBackend,
) -> None:
    limit = CachedExecutionsLimit(10)
    busy, other = make_cache(backend, limit), make_cache(backend, limit)
    busy.is_settled = False
    for n in range(12):
        busy.add(make_execution(f"x{n}"), Agenda())
    other.add(make_execution("y"), Agenda())

    other.settle()
    kept = len(busy)
    busy.settle()

    assert (kept, len(busy), len(other)) == (12, 9, 1)


def test_a_partition_that_was_given_up_leaves_its_place_to_others(backend: MemoryBackend) -> None:
    limit = CachedExecutionsLimit(10)
    former, current = make_cache(backend, limit), make_cache(backend, limit)
    for n in range(10):
        former.add(make_execution(f"x{n}"), Agenda())
        current.add(make_execution(f"y{n}"), Agenda())

    former.close()
    current.settle()

    assert len(current) == 10
