"""The whole engine against the reference: random graphs are run and judged by their history."""

import random
from pathlib import Path

import pytest

from runnel.core.retry import RetryPolicy
from runnel.core.run_when import RunWhen
from runnel.core.workflow import Node, OnFailure, Workflow
from runnel.views.execution import HistoryEvent
from simulation.reference import ReferenceExecution
from tests.core_driver import make_node, make_workflow
from tests.engines import WorkHandler, get_node_states, open_engine, run_to_end

GRAPHS = 60
NO_RETRY = RetryPolicy(max_retries=0)


def random_workflow(chance: random.Random) -> tuple[Workflow, set[str]]:
    nodes: list[Node] = []
    false = set()
    for index in range(chance.randint(1, 12)):
        name = f"n{index}"
        parents = [parent.id for parent in nodes if chance.random() < 0.3]
        if chance.random() < 0.1:
            false.add(name)
        nodes.append(
            make_node(
                name,
                *parents,
                run_when=chance.choice([*RunWhen, RunWhen.DEFAULT, RunWhen.DEFAULT]),
                condition="false" if name in false else None,
                retry=NO_RETRY,
            )
        )
    policy, slots = chance.choice([*OnFailure]), chance.choice([None, 1, 3])
    return make_workflow(*nodes, on_failure=policy, max_concurrency=slots), false


def replayed(
    definition: Workflow, false: set[str], history: list[HistoryEvent]
) -> ReferenceExecution:
    """Returns the reference, replayed in the order in which the engine issued and ended nodes."""
    expected = ReferenceExecution(definition, false)
    issued: set[str] = set()
    for happened in history:
        name = happened.fields.get("node", "")
        if happened.event == "NodeQueued":
            issued.add(name)
        elif happened.event in ("NodeCompleted", "NodeFailed"):
            expected.has_run = set(issued)
            expected.settle(name, is_ok=happened.event == "NodeCompleted")
    return expected


@pytest.mark.parametrize("kind", ["memory", "sqlite"])
async def test_the_engine_agrees_with_the_reference(kind: str, tmp_path: Path) -> None:
    chance = random.Random(20261115)
    work = WorkHandler()
    async with open_engine(kind, tmp_path, work) as engine:
        for _ in range(GRAPHS):
            definition, false = random_workflow(chance)
            work.failures = {
                node.id: [ValueError("planned")]
                for node in definition.nodes
                if chance.random() < 0.2
            }
            view = await run_to_end(engine, definition)
            history = await engine.client.history(view.execution_id)

            expected = replayed(definition, false, history)

            assert get_node_states(view) == expected.state
            assert view.status == expected.result
