"""Temporal: workflows of activities, on its development server."""

import asyncio
import itertools
import time
from collections.abc import Iterable, Sequence
from datetime import timedelta
from typing import Any

from temporalio import activity, workflow
from temporalio.client import Client
from temporalio.worker import UnsandboxedWorkflowRunner, Worker

from .order import CHAIN_LENGTH, FAN_WIDTH, MeasurementOrder, read_order, run_order

QUEUE = "peer"
START_TIMEOUT_S = 30.0
POLL_INTERVAL_S = 0.1
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


def run_activity(run: Any, *values: Any) -> Any:
    return workflow.execute_activity(run, args=values, start_to_close_timeout=ACTIVITY_LIMIT)


async def fan_out_and_join(increments: Iterable[int]) -> Any:
    start = await run_activity(first)
    values = await asyncio.gather(*[run_activity(add, start, number) for number in increments])
    return await run_activity(total, values)


@workflow.defn
class Diamond:
    @workflow.run
    async def run(self) -> Any:
        return await fan_out_and_join((1, 2))


@workflow.defn
class Chain:
    @workflow.run
    async def run(self) -> Any:
        value = await run_activity(first)
        for _ in range(CHAIN_LENGTH - 1):
            value = await run_activity(add, value, 1)
        return value


@workflow.defn
class Fan:
    @workflow.run
    async def run(self) -> Any:
        return await fan_out_and_join(range(FAN_WIDTH))


WORKFLOWS: dict[str, Any] = {"diamonds": Diamond, "chain": Chain, "fan": Fan}


async def connect(url: str) -> Any:
    """Connects, and retries until the new server is ready."""
    end = time.monotonic() + START_TIMEOUT_S
    while True:
        try:
            return await Client.connect(url)
        except RuntimeError:
            if time.monotonic() > end:
                raise
            await asyncio.sleep(POLL_INTERVAL_S)


async def work(order: MeasurementOrder) -> None:
    concurrency, pollers = order.settings["concurrency"], order.settings["pollers"]
    await Worker(
        await connect(order.url),
        task_queue=QUEUE,
        workflows=list(WORKFLOWS.values()),
        activities=[first, add, total],
        # The sandbox checks for determinism and costs time; these workflows are deterministic.
        workflow_runner=UnsandboxedWorkflowRunner(),
        max_concurrent_activities=concurrency,
        max_concurrent_workflow_tasks=concurrency,
        max_concurrent_activity_task_polls=pollers,
        max_concurrent_workflow_task_polls=pollers,
    ).run()


async def submit_and_measure(order: MeasurementOrder) -> None:
    client = await connect(order.url)

    async def start(workload: str) -> Any:
        run = WORKFLOWS[workload].run
        return await client.start_workflow(run, id=f"{workload}-{next(numbers)}", task_queue=QUEUE)

    async def run(workload: str, count: int) -> Sequence[int]:
        handles = await asyncio.gather(*[start(workload) for _ in range(count)])
        results: Sequence[int] = await asyncio.gather(*[handle.result() for handle in handles])
        return results

    await run_order(order, run)


def measure() -> None:
    asyncio.run(submit_and_measure(read_order()))


def worker() -> None:
    asyncio.run(work(read_order()))
