"""Views and commands of an operator over HTTP, the same on every backend."""

from collections.abc import AsyncIterator, Awaitable, Callable
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from runnel.errors import EngineEndedError
from runnel.views.token import Scope
from tests.api import BOTH, ApiUnderTest, open_api
from tests.waiting import wait_for_value

wait_for = partial(wait_for_value, every_s=0.02, deadline_s=10.0)

WORK: dict[str, Any] = {
    "name": "one",
    "nodes": [{"id": "a", "handler": "work", "config": {"n": 1}}],
}
KEYED: dict[str, Any] = {
    "name": "keyed",
    "nodes": [
        {
            "id": node_id,
            "handler": "work",
            "concurrency_key": "printer",
            "concurrency_limit": 1,
        }
        for node_id in ("a", "b")
    ],
}


@pytest.fixture(params=BOTH)
async def api(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[ApiUnderTest]:
    try:
        async with open_api(request.param, request, tmp_path) as opened:
            yield opened
    except* EngineEndedError as ended:  # the test drained its worker
        if "its worker was drained" not in str(ended.exceptions[0]):
            raise


@pytest.fixture
async def guarded(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[ApiUnderTest]:
    async with open_api("memory", request, tmp_path, is_open=False) as opened:
        yield opened


async def start_execution(api: ApiUnderTest, document: Any) -> str:
    await api.post("/v1/workflows", document)
    execution = await api.post(f"/v1/workflows/{document['name']}/run")
    return str(execution["execution_id"])


async def test_a_worker_is_listed_with_its_running_tasks_and_their_start(api: ApiUnderTest) -> None:
    gate = api.work.gate("a")
    execution_id = await start_execution(api, WORK)
    await api.work.entered["a"].wait()

    async def running() -> Any:
        (worker,) = (await api.get("/v1/workers"))["items"]
        return worker if worker["tasks"] else None

    worker = await wait_for(running)
    alone = await api.get(f"/v1/workers/{worker['worker']}")
    gate.set()

    (task,) = worker["tasks"]
    assert (worker["status"], worker["holds"], worker["concurrency"]) == ("alive", 1, 16)
    assert (task["execution_id"], task["node_id"], task["item"]) == (execution_id, "a", None)
    assert (task["workflow"], task["handler"], task["attempt"]) == ("one", "work", 1)
    assert task["started_at"] >= worker["claimed_at"] >= worker["started_at"]
    assert alone["worker"] == worker["worker"]
    assert (await api.wait_for_end(execution_id))["status"] == "COMPLETED"


async def test_a_drained_worker_finishes_its_tasks_and_leaves(api: ApiUnderTest) -> None:
    gate = api.work.gate("a")
    execution_id = await start_execution(api, WORK)
    await api.work.entered["a"].wait()
    (worker,) = (await api.get("/v1/workers"))["items"]

    drained = await api.post(f"/v1/workers/{worker['worker']}/drain")

    async def state() -> list[str]:
        return [entry["status"] for entry in (await api.get("/v1/workers"))["items"]]

    await wait_for(lambda: matches(state, ["draining"]))
    gate.set()
    await wait_for(lambda: matches(state, []))
    assert drained == {"worker": worker["worker"]}
    assert api.work.calls == ["a"]
    nodes = (await api.get(f"/v1/executions/{execution_id}"))["nodes"]
    assert nodes["a"]["status"] in {"COMPLETED", "QUEUED", "RUNNING"}


async def test_a_queue_shows_its_waiting_tasks_and_its_workers(api: ApiUnderTest) -> None:
    gate = api.work.gate("a")
    many = {
        "name": "many",
        "nodes": [{"id": "a", "handler": "work", "for_each": "{{ input.items }}"}],
    }
    await api.post("/v1/workflows", many)
    execution = await api.post("/v1/workflows/many/run", {"input": {"items": list(range(200))}})

    async def waiting() -> Any:
        queue = {queue["queue"]: queue for queue in (await api.get("/v1/queues"))["items"]}
        return queue.get("work") if queue.get("work", {}).get("waiting") else None

    queue = await wait_for(waiting)
    gate.set()

    assert (queue["workers"], queue["problem"]) == (1, "")
    assert 0 < queue["waiting"] <= 200
    assert queue["oldest_s"] >= 0
    assert (await api.wait_for_end(execution["execution_id"]))["status"] == "COMPLETED"


async def test_a_concurrency_key_shows_its_holders_and_waiters(api: ApiUnderTest) -> None:
    gates = [api.work.gate(node_id) for node_id in ("a", "b")]
    execution_id = await start_execution(api, KEYED)

    async def contended() -> Any:
        limit = (await api.get("/v1/limits"))["items"]
        return limit[0] if limit and limit[0]["waiting"] else None

    limit = await wait_for(contended)
    next_page = await api.get("/v1/limits", params={"after": "printer"})
    for gate in gates:
        gate.set()

    assert (limit["key"], limit["holding"], limit["waiting"]) == ("printer", 1, 1)
    ((holder,), (waiter,)) = (limit["holders"], limit["waiters"])
    assert {holder["node_id"], waiter["node_id"]} == {"a", "b"}
    assert {holder["execution_id"], waiter["execution_id"]} == {execution_id}
    assert holder["limit"] == 1
    assert next_page == {"items": [], "next": None}
    assert (await api.wait_for_end(execution_id))["status"] == "COMPLETED"
    assert (await api.get("/v1/limits"))["items"] == []


async def test_a_partition_shows_its_owner(api: ApiUnderTest) -> None:
    execution_id = await start_execution(api, WORK)
    await api.wait_for_end(execution_id)

    async def settled() -> Any:
        partitions = (await api.get("/v1/partitions"))["items"]
        is_done = all(
            partition["owner"] and not partition["unarchived"] for partition in partitions
        )
        return partitions if is_done else None

    partitions = await wait_for(settled)

    assert [partition["partition"] for partition in partitions] == sorted(
        partition["partition"] for partition in partitions
    )
    assert {partition["epoch"] for partition in partitions} <= {1, 2}
    assert not any(partition["is_silent"] or partition["problem"] for partition in partitions)
    assert all(partition["unread_s"] < 5 for partition in partitions)


async def test_a_server_is_ready_while_an_orchestrator_and_a_worker_run(
    api: ApiUnderTest,
) -> None:
    async def ready() -> Any:
        health = await api.get("/health/ready")
        return health if health["status"] == "ready" else None

    health = await wait_for(ready)

    assert health["parts"] == dict.fromkeys(("store", "archive", "orchestrators", "workers"))


async def test_a_server_without_workers_is_degraded_but_ready(api: ApiUnderTest) -> None:
    (worker,) = (await api.get("/v1/workers"))["items"]
    await api.post(f"/v1/workers/{worker['worker']}/drain")

    async def degraded() -> Any:
        answer = await api.http.get("/health/ready")
        health = answer.json()
        # The partitions are released one after another.
        is_alone = str(health["parts"]["orchestrators"]).startswith("no orchestrator")
        is_alone = is_alone and health["parts"]["workers"] is not None
        return (answer.status_code, health) if is_alone else None

    status, health = await wait_for(degraded)

    assert (status, health["status"]) == (200, "degraded")
    assert health["parts"] == {
        "store": None,
        "archive": None,
        "orchestrators": "no orchestrator is alive: no execution makes progress",
        "workers": "no worker is alive: tasks wait",
    }


@pytest.mark.parametrize(
    ("method", "path", "status"),
    [
        ("GET", "/v1/workers/nobody", 404),
        ("POST", "/v1/workers/nobody/drain", 404),
        ("POST", "/v1/workers/%00/drain", 404),
        ("GET", "/v1/limits?limit=0", 422),
        ("GET", "/v1/limits?after=%00", 200),
    ],
)
async def test_an_unknown_worker_or_limit_is_reported(
    guarded: ApiUnderTest, method: str, path: str, status: int
) -> None:
    headers = {"Authorization": f"Bearer {await guarded.token(Scope.OPERATE)}"}

    answer = await guarded.http.request(method, path, headers=headers)

    assert answer.status_code == status, answer.text


async def test_only_an_operator_may_drain(guarded: ApiUnderTest) -> None:
    headers = {"Authorization": f"Bearer {await guarded.token(Scope.RUN)}"}
    (worker,) = (await guarded.get("/v1/workers", headers=headers))["items"]
    path = f"/v1/workers/{worker['worker']}/drain"

    refused = await guarded.http.post(path, headers=headers)
    anonymous = await guarded.http.get("/v1/workers")

    assert (refused.status_code, anonymous.status_code) == (403, 401)
    (still,) = (await guarded.get("/v1/workers", headers=headers))["items"]
    assert still["status"] == "alive"


async def matches(read: Callable[[], Awaitable[object]], expected: object) -> bool | None:
    return await read() == expected or None
