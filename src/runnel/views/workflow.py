"""Views of stored workflows, and of their graphs as data and as Mermaid text."""

from collections.abc import Sequence
from typing import Annotated

import msgspec
from msgspec import Meta

from runnel.core.graph import CompiledNode, Graph
from runnel.core.ids import DefinitionHash
from runnel.core.values import Json
from runnel.core.workflow import WAIT_FOR_SIGNAL
from runnel.views import Timestamp


class StoredWorkflow(msgspec.Struct, frozen=True, kw_only=True):
    """One version of a workflow; `workflow_definition_id` is the hash of its content."""

    name: str
    version: int
    workflow_definition_id: DefinitionHash
    nodes: int
    active_version: Annotated[
        int | None,
        Meta(description="The version that runs by name; null if the newest version runs"),
    ] = None


class Activation(msgspec.Struct, frozen=True, kw_only=True):
    """A choice of the version that runs by name; without a version, the newest runs."""

    version: int | None
    activated_by: str
    activated_at: Timestamp


class ActiveVersion(msgspec.Struct, frozen=True, kw_only=True):
    """The version of a workflow that `run`, webhooks and schedules use, with earlier choices.

    `activations` is empty if no version was ever activated; then the newest version runs.
    """

    name: str
    version: Annotated[int, Meta(description="The version that runs by name")]
    activations: Annotated[
        Sequence[Activation], Meta(description="The last 20 activations, newest first")
    ]


class ListedWorkflow(StoredWorkflow, frozen=True, kw_only=True):
    """One version of a workflow, with its document if the request asks for it."""

    document: Annotated[
        dict[str, Json] | None,
        Meta(
            description="The workflow in the format of workflow files, if the request asks for it"
        ),
    ] = None


class WorkflowDocument(StoredWorkflow, frozen=True, kw_only=True):
    """One version of a workflow with its content."""

    document: Annotated[
        dict[str, Json], Meta(description="The workflow in the format of workflow files")
    ]


class DeletedWorkflow(msgspec.Struct, frozen=True, kw_only=True):
    """The result of deleting a workflow."""

    versions: Annotated[int, Meta(description="The number of deleted versions")]


class ValidWorkflow(msgspec.Struct, frozen=True, kw_only=True):
    """The result of validating a workflow that is valid."""

    name: str
    nodes: int
    layers: int


class GraphNode(msgspec.Struct, frozen=True, kw_only=True):
    id: str
    handler: str


class GraphView(msgspec.Struct, frozen=True, kw_only=True):
    """A graph: nodes, edges from parent to child, and layers of nodes that may run at once."""

    workflow: str
    nodes: Sequence[GraphNode]
    edges: Sequence[tuple[str, str]]
    layers: Sequence[Sequence[str]]


def build_graph_view(graph: Graph) -> GraphView:
    return GraphView(
        workflow=graph.workflow.name,
        nodes=[GraphNode(id=child.node.id, handler=child.node.handler) for child in graph.nodes],
        edges=[
            (graph.nodes[parent].node.id, child.node.id)
            for child in graph.nodes
            for parent in child.parents
        ],
        layers=graph.layers(),
    )


# Mermaid text identifies nodes by number, so that a node id of any characters is only a label.

# All other characters become entities, because quotes, brackets, `#`, `<` and line ends have a
# meaning in Mermaid.
_UNESCAPED_CHARS = frozenset(" _-.,:/()")


def render_mermaid(graph: Graph) -> str:
    lines = ["flowchart TD"]
    lines += [f"    {_render_node(compiled)}" for compiled in graph.nodes]
    for compiled in graph.nodes:
        lines += [f"    n{parent} --> n{compiled.index}" for parent in compiled.parents]
    return "\n".join(lines)


def escape_label(text: str) -> str:
    return "".join(
        char if char.isalnum() or char in _UNESCAPED_CHARS else f"#{ord(char)};" for char in text
    )


def _render_node(compiled: CompiledNode) -> str:
    """Returns the Mermaid text of a node.

    A condition is a hexagon, a map has double sides, and a signal is a rounded box.
    """
    label = f'"{escape_label(compiled.node.id)}"'
    if compiled.node.for_each is not None:
        return f"n{compiled.index}[[{label}]]"
    if compiled.node.condition is not None:
        return f"n{compiled.index}{{{{{label}}}}}"
    if compiled.node.handler == WAIT_FOR_SIGNAL:
        return f"n{compiled.index}([{label}])"
    return f"n{compiled.index}[{label}]"
