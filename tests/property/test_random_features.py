"""All features at once: maps, children, keys, signals, sleeps, blobs, clean-up and faults.

There is no reference for all of them together. Every run must end, nothing may remain, and no step
may break an invariant (`check_invariants` runs after each).
"""

import random
from collections.abc import Sequence
from typing import Any

import pytest

from runnel.core.retry import RetryPolicy
from runnel.core.run_when import RunWhen
from runnel.core.workflow import EnginePolicy, Node, OnFailure, Workflow
from tests.core_driver import PERMANENT, TRANSIENT, CoreDriver, make_node, make_workflow

SEEDS = 1_500
STEPS_MAX = 2_000
RETRY = RetryPolicy(max_retries=2, initial_delay=1, jitter=False, retry_on=("ChildFailed",))
SMALL = EnginePolicy(in_flight_max=3, inline_bytes_max=30)


def random_workflow(chance: random.Random, depth: int = 0) -> Workflow:
    nodes: list[Node] = []
    for index in range(chance.randint(1, 6)):
        parents = [parent.id for parent in nodes if chance.random() < 0.4]
        nodes.append(random_node(f"n{index}", parents, chance, depth))
    return make_workflow(
        *nodes,
        on_failure=chance.choice([*OnFailure]),
        max_concurrency=chance.choice([None, 1, 2]),
        timeout_seconds=chance.choice([None, None, 500]),
    )


def random_node(name: str, parents: Sequence[str], chance: random.Random, depth: int) -> Node:
    fields: dict[str, Any] = {
        "run_when": chance.choice([*RunWhen, RunWhen.DEFAULT, RunWhen.DEFAULT]),
        "retry": RETRY,
    }
    kind = chance.random()
    if kind < 0.1:
        return make_node(name, *parents, handler="sleep", config={"seconds": 5}, **fields)
    if kind < 0.2:
        config = {"signal": "go", "timeout_seconds": 40, "on_timeout": "complete"}
        return make_node(name, *parents, handler="wait_for_signal", config=config, **fields)
    if chance.random() < 0.3:
        fields["for_each"] = chance.choice(["input.items", "[]", "[1, 2, 3, 4, 5]"])
    if kind < 0.35 and depth < 2:
        child = random_workflow(chance, depth + 1)
        return make_node(name, *parents, handler="workflow", child=child, **fields)
    if chance.random() < 0.3:
        fields["concurrency_key"] = chance.choice(["k", "{{ input.key }}"])
    if parents and chance.random() < 0.3:
        fields["condition"] = f"({parents[0]} | default(1)) != 3"
    return make_node(name, *parents, **fields)


def one_step(driver: CoreDriver, chance: random.Random) -> None:
    choice = chance.random()
    if not driver.tasks or choice < 0.05:
        driver.advance(chance.choice([1.0, 10.0, 60.0]))
        return
    token = chance.choice([*driver.tasks])
    if choice < 0.1:
        driver.take_over(tasks_survive=chance.random() < 0.5)
    elif choice < 0.13:
        driver.signal("go", signal_id=f"s{chance.randint(0, 5)}")
    elif choice < 0.14:
        driver.cancel()
    elif choice < 0.2:
        driver.lose_token(token, was_started=chance.random() < 0.2)
    elif choice < 0.3:
        driver.send_failed(token, TRANSIENT)
    elif choice < 0.36:
        driver.send_failed(token, PERMANENT)
    elif choice < 0.5:
        driver.complete_with_blob(token, {"large": "x" * 50})
    else:
        driver.send_completed(token, chance.choice([1, 3, "text", {"a": [1]}]))


@pytest.mark.slow
@pytest.mark.timeout(120)
def test_every_execution_ends_and_leaves_nothing_despite_faults() -> None:
    for seed in range(SEEDS):
        chance = random.Random(seed)
        driver = CoreDriver(random_workflow(chance), policy=SMALL)
        driver.start({"items": ["a", "b", "c", "d"], "key": "input-key"})

        for _ in range(STEPS_MAX):
            if all(execution.is_final for execution in driver.all_executions()):
                break
            one_step(driver, chance)

        unfinished = [
            execution.id for execution in driver.all_executions() if not execution.is_final
        ]
        assert not unfinished, f"seed {seed}: {unfinished}"
        assert not driver.tasks, f"seed {seed}"
        assert not driver.timers, f"seed {seed}"
        holders = [limit for limit in driver.limits.values() if not limit.is_empty]
        assert not holders, f"seed {seed}"
