"""Random workflows: graphs, policies, maps, children, keys, rates, signals, sleeps, retries."""

from random import Random
from typing import Any

import msgspec

from runnel.core.ids import NodeId
from runnel.core.retry import RetryPolicy
from runnel.core.run_when import RunWhen
from runnel.core.workflow import Node, OnFailure, RateLimit, Workflow
from runnel.testing.simulation.script import WORK, work_config

SIGNAL = "go"
NODES_MAX = 6
TAG = "api"
KEY_LIMITS = {"one": 1, "two": 2}
# More of the default, or hardly any graph would run to its end.
_RULES = (*RunWhen, RunWhen.DEFAULT, RunWhen.DEFAULT, RunWhen.DEFAULT)


def random_workflow(chance: Random, name: str, *, depth: int = 0) -> Workflow:
    is_limited = chance.random() < 0.5
    nodes: list[Node] = []
    for index in range(chance.randint(1, NODES_MAX - 2 * depth)):
        parents = tuple(node.id for node in nodes if chance.random() < 0.45)
        nodes.append(
            _random_node(chance, NodeId(f"n{index}"), parents, is_limited=is_limited, depth=depth)
        )
    return Workflow(
        name=name,
        nodes=tuple(nodes),
        on_failure=chance.choice([*OnFailure]),
        max_concurrency=chance.choice([None, 1, 2]) if is_limited else None,
        rate_limits={TAG: RateLimit(rate_per_second=2.0, burst=1)},
    )


def _random_node(
    chance: Random, id_: NodeId, parents: tuple[NodeId, ...], *, is_limited: bool, depth: int
) -> Node:
    fields: dict[str, Any] = {
        "id": id_,
        "dependencies": parents,
        "run_when": chance.choice(_RULES),
        "condition": _random_condition(chance, parents),
    }
    kind = chance.random() if parents else 1.0
    if kind < 0.08:
        return Node(handler="sleep", config={"seconds": chance.choice([0.5, 4])}, **fields)
    if kind < 0.16 and depth == 0:
        config = {"signal": SIGNAL}
        return Node(handler="wait_for_signal", config=config, **fields)
    if kind < 0.26 and depth == 0:
        child = random_workflow(chance, f"child-{id_}", depth=1)
        return Node(handler="workflow", child=child, retry=RetryPolicy(max_retries=0), **fields)
    return _random_work(chance, fields, is_limited=is_limited)


def _random_condition(chance: Random, parents: tuple[NodeId, ...]) -> str | None:
    """False, or true after a look at an output, which may have been put aside."""
    if not parents or chance.random() < 0.7:
        return None
    return "false" if chance.random() < 0.4 else f"({parents[0]} | default(1)) != 'never'"


def _random_work(chance: Random, fields: dict[str, Any], *, is_limited: bool) -> Node:
    hangs = chance.random() < 0.05
    retries = chance.choice([0, 1, 3])
    if chance.random() < 0.25:
        fields["for_each"] = str([*range(chance.choice([0, 1, 3, 7]))])
    if is_limited and chance.random() < 0.5:
        key = chance.choice([*KEY_LIMITS])
        fields |= {"concurrency_key": key, "concurrency_limit": KEY_LIMITS[key]}
    if chance.random() < 0.1:
        fields["resource_tag"] = TAG
    return Node(
        handler=WORK,
        config=work_config(
            takes_s=1_000.0 if hangs else chance.choice([0.0, 0.01, 0.3, 2.0]),
            fails=chance.choice([0, 0, 0, 1, 2]),
            is_bad=chance.random() < 0.1,
            is_large=chance.random() < 0.15,
        ),
        retry=RetryPolicy(max_retries=retries, initial_delay=0.2, max_delay=1.0),
        timeout_seconds=3.0 if hangs else 10_000.0,
        **fields,
    )


def with_endless_node(workflow: Workflow) -> Workflow:
    """For an execution that will be cancelled: the code of this node ends only when told to."""
    endless = Node(
        id=NodeId("endless"),
        handler=WORK,
        config=work_config(takes_s=100_000.0),
        timeout_seconds=200_000.0,
    )
    return msgspec.structs.replace(workflow, nodes=(*workflow.nodes, endless))


def signals_of(workflow: Workflow) -> int:
    """How many signals it may wait for, its children's not counted."""
    return sum(node.handler == "wait_for_signal" for node in workflow.nodes)
