"""taskiq: Redis streams with acknowledgement, results in Redis.

taskiq has no joins, so a coordinator task sends the nodes and awaits their results. If its worker
dies, the task starts again after ten minutes with all its nodes, so such a join is not durable. The
workers are `taskiq worker programs.on_taskiq:nodes` and `…:coordinators`. With one queue,
coordinators could take every slot and wait for nodes that get none.
"""

import asyncio
from collections.abc import Iterable
from typing import Any

from taskiq_redis import RedisAsyncResultBackend, RedisStreamBroker

from .order import CHAIN_LENGTH, FAN_WIDTH, read_order, run_order

RESULT_LIMIT_S = 300.0

order = read_order()


def build_broker(name: str) -> Any:
    broker = RedisStreamBroker(
        order.url, queue_name=name, xread_count=order.settings["read_count"], consumer_id="0"
    )
    return broker.with_result_backend(RedisAsyncResultBackend(order.url))


nodes = build_broker("nodes")
coordinators = build_broker("coordinators")


@nodes.task
async def first() -> int:
    return 1


@nodes.task
async def add(value: int, more: int) -> int:
    return value + more


@nodes.task
async def total(values: list[int]) -> int:
    return sum(values)


async def wait_for_result(sent: Any) -> int:
    answer = await sent.wait_result(check_interval=order.settings["poll_s"], timeout=RESULT_LIMIT_S)
    answer.raise_for_error()
    return int(answer.return_value)


async def wait_for_results(sent: list[Any]) -> list[int]:
    """Waits for one result after the other; polling for all at once costs more than the nodes."""
    return [await wait_for_result(task) for task in sent]


async def fan_out_and_join(increments: Iterable[int]) -> int:
    start = await wait_for_result(await first.kiq())
    sent = await asyncio.gather(*[add.kiq(start, number) for number in increments])
    return await wait_for_result(await total.kiq(await wait_for_results(sent)))


@coordinators.task
async def diamond() -> int:
    return await fan_out_and_join((1, 2))


@coordinators.task
async def chain() -> int:
    value = await wait_for_result(await first.kiq())
    for _ in range(CHAIN_LENGTH - 1):
        value = await wait_for_result(await add.kiq(value, 1))
    return value


@coordinators.task
async def fan() -> int:
    return await fan_out_and_join(range(FAN_WIDTH))


COORDINATORS = {"diamonds": diamond, "chain": chain, "fan": fan}


async def run(workload: str, count: int) -> list[int]:
    sent = await asyncio.gather(*[COORDINATORS[workload].kiq() for _ in range(count)])
    return await wait_for_results(sent)


async def start_and_measure() -> None:
    await nodes.startup()
    await coordinators.startup()
    await run_order(order, run)


def measure() -> None:
    asyncio.run(start_and_measure())
