"""The measured workflows of decorated functions, written as a user writes them.

Each node takes and returns integers, and the benchmark checks the result of each execution. The
peers of `make bench` run the same graphs. A worker loads the functions with
`--app runnel.bench.functions`.
"""

from collections.abc import Callable, Mapping
from typing import Literal, NamedTuple, TypeAlias

from runnel.app.decorated import workflow
from runnel.authoring.decorators.task import task
from runnel.authoring.decorators.workflow import TracedWorkflow
from runnel.bench.workflows import CHAIN_NODES, FAN_WIDTH

FunctionKind: TypeAlias = Literal["sync", "async"]
FUNCTION_KINDS: tuple[FunctionKind, ...] = ("sync", "async")


@task
def add(value: int, more: int) -> int:
    return value + more


@task
def total(values: list[int]) -> int:
    return sum(values)


@task
async def add_async(value: int, more: int) -> int:
    return value + more


@task
async def total_async(values: list[int]) -> int:
    return sum(values)


@workflow(name="single-sync")
def single(x: int) -> int:
    return add(x, 1)


@workflow(name="diamond-sync")
def diamond(x: int) -> int:
    a = add(x, 1)
    return total([add(a, 1), add(a, 2)])


@workflow(name="chain-sync")
def chain(x: int) -> int:
    value = add(x, 1)
    for _ in range(CHAIN_NODES - 1):
        value = add(value, 1)
    return value


@workflow(name="fan-sync")
def fan(x: int) -> int:
    a = add(x, 1)
    return total([add(a, number) for number in range(FAN_WIDTH)])


@workflow(name="single-async")
def single_async(x: int) -> int:
    return add_async(x, 1)


@workflow(name="diamond-async")
def diamond_async(x: int) -> int:
    a = add_async(x, 1)
    return total_async([add_async(a, 1), add_async(a, 2)])


@workflow(name="chain-async")
def chain_async(x: int) -> int:
    value = add_async(x, 1)
    for _ in range(CHAIN_NODES - 1):
        value = add_async(value, 1)
    return value


@workflow(name="fan-async")
def fan_async(x: int) -> int:
    a = add_async(x, 1)
    return total_async([add_async(a, number) for number in range(FAN_WIDTH)])


class FunctionWorkflow(NamedTuple):
    """A workflow of decorated functions; `compute_result` returns the result for an input."""

    flow: TracedWorkflow[[int], int]
    compute_result: Callable[[int], int]


def _compute_diamond(x: int) -> int:
    return (x + 2) + (x + 3)


def _compute_chain(x: int) -> int:
    return x + CHAIN_NODES


def _compute_fan(x: int) -> int:
    return sum(x + 1 + number for number in range(FAN_WIDTH))


FUNCTION_WORKFLOWS: Mapping[FunctionKind, Mapping[str, FunctionWorkflow]] = {
    "sync": {
        "single": FunctionWorkflow(single, lambda x: x + 1),
        "diamond": FunctionWorkflow(diamond, _compute_diamond),
        "chain": FunctionWorkflow(chain, _compute_chain),
        "fan": FunctionWorkflow(fan, _compute_fan),
    },
    "async": {
        "single": FunctionWorkflow(single_async, lambda x: x + 1),
        "diamond": FunctionWorkflow(diamond_async, _compute_diamond),
        "chain": FunctionWorkflow(chain_async, _compute_chain),
        "fan": FunctionWorkflow(fan_async, _compute_fan),
    },
}
