"""Nodes in detail, many executions at once, and workflows that are deleted, over HTTP."""

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from tests.api import BOTH, ApiUnderTest, open_api

FLAKY: dict[str, Any] = {
    "name": "flaky",
    "nodes": [
        {"id": "first", "handler": "output", "config": {"x": "{{ input.x }}"}},
        {
            "id": "second",
            "handler": "work",
            "config": {"got": "{{ first.x }}"},
            "retry": {"max_retries": 1, "initial_delay": 0},
        },
    ],
}
WAITING: dict[str, Any] = {
    "name": "waiting",
    "nodes": [{"id": "ask", "handler": "wait_for_signal", "config": {"signal": "go"}}],
}
MAPPED: dict[str, Any] = {
    "name": "mapped",
    "nodes": [
        {"id": "each", "handler": "work", "for_each": "input.items", "config": {"n": "{{ item }}"}}
    ],
}


@pytest.fixture(params=BOTH)
async def api(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[ApiUnderTest]:
    async with open_api(request.param, request, tmp_path) as opened:
        for each in (FLAKY, WAITING, MAPPED):
            await opened.post("/v1/workflows", each)
        yield opened


async def begin(api: ApiUnderTest, name: str, **body: Any) -> str:
    begun = await api.post(f"/v1/workflows/{name}/run", body)
    return str(begun["execution_id"])


async def listed(api: ApiUnderTest, *, status: str, count: int) -> None:
    """An archive is told of what ended a moment later."""
    async with asyncio.timeout(20.0):
        while True:
            found = await api.get("/v1/executions", params={"status": status})
            if len(found["items"]) == count:
                return


async def test_a_node_is_shown_with_its_attempts(api: ApiUnderTest) -> None:
    api.work.failures["second"] = [ConnectionError("once")]
    execution_id = await begin(api, "flaky", input={"x": 7})
    await api.ended(execution_id)

    node = await api.get(f"/v1/executions/{execution_id}/nodes/second")
    nope = await api.http.get(f"/v1/executions/{execution_id}/nodes/secnd")

    assert [each["outcome"] for each in node["attempts"]] == ["failed", "completed"]
    assert "once" in node["attempts"][0]["error"]["message"]
    assert node["config"] == {"got": 7}
    assert node["inputs"] == {"first": {"x": 7}}
    assert node["output"] == {"got": 7}
    assert nope.status_code == 404
    assert "second" in nope.json()["detail"]


async def test_items_of_a_map_come_in_pages(api: ApiUnderTest) -> None:
    execution_id = await begin(api, "mapped", input={"items": [5, 6, 7]})
    await api.ended(execution_id)
    path = f"/v1/executions/{execution_id}/nodes/each"

    first = await api.get(path, params={"items_limit": 2})
    rest = await api.get(path, params={"items_after": first["items"]["next"]})
    one = await api.get(path, params={"item": 1})

    assert [each["output"] for each in first["items"]["items"]] == [{"n": 5}, {"n": 6}]
    assert [each["item"] for each in rest["items"]["items"]] == [2]
    assert (one["item"], one["output"], one["config"]) == (1, {"n": 6}, {"n": 6})


async def test_many_are_cancelled_by_a_filter(api: ApiUnderTest) -> None:
    ids = [await begin(api, "waiting", labels={"batch": "7"}) for _ in range(3)]
    other = await begin(api, "waiting")

    step = await api.post("/v1/executions/cancel", {"label": ["batch=7"], "reason": "enough"})
    ended = [(await api.ended(each))["status"] for each in ids]

    assert set(step["ids"]) == set(ids)
    assert step["next"] is None
    assert ended == ["CANCELLED"] * 3
    assert (await api.get(f"/v1/executions/{other}"))["finished_at"] is None


async def test_many_are_chosen_by_their_time(api: ApiUnderTest) -> None:
    execution_id = await begin(api, "waiting")
    begun = (await api.get(f"/v1/executions/{execution_id}"))["created_at"]

    before = await api.post("/v1/executions/cancel", {"created_before": begun})
    since = await api.post("/v1/executions/cancel", {"created_from": begun})

    assert (before["ids"], since["ids"]) == ([], [execution_id])


async def test_many_are_rerun_once(api: ApiUnderTest) -> None:
    api.work.failures["second"] = [ValueError("no")] * 2
    ids = [await begin(api, "flaky", input={"x": n}) for n in range(2)]
    failed = [(await api.ended(each))["status"] for each in ids]
    await listed(api, status="FAILED", count=2)

    step = await api.post("/v1/executions/rerun", {"workflow": "flaky"})
    ended = [(await api.ended(each))["status"] for each in step["ids"]]
    again = await api.post("/v1/executions/rerun", {"workflow": "flaky"})

    assert failed == ["FAILED", "FAILED"]
    assert ended == ["COMPLETED", "COMPLETED"]
    assert (again["ids"], again["known"]) == ([], 2)


@pytest.mark.parametrize("path", ["/v1/executions/cancel", "/v1/executions/rerun"])
async def test_everything_has_to_be_asked_for(api: ApiUnderTest, path: str) -> None:
    answer = await api.http.post(path, json={})

    assert answer.status_code == 422
    assert "'every'" in answer.json()["detail"]


async def test_a_workflow_is_deleted_when_nothing_runs_any_more(api: ApiUnderTest) -> None:
    execution_id = await begin(api, "waiting")
    refused = await api.http.delete("/v1/workflows/waiting")
    await api.post(f"/v1/executions/{execution_id}/signal", {"name": "go"})
    await api.ended(execution_id)

    deleted = await api.call("DELETE", "/v1/workflows/waiting")
    gone = await api.http.post("/v1/workflows/waiting/run")
    listed = await api.get("/v1/workflows")

    assert (refused.status_code, refused.json()["code"]) == (409, "wrong_state")
    assert deleted == {"versions": 1}
    assert gone.status_code == 404
    assert "waiting" not in [each["name"] for each in listed["items"]]
    assert (await api.get(f"/v1/executions/{execution_id}"))["status"] == "COMPLETED"
