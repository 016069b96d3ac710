"""Temporal: workflows of activities, on its dev server."""

import asyncio
import itertools
import time
from collections.abc import Iterable, Sequence
from datetime import timedelta
from typing import Any

from temporalio import activity, workflow
from temporalio.client import Client
from temporalio.worker import UnsandboxedWorkflowRunner, Worker

from .order import CHAIN_LENGTH, FAN_WIDTH, Order, carry_out, read_order

QUEUE = "peer"
START_LIMIT_S = 30.0
LOOK_EVERY_S = 0.1
ACTIVITY_LIMIT = timedelta(minutes=5)

numbers = itertools.count()


@activity.defn
async def first() -> int:
    return 1


@activity.defn
async def add(value: int, more: int) -> int:
    return value + more


@activity.defn
async def total(values: list[int]) -> int:
    return sum(values)


def result_of(run: Any, *values: Any) -> Any:
    return workflow.execute_activity(run, args=values, start_to_close_timeout=ACTIVITY_LIMIT)


async def joined(adding: Iterable[int]) -> Any:
    start = await result_of(first)
    values = await asyncio.gather(*[result_of(add, start, number) for number in adding])
    return await result_of(total, values)


@workflow.defn
class Diamond:
    @workflow.run
    async def run(self) -> Any:
        return await joined((1, 2))


@workflow.defn
class Row:
    @workflow.run
    async def run(self) -> Any:
        value = await result_of(first)
        for _ in range(CHAIN_LENGTH - 1):
            value = await result_of(add, value, 1)
        return value


@workflow.defn
class Fan:
    @workflow.run
    async def run(self) -> Any:
        return await joined(range(FAN_WIDTH))


WORKFLOWS: dict[str, Any] = {"diamonds": Diamond, "chain": Row, "fan": Fan}


async def connected(url: str) -> Any:
    """The server was started a moment ago."""
    end = time.monotonic() + START_LIMIT_S
    while True:
        try:
            return await Client.connect(url)
        except RuntimeError:
            if time.monotonic() > end:
                raise
            await asyncio.sleep(LOOK_EVERY_S)


async def work(order: Order) -> None:
    concurrency, pollers = order.settings["concurrency"], order.settings["pollers"]
    await Worker(
        await connected(order.url),
        task_queue=QUEUE,
        workflows=list(WORKFLOWS.values()),
        activities=[first, add, total],
        # Its guard against workflows that are not deterministic costs time, and these are.
        workflow_runner=UnsandboxedWorkflowRunner(),
        max_concurrent_activities=concurrency,
        max_concurrent_workflow_tasks=concurrency,
        max_concurrent_activity_task_polls=pollers,
        max_concurrent_workflow_task_polls=pollers,
    ).run()


async def submit_and_measure(order: Order) -> None:
    client = await connected(order.url)

    async def started(workload: str) -> Any:
        run = WORKFLOWS[workload].run
        return await client.start_workflow(run, id=f"{workload}-{next(numbers)}", task_queue=QUEUE)

    async def run(workload: str, count: int) -> Sequence[int]:
        handles = await asyncio.gather(*[started(workload) for _ in range(count)])
        results: Sequence[int] = await asyncio.gather(*[each.result() for each in handles])
        return results

    await carry_out(order, run)


def measure() -> None:
    asyncio.run(submit_and_measure(read_order()))


def worker() -> None:
    asyncio.run(work(read_order()))
