"""The aggregates that an owner loads, keeps and drops."""

import pytest

from runnel.backends.memory import MemoryBackend
from runnel.core.codec import encode_entry
from runnel.core.events import ExecutionStarted
from runnel.core.ids import DefinitionHash
from runnel.core.workflow import encode_workflow, hash_workflow
from runnel.engine import graph_cache
from runnel.engine.blob_cache import BlobCache
from runnel.engine.graph_cache import GraphCache
from runnel.engine.orchestrator.aggregates import AggregateCache
from runnel.errors import BrokenInvariantError
from runnel.ports.store import Commit, HistoryRecord
from runnel.testing.clock import FakeClock, FakeIds
from tests.core_driver import make_node, make_workflow


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
    aggregates = AggregateCache(
        backend.store, GraphCache(backend.archive), BlobCache(backend.blobs), executions_max=10
    )

    with pytest.raises(BrokenInvariantError, match="does not begin with ExecutionCreated"):
        await aggregates.execution("x1")
