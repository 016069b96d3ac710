"""DBOS: workflows of asynchronous steps, stored in SQLite or PostgreSQL.

With `executors` 0 the measuring process runs the workflows, like a program that embeds DBOS.
Otherwise it enqueues them for that number of executor processes.
"""

import asyncio
import threading
from typing import Any

from dbos import DBOS, DBOSClient, run_dbos_database_migrations
from sqlalchemy import Engine, event

from .order import CHAIN_LENGTH, FAN_WIDTH, read_order, run_order

QUEUE = "peer"

order = read_order()


@DBOS.step()
async def first() -> int:
    return 1


@DBOS.step()
async def add(value: int, more: int) -> int:
    return value + more


@DBOS.step()
async def total(values: list[int]) -> int:
    return sum(values)


@DBOS.workflow()
async def diamond() -> Any:
    start = await first()
    return await total(await asyncio.gather(add(start, 1), add(start, 2)))


@DBOS.workflow()
async def chain() -> Any:
    value = await first()
    for _ in range(CHAIN_LENGTH - 1):
        value = await add(value, 1)
    return value


@DBOS.workflow()
async def fan() -> Any:
    start = await first()
    return await total(await asyncio.gather(*[add(start, number) for number in range(FAN_WIDTH)]))


WORKFLOWS = {"diamonds": diamond, "chain": chain, "fan": fan}


async def run_inside(workload: str, count: int) -> list[int]:
    handles = await asyncio.gather(
        *[DBOS.start_workflow_async(WORKFLOWS[workload]) for _ in range(count)]
    )
    results: list[int] = await asyncio.gather(*[handle.get_result() for handle in handles])
    return results


async def run_on_executors(workload: str, count: int) -> list[int]:
    options = {"queue_name": QUEUE, "workflow_name": WORKFLOWS[workload].__qualname__}
    client = DBOSClient(system_database_url=order.url)
    try:
        handles = [client.enqueue(options) for _ in range(count)]
        poll_s = order.settings["poll_s"]
        return [handle.get_result(polling_interval_sec=poll_s) for handle in handles]
    finally:
        client.destroy()


def launch() -> None:
    apply_pragmas(order.settings["pragmas"])
    DBOS(
        config={
            "name": "peer",
            "system_database_url": order.url,
            "log_level": "ERROR",
            "sys_db_pool_size": order.settings["pool_size"],
        }
    )
    DBOS.launch()


def apply_pragmas(pragmas: list[str]) -> None:
    """Applies SQLite pragmas to every connection, because DBOS has no setting for them."""

    def tuned(connection: Any, _record: Any) -> None:
        for pragma in pragmas:
            connection.execute(f"PRAGMA {pragma}")

    event.listen(Engine, "connect", tuned)


def measure() -> None:
    if order.settings["executors"]:
        run_dbos_database_migrations(system_database_url=order.url)
        asyncio.run(run_order(order, run_on_executors))
    else:
        launch()
        asyncio.run(run_order(order, run_inside))


def worker() -> None:
    launch()
    DBOS.register_queue(
        QUEUE,
        worker_concurrency=order.settings["concurrency"],
        polling_interval_sec=order.settings["poll_s"],
    )
    threading.Event().wait()
