"""Caches of the executions and concurrency keys of each partition, loaded on demand."""

from collections import OrderedDict
from collections.abc import Iterable, Sequence
from itertools import islice

import msgspec

from runnel.core.agenda import Agenda
from runnel.core.commands import LIMIT_PREFIX
from runnel.core.concurrency_key import ConcurrencyLimit, replay_limit
from runnel.core.decide.maps import hydrate_maps
from runnel.core.evolve import read_definition_hash, rebuild_execution
from runnel.core.execution import Execution
from runnel.core.ids import ExecutionId
from runnel.engine.blob_cache import BlobCache
from runnel.engine.graph_cache import GraphCache
from runnel.errors import RunnelError, StoreError
from runnel.ports.store import Store

# The most executions that one call scans, so that the cost of a batch does not grow with their
# number.
DROP_SCAN_MAX = 1_000


class LoadedExecution(msgspec.Struct, frozen=True, gc=False):
    """An execution in memory, with the agenda that decisions maintain for it."""

    execution: Execution
    agenda: Agenda


class CachedExecutionsLimit:
    """The maximum number of executions that all partitions of a process keep in memory.

    Above the maximum, the largest caches drop their least recently used executions, until they have
    an equal share. So an idle partition does not keep its executions at the expense of a busy one.
    """

    def __init__(self, executions_max: int) -> None:
        self._executions_max = executions_max
        # A dict, because it has an order: the order of a set differs between two runs.
        self._caches: dict[AggregateCache, None] = {}

    def add(self, cache: "AggregateCache") -> None:
        self._caches[cache] = None

    def remove(self, cache: "AggregateCache") -> None:
        self._caches.pop(cache, None)

    def apply(self) -> None:
        """Drops idle executions above the maximum, from caches without uncommitted changes."""
        excess = sum(map(len, self._caches)) - self._executions_max
        if excess <= 0:
            return
        share = self._executions_max // len(self._caches)
        settled = [cache for cache in self._caches if cache.is_settled and len(cache) > share]
        for cache in sorted(settled, key=len, reverse=True):
            excess -= cache.drop_idle(min(excess, len(cache) - share))
            if excess <= 0:
                return


class AggregateCache:
    """Caches the executions of a partition between batches, within the limit of the process.

    While `is_settled` is False, executions may have changes that are not stored. They then stay in
    memory.
    """

    def __init__(
        self, store: Store, graphs: GraphCache, blobs: BlobCache, *, limit: CachedExecutionsLimit
    ) -> None:
        self.is_settled = True
        self._store = store
        self._blobs = blobs
        self._graphs = graphs
        self._limit = limit
        self._executions: OrderedDict[str, LoadedExecution] = OrderedDict()
        self._limits: dict[str, ConcurrencyLimit] = {}
        self._prefetched: dict[str, Sequence[bytes]] = {}

        limit.add(self)

    def __len__(self) -> int:
        return len(self._executions)

    def close(self) -> None:
        """Removes the cache from the limit, because its partition has another owner."""
        self._limit.remove(self)

    async def prefetch(self, aggregate_ids: Iterable[str]) -> None:
        """Loads the executions that the next batch needs, in one store call.

        Skips executions that are already in memory.

        With Redis, loading 2,000 new executions one by one took 2,000 of 2,075 round trips.
        """
        cached = self._executions
        missing = [
            aggregate_id
            for aggregate_id in aggregate_ids
            if aggregate_id not in cached and not aggregate_id.startswith(LIMIT_PREFIX)
        ]
        self._prefetched.clear()
        if len(missing) > 1:
            histories = await self._store.load_many(missing)
            self._prefetched.update(zip(missing, histories, strict=True))

    def get_cached(self, execution_id: str) -> LoadedExecution | None:
        loaded = self._executions.get(execution_id)
        if loaded is not None:
            self._executions.move_to_end(execution_id)
        return loaded

    async def execution(self, execution_id: str) -> LoadedExecution | None:
        """Returns the execution, from memory or from the store, or None if it is not stored."""
        loaded = self.get_cached(execution_id) or await self._load(execution_id)
        if loaded is not None:
            self._executions[execution_id] = loaded
        return loaded

    def add(self, execution: Execution, agenda: Agenda) -> None:
        self._executions[execution.id] = LoadedExecution(execution, agenda)

    async def limit(self, aggregate_id: str) -> ConcurrencyLimit:
        limit = self._limits.get(aggregate_id)
        if limit is None:
            entries = await self._store.load(aggregate_id)
            limit = replay_limit(aggregate_id.removeprefix(LIMIT_PREFIX), entries)
            self._limits[aggregate_id] = limit
        return limit

    def forget(self, aggregate_id: str) -> None:
        """Drops the aggregate from memory. The next use loads the aggregate from the store."""
        self._executions.pop(aggregate_id, None)
        self._prefetched.pop(aggregate_id, None)
        self._limits.pop(aggregate_id, None)

    def settle(self) -> None:
        """Applies the limit. Must be called when all changes are stored."""
        self.is_settled = True
        self._limit.apply()

    def drop_idle(self, count: int) -> int:
        """Drops idle executions from memory; returns how many, at most `count`."""
        scanned = islice(self._executions.items(), DROP_SCAN_MAX)
        idle = (id_ for id_, loaded in scanned if loaded.agenda.is_empty)
        dropped = list(islice(idle, count))
        for execution_id in dropped:
            del self._executions[execution_id]
        return len(dropped)

    async def load_without_map_items(self, execution_id: str) -> Execution | None:
        """Loads the stored execution without the lists of its maps.

        The owner uses this method to fail an execution whose lists can't be loaded.
        """
        entries = self._prefetched.pop(execution_id, None)
        if entries is None:
            entries = await self._store.load(execution_id)
        if not entries:
            return None
        graph = await self._graphs.get(read_definition_hash(entries))
        return rebuild_execution(entries, graph)

    async def read_snapshots(self, execution_ids: Sequence[ExecutionId]) -> list[LoadedExecution]:
        """Returns the current state of executions, from memory if possible and else from the store.

        The cache stays unchanged. The result omits executions that can't be read.
        """
        missing = [id_ for id_ in execution_ids if id_ not in self._executions]
        stored = await self._store.load_many(missing) if missing else ()
        replayed = [await self._replay_readable(entries) for entries in stored]
        cached = [self._executions.get(execution_id) for execution_id in execution_ids]
        return [loaded for loaded in (*cached, *replayed) if loaded is not None]

    async def _replay_readable(self, entries: Sequence[bytes]) -> LoadedExecution | None:
        if not entries:
            return None
        try:
            graph = await self._graphs.get(read_definition_hash(entries))
            return LoadedExecution(rebuild_execution(entries, graph), Agenda())
        except StoreError:
            raise
        except RunnelError:
            return None

    async def _load(self, execution_id: str) -> LoadedExecution | None:
        execution = await self.load_without_map_items(execution_id)
        if execution is None:
            return None
        agenda = Agenda()
        while (needed := hydrate_maps(execution, agenda, self._blobs)) is not None:
            await self._blobs.get(needed)
        return LoadedExecution(execution, agenda)
