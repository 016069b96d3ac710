"""Two of each process, of which one is killed: every tick and every webhook is one execution.

How many of each is 60, or what RUNNEL_API_KILLS says: `RUNNEL_API_KILLS=1000 pytest <this file>`.
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
TICKS = 5 if COUNT < 500 else 20  # of each schedule, one a second
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
    """`apis` are two servers; the first process of each kind is the one to be killed."""

    apis: list[httpx.AsyncClient]
    processes: dict[str, list[RunningProgram]]
    answered: dict[int, str] = field(default_factory=dict)

    @property
    def http(self) -> httpx.AsyncClient:
        return self.apis[1]

    def kill_one_of_each(self) -> None:
        for first, _ in self.processes.values():
            first.send(signal.SIGKILL)


async def test_ticks_and_webhooks_are_executions_though_processes_are_killed(
    tmp_path: Path, own_redis: RedisServer, own_postgres: PostgresServer
) -> None:
    servers = {"REDIS_URL": own_redis.url, "POSTGRES_URL": own_postgres.url}
    async with cluster(Program(tmp_path), servers) as running:
        for name in ("ticking", "called"):
            await done(running.http.post("/v1/workflows", json=workflow(name)))
        await let_be_called(running)
        begin = await schedule(running)
        async with asyncio.TaskGroup() as group:
            for first in range(SENDERS):
                group.create_task(send(running, range(first, COUNT, SENDERS), begin))
            await wait_until(lambda: len(running.answered) >= COUNT // 2, LIMIT_S)
            running.kill_one_of_each()
        called = await ended(running, "called")
        ticking = await ended(running, "ticking")
        schedules = await pages(running, "/v1/schedules")

    assert len(running.answered) == COUNT
    assert {each["execution_id"] for each in called} == set(running.answered.values())
    assert len(called) == COUNT
    ticks = Counter((each["labels"]["schedule"], each["labels"]["runnel.tick"]) for each in ticking)
    assert (len(ticks), set(ticks.values())) == (COUNT, {1})
    assert {(each["fired"], each["missed"], each["failed"]) for each in schedules} == {
        (TICKS, 0, 0)
    }
    assert {each["status"] for each in (*called, *ticking)} == {"COMPLETED"}


@asynccontextmanager
async def cluster(program: Program, servers: dict[str, str]) -> AsyncIterator[Cluster]:
    environment = {
        **servers,
        "RUNNEL_SECRET_SHOP": SECRET,
        "RUNNEL_API_RATE_LIMIT": "0",
        "ORCHESTRATOR_LEASE_TIMEOUT": "2",
        "WORKER_HEARTBEAT_INTERVAL": "0.5",
        "WORKER_HEARTBEAT_TIMEOUT": "3",
        "RUNNEL_LOG_LEVEL": "error",  # nobody reads what they say
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
        for each in processes["api"]:
            url = (await each.says(ANSWERS)).removeprefix(ANSWERS)
            client = httpx.AsyncClient(base_url=url, timeout=DEADLINE_S)
            apis.append(await stack.enter_async_context(client))
        running = Cluster(apis=apis, processes=processes)
        await wait_for_value(lambda: ready(running), every_s=0.1, deadline_s=DEADLINE_S)
        yield running


async def ready(running: Cluster) -> bool | None:
    found = (await running.http.get("/health/ready")).json()
    workers = (await running.http.get("/v1/workers")).json()["items"]
    return (found["status"] == "ready" and len(workers) == 2) or None


async def let_be_called(running: Cluster) -> None:
    hook = {"kind": "token", "secret": "shop", "mapping": {"number": "{{ body.number }}"}}
    await done(running.http.put("/v1/workflows/called/triggers/webhook", json=hook))


async def schedule(running: Cluster) -> float:
    """All tick in the same seconds, from the returned one on; by then all of them are stored."""
    begin = now() + 2 + SCHEDULES / 20
    for number in range(SCHEDULES):
        body = {
            "id": f"tick-{number}",
            "workflow": "ticking",
            "interval_s": 1,
            "starts_at": moment(begin),
            "ends_at": moment(begin + TICKS - 0.5),
            "input": {"number": number},
        }
        await done(running.http.post("/v1/schedules", json=body))
    assert now() < begin
    return begin


async def send(running: Cluster, numbers: range, begin: float) -> None:
    """Spread over the time of the ticks; what was not answered is sent again, under its own id."""
    for number in numbers:
        await wait_until(partial(is_past, begin + TICKS * number / COUNT), LIMIT_S)
        for attempt in range(ATTEMPTS):
            api = running.apis[(number + attempt) % 2]
            if (found := await delivered(api, number)) is not None:
                running.answered[number] = found
                break


async def delivered(api: httpx.AsyncClient, number: int) -> str | None:
    """The execution, if there was a good answer."""
    headers = {"X-Webhook-Token": SECRET, "X-Request-Id": f"delivery-{number}"}
    try:
        answer = await api.post(
            "/v1/workflows/called/triggers/webhook", json={"number": number}, headers=headers
        )
    except httpx.TransportError:
        return None
    return str(answer.json()["execution_id"]) if answer.is_success else None


async def ended(running: Cluster, name: str) -> list[dict[str, Any]]:
    """All executions of a workflow, once there are enough and none is under way."""

    async def look() -> list[dict[str, Any]] | None:
        found = await pages(running, "/v1/executions", workflow=name)
        is_over = all(each["finished_at"] is not None for each in found)
        return found if len(found) >= COUNT and is_over else None

    return await wait_for_value(look, every_s=0.2, deadline_s=LIMIT_S)


async def pages(running: Cluster, path: str, **wanted: str) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = []
    after: dict[str, str] = {}
    while True:
        params = {"limit": "500", **wanted, **after}
        page = (await done(running.http.get(path, params=params))).json()
        found += page["items"]
        if page["next"] is None:
            return found
        after = {"after": page["next"]}


async def done(call: Awaitable[httpx.Response]) -> httpx.Response:
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


def moment(at: float) -> str:
    return datetime.fromtimestamp(at, UTC).isoformat()
