"""A cache of compiled workflow graphs by content hash, loaded from the archive on first use."""

from collections import OrderedDict

from runnel.core.graph import Graph
from runnel.core.ids import DefinitionHash
from runnel.core.workflow import decode_workflow
from runnel.errors import BrokenInvariantError
from runnel.ports.archive import Archive

CACHED_GRAPHS_MAX = 1_000


class GraphCache:
    """The compiled graphs of one process. The process's client and orchestrator share this cache.

    A definition never changes, so its graph never changes either. A full cache drops its oldest
    entry.
    """

    def __init__(self, archive: Archive) -> None:
        self._archive = archive
        self._graphs: OrderedDict[DefinitionHash, Graph] = OrderedDict()

    def add(self, hash_: DefinitionHash, graph: Graph) -> None:
        """Adds a graph.

        The graph must come from `compile_canonical` or from a stored definition.
        """
        self._graphs[hash_] = graph
        if len(self._graphs) > CACHED_GRAPHS_MAX:
            self._graphs.popitem(last=False)

    def get_cached(self, hash_: DefinitionHash) -> Graph | None:
        return self._graphs.get(hash_)

    async def find(self, hash_: DefinitionHash) -> Graph | None:
        """Returns the graph of a stored definition; None if the definition is not stored."""
        graph = self._graphs.get(hash_)
        if graph is None:
            definition = await self._archive.get_definition(hash_)
            if definition is None:
                return None
            graph = Graph(decode_workflow(definition.document))
            self.add(hash_, graph)
        return graph

    async def get(self, hash_: DefinitionHash) -> Graph:
        """Returns the graph of a stored definition.

        Raises BrokenInvariantError if the definition is not stored.
        """
        graph = await self.find(hash_)
        if graph is None:
            raise BrokenInvariantError(f"definition {hash_} is used but not stored")
        return graph
