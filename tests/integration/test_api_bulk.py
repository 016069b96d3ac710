"""Node details, bulk operations and deleted workflows over HTTP."""

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
        for document in (FLAKY, WAITING, MAPPED):
            await opened.post("/v1/workflows", document)
        yield opened


async def start_execution(api: ApiUnderTest, name: str, **body: Any) -> str:
    execution = await api.post(f"/v1/workflows/{name}/run", body)
    return str(execution["execution_id"])


async def wait_until_listed(api: ApiUnderTest, *, status: str, count: int) -> None:
    """Waits until the list has `count` executions: an archive receives ends with a delay."""
    async with asyncio.timeout(20.0):
        while True:
            page = await api.get("/v1/executions", params={"status": status})
            if len(page["items"]) == count:
                return


async def test_a_node_is_shown_with_its_attempts(api: ApiUnderTest) -> None:
    api.work.failures["second"] = [ConnectionError("once")]
    execution_id = await start_execution(api, "flaky", input={"x": 7})
    await api.wait_for_end(execution_id)

    node = await api.get(f"/v1/executions/{execution_id}/nodes/second")
    nope = await api.http.get(f"/v1/executions/{execution_id}/nodes/secnd")

    assert [attempt["outcome"] for attempt in node["attempts"]] == ["failed", "completed"]
    assert "once" in node["attempts"][0]["error"]["message"]
    assert node["config"] == {"got": 7}
    assert node["inputs"] == {"first": {"x": 7}}
    assert node["output"] == {"got": 7}
    assert nope.status_code == 404
    assert "second" in nope.json()["detail"]


async def test_items_of_a_map_are_shown_in_pages(api: ApiUnderTest) -> None:
    execution_id = await start_execution(api, "mapped", input={"items": [5, 6, 7]})
    await api.wait_for_end(execution_id)
    path = f"/v1/executions/{execution_id}/nodes/each"

    first = await api.get(path, params={"items_limit": 2})
    second = await api.get(path, params={"items_after": first["items"]["next"]})
    single_item = await api.get(path, params={"item": 1})

    assert [item["output"] for item in first["items"]["items"]] == [{"n": 5}, {"n": 6}]
    assert [item["item"] for item in second["items"]["items"]] == [2]
    assert (single_item["item"], single_item["output"], single_item["config"]) == (
        1,
        {"n": 6},
        {"n": 6},
    )


async def test_a_filter_cancels_many_executions(api: ApiUnderTest) -> None:
    ids = [await start_execution(api, "waiting", labels={"batch": "7"}) for _ in range(3)]
    other = await start_execution(api, "waiting")

    step = await api.post("/v1/executions/cancel", {"label": ["batch=7"], "reason": "enough"})
    ended = [(await api.wait_for_end(id_))["status"] for id_ in ids]

    assert set(step["ids"]) == set(ids)
    assert step["next"] is None
    assert ended == ["CANCELLED"] * 3
    assert (await api.get(f"/v1/executions/{other}"))["finished_at"] is None


async def test_a_filter_selects_executions_by_their_time(api: ApiUnderTest) -> None:
    execution_id = await start_execution(api, "waiting")
    created_at = (await api.get(f"/v1/executions/{execution_id}"))["created_at"]

    before = await api.post("/v1/executions/cancel", {"created_before": created_at})
    since = await api.post("/v1/executions/cancel", {"created_from": created_at})

    assert (before["ids"], since["ids"]) == ([], [execution_id])


async def test_a_filter_reruns_each_failed_execution_once(api: ApiUnderTest) -> None:
    api.work.failures["second"] = [ValueError("no")] * 2
    ids = [await start_execution(api, "flaky", input={"x": n}) for n in range(2)]
    failed = [(await api.wait_for_end(id_))["status"] for id_ in ids]
    await wait_until_listed(api, status="FAILED", count=2)

    step = await api.post("/v1/executions/rerun", {"workflow": "flaky"})
    ended = [(await api.wait_for_end(id_))["status"] for id_ in step["ids"]]
    again = await api.post("/v1/executions/rerun", {"workflow": "flaky"})

    assert failed == ["FAILED", "FAILED"]
    assert ended == ["COMPLETED", "COMPLETED"]
    assert (again["ids"], again["known"]) == ([], 2)


@pytest.mark.parametrize("path", ["/v1/executions/cancel", "/v1/executions/rerun"])
async def test_a_bulk_request_without_a_filter_is_refused(api: ApiUnderTest, path: str) -> None:
    answer = await api.http.post(path, json={})

    assert answer.status_code == 422
    assert "'every'" in answer.json()["detail"]


async def test_a_workflow_can_be_deleted_only_after_its_executions_have_ended(
    api: ApiUnderTest,
) -> None:
    execution_id = await start_execution(api, "waiting")
    refused = await api.http.delete("/v1/workflows/waiting")
    await api.post(f"/v1/executions/{execution_id}/signal", {"name": "go"})
    await api.wait_for_end(execution_id)

    deleted = await api.call("DELETE", "/v1/workflows/waiting")
    run_after_deletion = await api.http.post("/v1/workflows/waiting/run")
    listed = await api.get("/v1/workflows")

    assert (refused.status_code, refused.json()["code"]) == (409, "wrong_state")
    assert deleted == {"versions": 1}
    assert run_after_deletion.status_code == 404
    assert "waiting" not in [workflow["name"] for workflow in listed["items"]]
    assert (await api.get(f"/v1/executions/{execution_id}"))["status"] == "COMPLETED"
