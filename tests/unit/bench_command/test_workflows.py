"""The measured workflows have the documented sizes."""

from collections.abc import Callable

import pytest

from runnel.bench import workflows
from runnel.bench.functions import FUNCTION_KINDS, FUNCTION_WORKFLOWS, FunctionKind
from runnel.core.validation import find_problems
from runnel.core.workflow import Workflow


def count_edges(workflow: Workflow) -> int:
    return sum(len(set(node.dependencies)) for node in workflow.nodes)


@pytest.mark.parametrize(
    ("make", "nodes", "edges"),
    [
        (workflows.build_diamond, 4, 4),
        (workflows.build_napping_diamond, 4, 4),
        (workflows.build_chain, 20, 19),
        (workflows.build_fan, 1_002, 2_000),
        (workflows.build_large_graph, 2_000, 6_000),
        (workflows.build_map, 1, 0),
        (workflows.build_signal_wait, 2, 1),
    ],
)
def test_a_workflow_is_valid_and_has_the_documented_size(
    make: Callable[[], Workflow], nodes: int, edges: int
) -> None:
    workflow = make()

    assert not find_problems(workflow)
    assert (len(workflow.nodes), count_edges(workflow)) == (nodes, edges)


@pytest.mark.parametrize("kind", FUNCTION_KINDS)
@pytest.mark.parametrize(
    ("shape", "make"),
    [
        ("diamond", workflows.build_diamond),
        ("chain", workflows.build_chain),
        ("fan", workflows.build_fan),
    ],
)
def test_functions_have_the_graph_of_the_engine_only_workflow(
    kind: FunctionKind, shape: str, make: Callable[[], Workflow]
) -> None:
    decorated, engine_only = FUNCTION_WORKFLOWS[kind][shape].flow.to_workflow(), make()

    assert len(decorated.nodes) == len(engine_only.nodes)
    assert count_edges(decorated) == count_edges(engine_only)
