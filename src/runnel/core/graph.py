"""A workflow compiled for execution: parents and children by index, parsed templates, encoded
configs.
"""

from collections import deque
from collections.abc import Sequence

import msgspec

from runnel.core.ids import DefinitionHash, NodeId
from runnel.core.run_when import CLEAN_UP_RULES
from runnel.core.templates.template import (
    FOR_EACH,
    CompiledExpression,
    TemplateTree,
    compile_expression,
    compile_tree,
)
from runnel.core.values import NO_DATA
from runnel.core.workflow import (
    Cache,
    Node,
    Workflow,
    decode_workflow,
    encode_workflow,
    hash_document,
    hash_workflow,
)

_encoder = msgspec.json.Encoder()


class CompiledNode:
    """A node in compiled form: its parents, children, parsed templates and encoded config."""

    __slots__ = (
        "cache_key",
        "child_hash",
        "children",
        "concurrency_key",
        "condition",
        "config",
        "config_raw",
        "for_each",
        "index",
        "is_clean_up",
        "needs",
        "node",
        "parents",
        "queue",
    )

    def __init__(self, index: int, node: Node) -> None:
        self.index = index
        self.node = node
        self.queue = node.task_queue
        self.parents: tuple[int, ...] = ()
        self.children: tuple[int, ...] = ()
        self.needs: tuple[int, ...] = ()
        self.child_hash = None if node.child is None else hash_workflow(node.child)
        self.is_clean_up = node.run_when in CLEAN_UP_RULES
        self.config: TemplateTree = compile_tree(node.config)
        self.cache_key = NO_DATA if node.cache is None else _encode_cache_key(node.cache)
        self.config_raw = msgspec.Raw(_encoder.encode(node.config))
        self.condition: CompiledExpression | None = _compile_optional(node.condition, "condition")
        self.for_each: CompiledExpression | None = _compile_optional(node.for_each, FOR_EACH)
        self.concurrency_key: TemplateTree | None = (
            compile_tree(node.concurrency_key, where="concurrency_key")
            if node.concurrency_key
            else None
        )


def _encode_cache_key(cache: Cache) -> msgspec.Raw:
    return msgspec.Raw(_encoder.encode(cache.key))


def _compile_optional(source: str | None, where: str) -> CompiledExpression | None:
    return None if source is None else compile_expression(source, where=where)


class Graph:
    """A validated and compiled workflow.

    A graph is immutable, and all executions of the workflow share it.
    """

    def __init__(self, workflow: Workflow, hash_: DefinitionHash | None = None) -> None:
        self.workflow = workflow
        self.hash: DefinitionHash = hash_ or hash_workflow(workflow)
        self.nodes = [CompiledNode(index, node) for index, node in enumerate(workflow.nodes)]
        self.index: dict[NodeId, int] = {node.id: i for i, node in enumerate(workflow.nodes)}
        self.output: TemplateTree = compile_tree(workflow.output, where="output")
        self._link()
        self.parent_counts = [len(node.parents) for node in self.nodes]
        self.roots = [node.index for node in self.nodes if not node.parents]
        self.leaves = [node.index for node in self.nodes if not node.children]
        self.clean_up = [node.index for node in self.nodes if node.is_clean_up]

    def node(self, node_id: NodeId) -> CompiledNode:
        return self.nodes[self.index[node_id]]

    def __len__(self) -> int:
        return len(self.nodes)

    def _link(self) -> None:
        children: list[list[int]] = [[] for _ in self.nodes]
        for compiled in self.nodes:
            parents = tuple(self.index[parent] for parent in compiled.node.dependencies)
            compiled.parents = parents
            for parent in parents:
                children[parent].append(compiled.index)
            compiled.needs = self.find_needs(compiled.index, compiled.config)
        for compiled, child_indexes in zip(self.nodes, children, strict=True):
            compiled.children = tuple(child_indexes)

    def find_needs(self, index: int, config: TemplateTree) -> tuple[int, ...]:
        """Returns the nodes whose outputs a task carries: the parents, then other nodes that the
        config names.
        """
        parents, node = self.nodes[index].parents, self.nodes[index].node
        references = config.references
        if node.cache is not None and node.cache.key is not None:
            references |= compile_tree(node.cache.key, where="cache.key").references
        if node.resource_tag is not None:
            references |= compile_tree(node.resource_tag, where="resource_tag").references
        roots = (NodeId(ref.root) for ref in references)
        named = {self.index[root] for root in roots if root in self.index}
        return (*parents, *sorted(named - set(parents)))

    def layers(self) -> list[list[NodeId]]:
        """Returns the node ids in layers, by their longest distance from a root.

        The nodes of one layer may run in parallel.
        """
        depth = [0] * len(self.nodes)
        for index in self.topological_order():
            for child in self.nodes[index].children:
                depth[child] = max(depth[child], depth[index] + 1)
        layers: list[list[NodeId]] = [[] for _ in range(max(depth, default=-1) + 1)]
        for compiled in self.nodes:
            layers[depth[compiled.index]].append(compiled.node.id)
        return layers

    def topological_order(self) -> list[int]:
        return sort_topologically([node.children for node in self.nodes], self.parent_counts)


def compile_canonical(workflow: Workflow) -> Graph:
    """Returns the graph of a valid workflow, compiled from its canonical form, which is the stored
    form.

    A process that loads the stored definition compiles an equal graph. The author's own form could
    give a different graph, because it may order the keys of an object differently.
    """
    document = encode_workflow(workflow)
    return Graph(decode_workflow(document), hash_document(document))


def sort_topologically(
    children: Sequence[Sequence[int]], parent_counts: Sequence[int]
) -> list[int]:
    """Returns the node indexes with parents before children.

    Uses Kahn's algorithm, in O(nodes + edges), without recursion.

    The result omits the nodes of a cycle and all nodes that depend on them.
    """
    unsorted_parents = list(parent_counts)
    queue = deque(index for index, count in enumerate(parent_counts) if not count)
    order = []
    while queue:
        index = queue.popleft()
        order.append(index)
        for child in children[index]:
            unsorted_parents[child] -= 1
            if not unsorted_parents[child]:
                queue.append(child)
    return order
