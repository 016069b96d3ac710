"""Every tick and every webhook starts one execution, although one process of each kind is killed.

There are 60 ticks and 60 webhooks. RUNNEL_API_KILLS sets another number:
`RUNNEL_API_KILLS=1000 pytest <this file>`.
"""

import asyncio
import os
import signal
from collections import Counter
from collections.abc import AsyncIterator, Awaitable
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import Any

import httpx
import pytest

from runnel.app.private_servers.postgres import PostgresServer
from runnel.app.private_servers.redis import RedisServer
from tests.e2e.program import DEADLINE_S, Program, RunningProgram
from tests.waiting import wait_for_value, wait_until

COUNT = int(os.environ.get("RUNNEL_API_KILLS", "60"))
TICKS = 5 if COUNT < 500 else 20  # per schedule, one per second
SCHEDULES = COUNT // TICKS
LIMIT_S = DEADLINE_S + COUNT / 5
pytestmark = [pytest.mark.e2e, pytest.mark.timeout(LIMIT_S + 6 * DEADLINE_S)]
SENDERS = 8
ANSWERS = "Runnel answers on "
SECRET = "open-sesame-7"
WORKER = ("worker", "--concurrency", "4")
ATTEMPTS = 5


@dataclass(kw_only=True)
class Cluster:
    """Two processes of each kind. `apis` are clients of the two API processes.

    `kill_one_of_each` kills the first process of each kind. `answered` maps the number of a
    webhook to its execution.
    """

    apis: list[httpx.AsyncClient]
    processes: dict[str, list[RunningProgram]]
    answered: dict[int, str] = field(default_factory=dict)

    @property
    def http(self) -> httpx.AsyncClient:
        return self.apis[1]

    def kill_one_of_each(self) -> None:
        for first, _ in self.processes.values():
            first.send(signal.SIGKILL)


async def test_each_tick_and_webhook_starts_one_execution_although_processes_are_killed(
    tmp_path: Path, own_redis: RedisServer, own_postgres: PostgresServer
) -> None:
    servers = {"REDIS_URL": own_redis.url, "POSTGRES_URL": own_postgres.url}
    async with cluster(Program(tmp_path), servers) as running:
        for name in ("ticking", "called"):
            await check_success(running.http.post("/v1/workflows", json=workflow(name)))
        await add_webhook(running)
        begin = await add_schedules(running)
        async with asyncio.TaskGroup() as group:
            for first in range(SENDERS):
                group.create_task(send_webhooks(running, range(first, COUNT, SENDERS), begin))
            await wait_until(lambda: len(running.answered) >= COUNT // 2, LIMIT_S)
            running.kill_one_of_each()
        called = await wait_for_executions(running, "called")
        ticking = await wait_for_executions(running, "ticking")
        schedules = await read_pages(running, "/v1/schedules")

    assert len(running.answered) == COUNT
    assert {execution["execution_id"] for execution in called} == set(running.answered.values())
    assert len(called) == COUNT
    ticks = Counter(
        (execution["labels"]["schedule"], execution["labels"]["runnel.tick"])
        for execution in ticking
    )
    assert (len(ticks), set(ticks.values())) == (COUNT, {1})
    assert {
        (schedule["fired"], schedule["missed"], schedule["failed"]) for schedule in schedules
    } == {(TICKS, 0, 0)}
    assert {execution["status"] for execution in (*called, *ticking)} == {"COMPLETED"}


@asynccontextmanager
async def cluster(program: Program, servers: dict[str, str]) -> AsyncIterator[Cluster]:
    environment = {
        **servers,
        "RUNNEL_SECRET_SHOP": SECRET,
        "RUNNEL_API_RATE_LIMIT": "0",
        "ORCHESTRATOR_LEASE_TIMEOUT": "2",
        "WORKER_HEARTBEAT_INTERVAL": "0.5",
        "WORKER_HEARTBEAT_TIMEOUT": "3",
        "RUNNEL_LOG_LEVEL": "error",  # no test reads these logs
    }
    kinds = {"api": ("api", "--port", "0"), "orchestrator": ("orchestrator",), "worker": WORKER}
    async with AsyncExitStack() as stack:
        processes = {
            kind: [
                await stack.enter_async_context(program.running(*words, **environment))
                for _ in range(2)
            ]
            for kind, words in kinds.items()
        }
        apis = []
        for process in processes["api"]:
            url = (await process.read_until(ANSWERS)).removeprefix(ANSWERS)
            client = httpx.AsyncClient(base_url=url, timeout=DEADLINE_S)
            apis.append(await stack.enter_async_context(client))
        running = Cluster(apis=apis, processes=processes)
        await wait_for_value(lambda: is_ready(running), every_s=0.1, deadline_s=DEADLINE_S)
        yield running


async def is_ready(running: Cluster) -> bool | None:
    health = (await running.http.get("/health/ready")).json()
    workers = (await running.http.get("/v1/workers")).json()["items"]
    return (health["status"] == "ready" and len(workers) == 2) or None


async def add_webhook(running: Cluster) -> None:
    hook = {"kind": "token", "secret": "shop", "mapping": {"number": "{{ body.number }}"}}
    await check_success(running.http.put("/v1/workflows/called/triggers/webhook", json=hook))


async def add_schedules(running: Cluster) -> float:
    """Adds schedules that all tick in the same seconds; returns the time of the first tick.

    All schedules are stored before that time.
    """
    begin = now() + 2 + SCHEDULES / 20
    for number in range(SCHEDULES):
        body = {
            "id": f"tick-{number}",
            "workflow": "ticking",
            "interval_s": 1,
            "starts_at": format_time(begin),
            "ends_at": format_time(begin + TICKS - 0.5),
            "input": {"number": number},
        }
        await check_success(running.http.post("/v1/schedules", json=body))
    assert now() < begin
    return begin


async def send_webhooks(running: Cluster, numbers: range, begin: float) -> None:
    """Sends webhooks while the schedules tick; repeats a webhook without an answer, with its id."""
    for number in numbers:
        await wait_until(partial(is_past, begin + TICKS * number / COUNT), LIMIT_S)
        for attempt in range(ATTEMPTS):
            api = running.apis[(number + attempt) % 2]
            if (execution_id := await deliver(api, number)) is not None:
                running.answered[number] = execution_id
                break


async def deliver(api: httpx.AsyncClient, number: int) -> str | None:
    """Sends one webhook; returns its execution id, or None without a successful answer."""
    headers = {"X-Webhook-Token": SECRET, "X-Request-Id": f"delivery-{number}"}
    try:
        answer = await api.post(
            "/v1/workflows/called/triggers/webhook", json={"number": number}, headers=headers
        )
    except httpx.TransportError:
        return None
    return str(answer.json()["execution_id"]) if answer.is_success else None


async def wait_for_executions(running: Cluster, name: str) -> list[dict[str, Any]]:
    """Returns all executions of a workflow once there are COUNT and all are final."""

    async def read_final() -> list[dict[str, Any]] | None:
        executions = await read_pages(running, "/v1/executions", workflow=name)
        are_final = all(execution["finished_at"] is not None for execution in executions)
        return executions if len(executions) >= COUNT and are_final else None

    return await wait_for_value(read_final, every_s=0.2, deadline_s=LIMIT_S)


async def read_pages(running: Cluster, path: str, **filters: str) -> list[dict[str, Any]]:
    items: list[dict[str, Any]] = []
    after: dict[str, str] = {}
    while True:
        params = {"limit": "500", **filters, **after}
        page = (await check_success(running.http.get(path, params=params))).json()
        items += page["items"]
        if page["next"] is None:
            return items
        after = {"after": page["next"]}


async def check_success(call: Awaitable[httpx.Response]) -> httpx.Response:
    answer = await call
    assert answer.is_success, answer.text
    return answer


def workflow(name: str) -> dict[str, Any]:
    node = {"id": "greet", "handler": "output", "config": {"number": "{{ input.number }}"}}
    return {"name": name, "nodes": [node]}


def is_past(at: float) -> bool:
    return now() >= at


def now() -> float:
    return datetime.now(UTC).timestamp()


def format_time(at: float) -> str:
    return datetime.fromtimestamp(at, UTC).isoformat()
