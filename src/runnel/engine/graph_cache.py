"""Compiled graphs by content hash, loaded from the store when they are first needed."""

from collections import OrderedDict

from runnel.core.graph import Graph
from runnel.core.ids import DefinitionHash
from runnel.core.workflow import decode_workflow
from runnel.errors import BrokenInvariantError
from runnel.ports.archive import Archive

CACHED_GRAPHS_MAX = 1_000


class GraphCache:
    """The compiled graphs of one process; its client and its orchestrator share them.

    A definition never changes, so its graph never changes either. When the cache is full, the
    oldest entry leaves.
    """

    def __init__(self, archive: Archive) -> None:
        self._archive = archive
        self._graphs: OrderedDict[DefinitionHash, Graph] = OrderedDict()

    def add(self, hash_: DefinitionHash, graph: Graph) -> None:
        """Expects a graph that `compile_canonical` has made, or one of a stored definition."""
        self._graphs[hash_] = graph
        if len(self._graphs) > CACHED_GRAPHS_MAX:
            self._graphs.popitem(last=False)

    def get_cached(self, hash_: DefinitionHash) -> Graph | None:
        return self._graphs.get(hash_)

    async def find(self, hash_: DefinitionHash) -> Graph | None:
        """Returns the graph of a stored definition; None if the store does not have it."""
        graph = self._graphs.get(hash_)
        if graph is None:
            definition = await self._archive.get_definition(hash_)
            if definition is None:
                return None
            graph = Graph(decode_workflow(definition.document))
            self.add(hash_, graph)
        return graph

    async def get(self, hash_: DefinitionHash) -> Graph:
        """Returns the graph of a definition that must be stored; else BrokenInvariantError."""
        graph = await self.find(hash_)
        if graph is None:
            raise BrokenInvariantError(f"definition {hash_} is used but not stored")
        return graph
