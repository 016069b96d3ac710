"""What an operator sees and does over HTTP, the same on every backend."""

from collections.abc import AsyncIterator, Awaitable, Callable
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from runnel.views.token import Scope
from tests.api import BOTH, ApiUnderTest, open_api
from tests.waiting import wait_for_value

found = partial(wait_for_value, every_s=0.02, deadline_s=10.0)

WORK: dict[str, Any] = {
    "name": "one",
    "nodes": [{"id": "a", "handler": "work", "config": {"n": 1}}],
}
KEYED: dict[str, Any] = {
    "name": "keyed",
    "nodes": [
        {
            "id": each,
            "handler": "work",
            "concurrency_key": "printer",
            "concurrency_limit": 1,
        }
        for each in ("a", "b")
    ],
}


@pytest.fixture(params=BOTH)
async def api(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[ApiUnderTest]:
    async with open_api(request.param, request, tmp_path) as opened:
        yield opened


@pytest.fixture
async def guarded(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[ApiUnderTest]:
    async with open_api("memory", request, tmp_path, is_open=False) as opened:
        yield opened


async def run(api: ApiUnderTest, document: Any) -> str:
    await api.post("/v1/workflows", document)
    begun = await api.post(f"/v1/workflows/{document['name']}/run")
    return str(begun["execution_id"])


async def test_a_worker_is_listed_with_what_it_runs_and_since_when(api: ApiUnderTest) -> None:
    gate = api.work.gate("a")
    execution_id = await run(api, WORK)
    await api.work.entered["a"].wait()

    async def running() -> Any:
        (seen,) = (await api.get("/v1/workers"))["items"]
        return seen if seen["tasks"] else None

    seen = await found(running)
    alone = await api.get(f"/v1/workers/{seen['worker']}")
    gate.set()

    (task,) = seen["tasks"]
    assert (seen["state"], seen["holds"], seen["concurrency"]) == ("alive", 1, 16)
    assert (task["execution_id"], task["node_id"], task["item"]) == (execution_id, "a", None)
    assert (task["workflow"], task["handler"], task["attempt"]) == ("one", "work", 1)
    assert task["started_at"] >= seen["claimed_at"] >= seen["started_at"]
    assert alone["worker"] == seen["worker"]
    assert (await api.ended(execution_id))["status"] == "COMPLETED"


async def test_a_worker_that_is_drained_finishes_what_it_runs_and_leaves(api: ApiUnderTest) -> None:
    gate = api.work.gate("a")
    execution_id = await run(api, WORK)
    await api.work.entered["a"].wait()
    (worker,) = (await api.get("/v1/workers"))["items"]

    told = await api.post(f"/v1/workers/{worker['worker']}/drain")

    async def state() -> list[str]:
        return [each["state"] for each in (await api.get("/v1/workers"))["items"]]

    await found(lambda: _is(state, ["draining"]))
    gate.set()
    await found(lambda: _is(state, []))
    assert told == {"worker": worker["worker"]}
    assert api.work.calls == ["a"]
    nodes = (await api.get(f"/v1/executions/{execution_id}"))["nodes"]
    assert nodes["a"]["state"] in {"COMPLETED", "QUEUED", "RUNNING"}


async def test_a_queue_shows_what_waits_and_who_takes_it(api: ApiUnderTest) -> None:
    gate = api.work.gate("a")
    many = {
        "name": "many",
        "nodes": [{"id": "a", "handler": "work", "for_each": "{{ input.items }}"}],
    }
    await api.post("/v1/workflows", many)
    begun = await api.post("/v1/workflows/many/run", {"input": {"items": list(range(200))}})

    async def waiting() -> Any:
        seen = {each["queue"]: each for each in (await api.get("/v1/queues"))["items"]}
        return seen.get("work") if seen.get("work", {}).get("waiting") else None

    seen = await found(waiting)
    gate.set()

    assert (seen["workers"], seen["problem"]) == (1, "")
    assert 0 < seen["waiting"] <= 200
    assert seen["oldest_s"] >= 0
    assert (await api.ended(begun["execution_id"]))["status"] == "COMPLETED"


async def test_a_concurrency_key_shows_who_holds_it_and_who_waits(api: ApiUnderTest) -> None:
    gates = [api.work.gate(each) for each in ("a", "b")]
    execution_id = await run(api, KEYED)

    async def contended() -> Any:
        seen = (await api.get("/v1/limits"))["items"]
        return seen[0] if seen and seen[0]["waiting"] else None

    seen = await found(contended)
    behind = await api.get("/v1/limits", params={"after": "printer"})
    for gate in gates:
        gate.set()

    assert (seen["key"], seen["holding"], seen["waiting"]) == ("printer", 1, 1)
    ((holder,), (waiter,)) = (seen["holders"], seen["waiters"])
    assert {holder["node_id"], waiter["node_id"]} == {"a", "b"}
    assert {holder["execution_id"], waiter["execution_id"]} == {execution_id}
    assert holder["limit"] == 1
    assert behind == {"items": [], "next": None}
    assert (await api.ended(execution_id))["status"] == "COMPLETED"
    assert (await api.get("/v1/limits"))["items"] == []


async def test_a_partition_shows_who_decides_for_it(api: ApiUnderTest) -> None:
    execution_id = await run(api, WORK)
    await api.ended(execution_id)

    async def settled() -> Any:
        seen = (await api.get("/v1/partitions"))["items"]
        is_done = all(each["owner"] and not each["unarchived"] for each in seen)
        return seen if is_done else None

    seen = await found(settled)

    assert [each["partition"] for each in seen] == sorted(each["partition"] for each in seen)
    assert {each["epoch"] for each in seen} <= {1, 2}
    assert not any(each["is_silent"] or each["problem"] for each in seen)
    assert all(each["unread_s"] < 5 for each in seen)


async def test_a_server_is_ready_while_somebody_decides_and_somebody_works(
    api: ApiUnderTest,
) -> None:
    async def ready() -> Any:
        seen = await api.get("/health/ready")
        return seen if seen["status"] == "ready" else None

    seen = await found(ready)

    assert seen["parts"] == dict.fromkeys(("store", "archive", "orchestrators", "workers"))


async def test_a_server_without_workers_is_degraded_and_ready(api: ApiUnderTest) -> None:
    (worker,) = (await api.get("/v1/workers"))["items"]
    await api.post(f"/v1/workers/{worker['worker']}/drain")

    async def degraded() -> Any:
        answer = await api.http.get("/health/ready")
        seen = answer.json()
        # They are given back one after the other.
        is_alone = str(seen["parts"]["orchestrators"]).startswith("no orchestrator")
        is_alone = is_alone and seen["parts"]["workers"] is not None
        return (answer.status_code, seen) if is_alone else None

    status, seen = await found(degraded)

    assert (status, seen["status"]) == (200, "degraded")
    assert seen["parts"] == {
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
async def test_what_is_not_there_is_said_so(
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
    assert still["state"] == "alive"


async def _is(look: Callable[[], Awaitable[object]], expected: object) -> bool | None:
    return await look() == expected or None
