"""A floor runs all nodes of a graph, in an order that the graph allows."""

from collections.abc import Callable

import pytest

from bench.floors.batch import FloorExecutions, build_shape, make_creation
from runnel.bench import workflows
from runnel.core.commands import Command, TaskCompleted
from runnel.core.evolve import replay
from runnel.core.graph import Graph
from runnel.core.ids import ExecutionId, Nonce
from runnel.core.states import ExecutionState
from runnel.core.values import NULL
from runnel.core.workflow import Workflow


@pytest.mark.parametrize(
    "make",
    [
        workflows.build_diamond,
        workflows.build_chain,
        workflows.build_fan,
        workflows.build_large_graph,
    ],
)
def test_a_floor_stores_the_history_of_a_completed_execution(
    make: Callable[[], Workflow],
) -> None:
    workflow = make()
    shape = build_shape(workflow)
    runs = FloorExecutions(shape)
    entries: list[bytes] = []
    commands: list[Command] = [make_creation(shape, ExecutionId("e"), 1.0)]

    while commands:
        batch = runs.decide(commands, 2.0, Nonce("n"))
        entries += [entry for _, entry in batch.encode_entries()]
        commands = [
            TaskCompleted(token=token, output=NULL, worker="w", started_at=2.0)
            for token in batch.tasks
        ]

    execution = replay(entries, lambda _hash: Graph(workflow))
    assert execution is not None
    assert execution.state is ExecutionState.COMPLETED
