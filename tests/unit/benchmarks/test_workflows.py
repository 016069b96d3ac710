"""What is measured is what is said to be measured."""

from collections.abc import Callable

import pytest

from runnel.bench import setup as workflows
from runnel.core.validation import find_problems
from runnel.core.workflow import Workflow


def edges_of(workflow: Workflow) -> int:
    return sum(len(set(node.dependencies)) for node in workflow.nodes)


@pytest.mark.parametrize(
    ("make", "nodes", "edges"),
    [
        (workflows.diamond, 4, 4),
        (workflows.napping_diamond, 4, 4),
        (workflows.chain, 20, 19),
        (workflows.fan, 1_002, 2_000),
        (workflows.graph, 2_000, 6_000),
        (workflows.mapping, 1, 0),
        (workflows.waiting, 2, 1),
    ],
)
def test_a_workflow_is_valid_and_of_the_size_that_is_told(
    make: Callable[[], Workflow], nodes: int, edges: int
) -> None:
    workflow = make()

    assert not find_problems(workflow)
    assert (len(workflow.nodes), edges_of(workflow)) == (nodes, edges)
