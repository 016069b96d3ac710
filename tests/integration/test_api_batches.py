"""`POST /v1/workflows/{name}/batch` starts an execution for each input, or none at all."""

from collections.abc import AsyncIterator
from pathlib import Path

import httpx
import pytest

from runnel.settings.model import Settings
from runnel.views.token import Scope
from tests.api import KINDS, ApiUnderTest, open_api
from tests.waiting import wait_for_value

DOUBLE = {
    "name": "team/double",
    "input": {"type": "object", "required": ["n"], "properties": {"n": {"type": "integer"}}},
    "nodes": [{"id": "a", "handler": "work", "config": {"n": "{{ input.n }}"}}],
}
PATH = "/v1/workflows/team/double/batch"


@pytest.fixture(params=KINDS)
async def api(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[ApiUnderTest]:
    async with open_api(request.param, request, tmp_path) as opened:
        await opened.post("/v1/workflows", DOUBLE)
        yield opened


async def test_a_batch_returns_the_stored_executions_in_the_order_of_the_inputs(
    api: ApiUnderTest,
) -> None:
    inputs = [{"n": n} for n in range(1_000)]

    batch = await api.post(PATH, {"inputs": inputs, "labels": {"team": "red"}})

    ids = batch["execution_ids"]
    assert (batch["workflow"], batch["version"], len(set(ids))) == ("team/double", 1, 1_000)
    for number in (0, 499, 999):
        execution = await api.wait_for_end(ids[number])
        assert (execution["output"], execution["labels"]) == ({"n": number}, {"team": "red"})


async def test_a_repeated_batch_with_the_same_key_starts_nothing_twice(api: ApiUnderTest) -> None:
    body = {"inputs": [{"n": 1}, {"n": 1}, {"n": 3}]}
    key = {"Idempotency-Key": "monday"}

    first = await api.post(PATH, body, headers=key)
    second = await api.post(PATH, body, headers=key)
    own_keys = {**body, "idempotency_keys": ["monday:0", "monday:1", "monday:2"]}
    third = await api.post(PATH, own_keys)

    assert first == second == third
    for execution_id in first["execution_ids"]:
        await api.wait_for_end(execution_id)
    assert api.work.calls == ["a"] * 3


async def test_each_problem_has_the_index_and_the_path_of_its_input(api: ApiUnderTest) -> None:
    refused = await api.http.post(PATH, json={"inputs": [{"n": 1}, {"n": "two"}, {}]})

    assert refused.status_code == 422
    assert refused.json()["errors"] == [
        {"path": "$.inputs[1].n", "message": "expected a whole number, got 'two'"},
        {"path": "$.inputs[2]", "message": "the field 'n' is missing"},
    ]
    assert (await api.get("/v1/executions"))["items"] == []


async def test_a_held_execution_has_its_input_and_labels(api: ApiUnderTest) -> None:
    body = {"input": {"n": 7}, "labels": {"team": "red"}, "hold": True}
    held = await api.post("/v1/workflows/team/double/run", body)

    await api.post(f"/v1/workflow/trigger/{held['execution_id']}", {})

    assert held["status"] == "PENDING"
    execution = await api.wait_for_end(held["execution_id"])
    assert (execution["output"], execution["labels"]["team"]) == ({"n": 7}, "red")


async def test_a_batch_needs_the_scope_of_a_run_and_counts_as_one_request(
    request: pytest.FixtureRequest, tmp_path: Path
) -> None:
    async with open_api("sqlite", request, tmp_path, is_open=False) as api:
        runs = {"Authorization": f"Bearer {await api.token(Scope.RUN, per_minute=2)}"}
        reads = {"Authorization": f"Bearer {await api.token(Scope.READ)}"}
        await api.post("/v1/workflows", DOUBLE, headers=runs)
        body = {"inputs": [{"n": n} for n in range(500)]}

        unread = await api.http.post(PATH, json=body, headers=reads)
        done = await api.http.post(PATH, json=body, headers=runs)
        limited = await api.http.post(PATH, json=body, headers=runs)

    assert [unread.status_code, done.status_code, limited.status_code] == [403, 201, 429]


async def test_a_batch_is_refused_while_a_queue_is_full(
    request: pytest.FixtureRequest, tmp_path: Path
) -> None:
    settings = Settings(queue_tasks_max=5)
    async with open_api("sqlite", request, tmp_path, settings=settings) as api:
        await api.post("/v1/workflows", DOUBLE)
        gate = api.work.gate("a")
        await api.post(PATH, {"inputs": [{"n": n} for n in range(100)]})
        await api.work.entered["a"].wait()

        async def find_refusal() -> httpx.Response | None:  # the API reads the queues once a second
            answer = await api.http.post(PATH, json={"inputs": [{"n": 1}]})
            return None if answer.is_success else answer

        refused = await wait_for_value(find_refusal, every_s=0.1, deadline_s=10.0)
        gate.set()

    assert (refused.status_code, refused.json()["code"]) == (503, "overloaded")
