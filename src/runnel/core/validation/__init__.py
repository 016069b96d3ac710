"""Validates workflows: finds all problems of a workflow in one pass, as sentences for its
author.
"""

from collections.abc import Iterator
from itertools import islice

import msgspec

from runnel.core.graph import Graph, compile_canonical
from runnel.core.message_text import describe_value, escape_unprintable, quote_name
from runnel.core.templates.nodes import INPUT_NODE, RESERVED_NAMES
from runnel.core.validation.checks import (
    check_node_fields,
    check_node_id,
    check_workflow_fields,
    find_json_problems,
)
from runnel.core.validation.handler_settings import (
    find_setting_problems,
    mock_incomplete_services,
)
from runnel.core.validation.references import find_template_problems
from runnel.core.validation.structure import (
    CHILD_DEPTH_MAX,
    DependencyGraph,
    NestedWorkflows,
    collect_nested_workflows,
    find_cycle_problems,
    find_dependency_problems,
)
from runnel.core.workflow import Node, Workflow, encode_workflow
from runnel.errors import InvalidWorkflowError

# The checks do not recurse, and their cost grows linearly with nodes and edges. A chain of 100,000
# nodes takes about a second.

PROBLEMS_SHOWN_MAX = 100


class DefinitionLimits(msgspec.Struct, frozen=True, kw_only=True):
    """The size limits of a definition, including its child workflows.

    The size may grow with the number of nodes. A node of a decorated function takes 180 to 400
    bytes. Redis can't store a value above 512 MB.
    """

    nodes_max: int = 1_000_000
    definition_bytes: int = 1_000_000
    definition_bytes_per_node: int = 1_000
    definition_bytes_max: int = 500_000_000


DEFAULT_LIMITS = DefinitionLimits()


def build_graph(
    workflow: Workflow,
    *,
    limits: DefinitionLimits = DEFAULT_LIMITS,
    source: str | None = None,
    mocks_services: bool = False,
) -> Graph:
    """Returns the graph of a valid workflow. Raises InvalidWorkflowError with every problem.

    `source` is the name of the workflow in the error message. `mocks_services` is as in
    `find_problems`.
    """
    problems = find_problems(workflow, limits=limits, mocks_services=mocks_services)
    if problems:
        raise InvalidWorkflowError(
            problems, source=source or f"workflow {describe_value(workflow.name)}"
        )
    return compile_canonical(workflow)


def find_problems(
    workflow: Workflow,
    *,
    limits: DefinitionLimits = DEFAULT_LIMITS,
    mocks_services: bool = False,
) -> list[str]:
    """Returns the problems of a workflow; an empty list if it is valid.

    If there are more than 100 problems, the last entry says so. With `mocks_services`, a service
    needs no URL and no model, because the workers mock it.
    """
    if mocks_services:
        workflow = mock_incomplete_services(workflow)
    problems = [
        escape_unprintable(problem)
        for problem in islice(_find_all_problems(workflow, limits), PROBLEMS_SHOWN_MAX + 1)
    ]
    if len(problems) > PROBLEMS_SHOWN_MAX:
        problems[-1] = f"there are more than {PROBLEMS_SHOWN_MAX} problems; fix these first"
    return problems


def _find_all_problems(workflow: Workflow, limits: DefinitionLimits) -> Iterator[str]:
    nested = collect_nested_workflows(workflow)
    too_large = list(_check_extent(nested, limits))
    yield from too_large
    for path, nested_workflow in nested.workflows:
        for problem in _find_own_problems(nested_workflow):
            yield path + problem
    if not too_large:
        yield from _check_definition_size(workflow, nested.nodes, limits)


def _check_extent(nested: NestedWorkflows, limits: DefinitionLimits) -> Iterator[str]:
    if nested.depth > CHILD_DEPTH_MAX:
        yield (
            f"child workflows are nested {nested.depth} levels deep, at most {CHILD_DEPTH_MAX} "
            "are allowed"
        )
    if nested.nodes > limits.nodes_max:
        yield (
            f"the workflow has {nested.nodes:,} nodes, at most {limits.nodes_max:,} are "
            "allowed; split it"
        )


def _check_definition_size(
    workflow: Workflow, nodes: int, limits: DefinitionLimits
) -> Iterator[str]:
    try:
        size = len(encode_workflow(workflow))
    except (TypeError, ValueError, OverflowError, RecursionError):
        return  # another check has already reported a value that is not JSON
    bytes_max = min(
        limits.definition_bytes + nodes * limits.definition_bytes_per_node,
        limits.definition_bytes_max,
    )
    if size > bytes_max:
        yield (
            f"the definition has {size:,} bytes, at most {bytes_max:,} are allowed for "
            f"{nodes:,} nodes; pass large values as input, or split it"
        )


def _find_own_problems(workflow: Workflow) -> Iterator[str]:
    if not workflow.nodes:
        yield "nodes: expected at least one node, got none"
    yield from check_workflow_fields(workflow)
    yield from find_json_problems(workflow.input, "input")
    yield from find_json_problems(workflow.output, "output")
    yield from _find_id_problems(workflow)
    for node in workflow.nodes:
        for problem in _find_node_problems(node):
            yield f"node {describe_value(node.id)}: {problem}"
    if all(_is_linkable(node) for node in workflow.nodes):
        structure = DependencyGraph(workflow.nodes)
        yield from find_dependency_problems(structure)
        yield from find_cycle_problems(structure)
        yield from find_template_problems(structure, workflow)


def _find_id_problems(workflow: Workflow) -> Iterator[str]:
    seen: set[str] = set()
    repeated: set[str] = set()
    for node in workflow.nodes:
        problem = check_node_id(node.id)
        if problem is not None:
            yield problem
        elif node.id in RESERVED_NAMES and not _provides_input(node):
            yield (
                f"node {quote_name(node.id)}: the id is a reserved name of templates; choose "
                f"another, such as '{node.id}_node'{_explain_input_node(node)}"
            )
        elif node.id in seen and node.id not in repeated:
            repeated.add(node.id)
            yield f"node {quote_name(node.id)}: more than one node has this id; give each its own"
        else:
            seen.add(node.id)


def _provides_input(node: Node) -> bool:
    """Returns True if `input` is the same value as this node's output and as the execution's
    input.
    """
    has_same_name = node.id == node.handler == INPUT_NODE
    return has_same_name and not node.config and node.for_each is None


def _explain_input_node(node: Node) -> str:
    if node.id != INPUT_NODE:
        return ""
    return (
        "; only a node with the handler 'input', without config and for_each, may have the id "
        "'input'"
    )


def _find_node_problems(node: Node) -> Iterator[str]:
    yield from check_node_fields(node)
    if node.config:
        yield from find_json_problems(node.config, "config")
    yield from find_setting_problems(node)


def _is_linkable(node: Node) -> bool:
    """Returns True if the dependencies of the node can be checked.

    Other problems of the node are already reported.
    """
    return isinstance(node.id, str)
