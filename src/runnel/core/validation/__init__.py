"""The parts of validation, one idea a file; `runnel.core.validation` puts them together."""

from collections.abc import Iterator
from itertools import islice

import msgspec

from runnel.core.graph import Graph
from runnel.core.templates.nodes import RESERVED
from runnel.core.validation.checks import id_problem, json_problems, node_values, workflow_values
from runnel.core.validation.handler_settings import setting_problems
from runnel.core.validation.references import template_problems
from runnel.core.validation.structure import (
    CHILD_DEPTH_MAX,
    Nested,
    Structure,
    cycle_problems,
    dependency_problems,
    unfold,
)
from runnel.core.wording import printable, quoted, shown
from runnel.core.workflow import Node, Workflow, encode_workflow
from runnel.errors import InvalidWorkflowError

# Whether a workflow can be run: all of its problems in one answer, each a sentence for its
# author.
#
# Nothing here recurses, and the cost grows with nodes and edges: a chain of 100,000 nodes takes
# about a second.

PROBLEMS_MAX = 100
NODES_PER_STEP = 10_000


class Limits(msgspec.Struct, frozen=True, kw_only=True):
    """How large a definition may be, its child workflows included."""

    nodes_max: int = 1_000_000
    definition_bytes_per_10k_nodes: int = 1_000_000


DEFAULT_LIMITS = Limits()


def build_graph(
    workflow: Workflow, *, limits: Limits = DEFAULT_LIMITS, source: str | None = None
) -> Graph:
    """Raises InvalidWorkflowError with every problem; `source` is what it calls the workflow."""
    problems = find_problems(workflow, limits=limits)
    if problems:
        raise InvalidWorkflowError(problems, source=source or f"workflow {shown(workflow.name)}")
    return Graph(workflow)


def find_problems(workflow: Workflow, *, limits: Limits = DEFAULT_LIMITS) -> list[str]:
    """Empty for a workflow that can run; after the first hundred, only that there are more."""
    problems = [printable(each) for each in islice(_problems(workflow, limits), PROBLEMS_MAX + 1)]
    if len(problems) > PROBLEMS_MAX:
        problems[-1] = f"there are more than these {PROBLEMS_MAX} problems; mend these first"
    return problems


def _problems(workflow: Workflow, limits: Limits) -> Iterator[str]:
    nested = unfold(workflow)
    too_large = list(_extent(nested, limits))
    yield from too_large
    for path, each in nested.workflows:
        for problem in _own_problems(each):
            yield path + problem
    if not too_large:
        yield from _size(workflow, nested.nodes, limits)


def _extent(nested: Nested, limits: Limits) -> Iterator[str]:
    if nested.depth > CHILD_DEPTH_MAX:
        yield f"child workflows are nested {nested.depth} deep, at most {CHILD_DEPTH_MAX} may be"
    if nested.nodes > limits.nodes_max:
        yield f"it has {nested.nodes:,} nodes, at most {limits.nodes_max:,} may be; split it"


def _size(workflow: Workflow, nodes: int, limits: Limits) -> Iterator[str]:
    try:
        found = len(encode_workflow(workflow))
    except (TypeError, ValueError, OverflowError, RecursionError):
        return  # what is not JSON has been named already
    steps = max(1, -(-nodes // NODES_PER_STEP))
    most = steps * limits.definition_bytes_per_10k_nodes
    if found > most:
        yield (
            f"the definition has {found:,} bytes, at most {most:,} may be for {nodes:,} nodes; "
            "pass large values as input, or split it"
        )


def _own_problems(workflow: Workflow) -> Iterator[str]:
    if not workflow.nodes:
        yield "nodes: expected at least one node, got none"
    yield from workflow_values(workflow)
    yield from json_problems(workflow.input, "input")
    yield from json_problems(workflow.output, "output")
    yield from _id_problems(workflow)
    for node in workflow.nodes:
        for problem in _node_problems(node):
            yield f"node {shown(node.id)}: {problem}"
    if all(_is_linkable(node) for node in workflow.nodes):
        structure = Structure(workflow.nodes)
        yield from dependency_problems(structure)
        yield from cycle_problems(structure)
        yield from template_problems(structure, workflow)


def _id_problems(workflow: Workflow) -> Iterator[str]:
    seen: set[str] = set()
    repeated: set[str] = set()
    for node in workflow.nodes:
        problem = id_problem(node.id)
        if problem is not None:
            yield problem
        elif node.id in RESERVED:
            yield (
                f"node {quoted(node.id)}: the id is a reserved name of templates; choose another, "
                f"such as '{node.id}_node'"
            )
        elif node.id in seen and node.id not in repeated:
            repeated.add(node.id)
            yield f"node {quoted(node.id)}: more than one node has this id; give each its own"
        else:
            seen.add(node.id)


def _node_problems(node: Node) -> Iterator[str]:
    yield from node_values(node)
    if node.config:
        yield from json_problems(node.config, "config")
    yield from setting_problems(node)


def _is_linkable(node: Node) -> bool:
    """Enough of a node to look for edges; what is wrong otherwise has been named already."""
    return isinstance(node.id, str)
