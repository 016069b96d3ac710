"""Celery: chains and chords, on Redis as broker and result backend.

Its workers are `celery --app programs.on_celery worker`.
"""

import asyncio
from typing import Any

from celery import Celery, chain, chord, group

from .order import CHAIN_LENGTH, FAN_WIDTH, read_order, run_order

RESULT_LIMIT_S = 300

order = read_order()
app = Celery("peer", broker=order.url, backend=order.url)
app.conf.update(
    task_acks_late=True,
    task_reject_on_worker_lost=True,
    worker_prefetch_multiplier=order.settings["prefetch"],
    broker_connection_retry_on_startup=True,
)


@app.task
def first() -> int:
    return 1


@app.task
def add(value: int, more: int) -> int:
    return value + more


@app.task
def total(values: list[int]) -> int:
    return sum(values)


def build_diamond() -> Any:
    return chain(first.s(), group(add.s(1), add.s(2)), total.s())


def build_chain() -> Any:
    return chain(first.s(), *[add.s(1) for _ in range(CHAIN_LENGTH - 1)])


def build_fan() -> Any:
    return chain(first.s(), chord([add.s(number) for number in range(FAN_WIDTH)], total.s()))


CANVASES = {"diamonds": build_diamond, "chain": build_chain, "fan": build_fan}


async def run(workload: str, count: int) -> list[int]:
    # A new canvas per execution, because n calls of one canvas give n results with one id.
    submitted = [CANVASES[workload]().apply_async() for _ in range(count)]
    return [result.get(timeout=RESULT_LIMIT_S) for result in submitted]


def measure() -> None:
    asyncio.run(run_order(order, run))
