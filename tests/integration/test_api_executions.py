"""Workflows and executions over HTTP, the same on every backend."""

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from tests.api import KINDS, ApiUnderTest, open_api

HELLO: dict[str, Any] = {
    "name": "hello",
    "nodes": [
        {"id": "greet", "handler": "output", "config": {"text": "Hello {{ input.name }}"}},
        {"id": "shout", "handler": "work", "config": {"said": "{{ greet.text }}!"}},
    ],
}
WAITING: dict[str, Any] = {
    "name": "waiting",
    "nodes": [{"id": "ask", "handler": "wait_for_signal", "config": {"signal": "go"}}],
}
CHECKED: dict[str, Any] = {
    **HELLO,
    "name": "checked",
    "input": {"type": "object", "required": ["name"]},
}
YAML = "name: written\nnodes:\n  one: {handler: output, config: {x: 1}}\n"


@pytest.fixture(params=KINDS)
async def api(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[ApiUnderTest]:
    async with open_api(request.param, request, tmp_path) as opened:
        yield opened


@pytest.fixture
async def local(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[ApiUnderTest]:
    async with open_api("sqlite", request, tmp_path) as opened:
        yield opened


async def test_a_workflow_is_submitted_then_triggered_then_read(api: ApiUnderTest) -> None:
    submitted = await api.post("/v1/workflow", HELLO)
    execution_id = submitted["execution_id"]
    held = await api.get(f"/v1/workflow/{execution_id}")

    triggered = await api.post(
        f"/v1/workflow/trigger/{execution_id}", {"input_params": {"name": "Ada"}}
    )
    ended = await api.wait_for_end(execution_id)

    assert (submitted["status"], held["status"]) == ("PENDING", "PENDING")
    assert triggered == {"execution_id": execution_id, "status": triggered["status"]}
    assert triggered["status"] in {"RUNNING", "COMPLETED"}
    assert ended["status"] == "COMPLETED"
    assert ended["output"] == {"said": "Hello Ada!"}
    assert ended["nodes"]["greet"]["output"] == {"text": "Hello Ada"}


async def test_a_second_trigger_is_a_conflict_unless_it_has_the_same_key(api: ApiUnderTest) -> None:
    execution_id = (await api.post("/v1/workflow", HELLO))["execution_id"]
    path, body = f"/v1/workflow/trigger/{execution_id}", {"input_params": {"name": "Ada"}}
    key = {"Idempotency-Key": "once"}

    first = await api.http.post(path, json=body, headers=key)
    again = await api.http.post(path, json=body, headers=key)
    other = await api.http.post(path, json=body)

    assert [first.status_code, again.status_code, other.status_code] == [200, 200, 409]
    assert other.json()["code"] == "wrong_state"


async def test_a_stored_workflow_is_submitted_and_triggered_by_one_request(
    api: ApiUnderTest,
) -> None:
    stored = await api.post("/v1/workflows", HELLO)

    execution = await api.post(
        "/v1/workflows/hello/run",
        {"input": {"name": "Bo"}, "labels": {"a": "b"}, "priority": -7},
    )
    ended = await api.wait_for_end(execution["execution_id"])

    assert (stored["name"], stored["version"], stored["nodes"]) == ("hello", 1, 2)
    assert ended["output"] == {"said": "Hello Bo!"}
    assert (ended["labels"], ended["priority"]) == ({"a": "b"}, -7)


async def test_a_run_with_the_same_key_is_the_same_execution(api: ApiUnderTest) -> None:
    await api.post("/v1/workflows", HELLO)
    key = {"Idempotency-Key": "order 7"}

    runs = await asyncio.gather(
        *(
            api.post("/v1/workflows/hello/run", {"input": {"name": "Ada"}}, headers=key)
            for _ in range(5)
        )
    )
    other = await api.http.post(
        "/v1/workflows/hello/run", json={"input": {"name": "Bo"}}, headers=key
    )

    assert len({run["execution_id"] for run in runs}) == 1
    assert (other.status_code, other.json()["code"]) == (422, "key_reused")


async def test_a_changed_workflow_is_its_next_version_and_both_can_be_run(
    api: ApiUnderTest,
) -> None:
    changed = {**HELLO, "nodes": [{**HELLO["nodes"][0], "config": {"text": "Bye"}}]}
    await api.post("/v1/workflows", HELLO)
    await api.post("/v1/workflows", HELLO)
    await api.post("/v1/workflows", changed)

    listed = await api.get("/v1/workflows")
    versions = await api.get("/v1/workflows/hello/versions")
    first = await api.get("/v1/workflows/hello", params={"version": 1})
    execution = await api.post("/v1/workflows/hello/run", {"version": 1, "input": {"name": "Ada"}})
    ended = await api.wait_for_end(execution["execution_id"])

    assert [(workflow["name"], workflow["version"]) for workflow in listed["items"]] == [
        ("hello", 2)
    ]
    assert [version["version"] for version in versions["items"]] == [2, 1]
    assert first["document"] == HELLO
    assert (ended["version"], ended["output"]) == (1, {"said": "Hello Ada!"})


async def test_executions_are_listed_in_pages(api: ApiUnderTest) -> None:
    await api.post("/v1/workflows", HELLO)
    ids = [
        (await api.post("/v1/workflows/hello/run", {"input": {"name": "Ada"}}))["execution_id"]
        for _ in range(5)
    ]
    for id_ in ids:
        await api.wait_for_end(id_)

    first = await api.get("/v1/executions", params={"limit": 2})
    second = await api.get("/v1/executions", params={"limit": 2, "after": first["next"]})
    last = await api.get("/v1/executions", params={"limit": 2, "after": second["next"]})

    pages = [
        [execution["execution_id"] for execution in page["items"]] for page in (first, second, last)
    ]
    assert pages == [ids[:-3:-1], ids[2:0:-1], ids[:1]]
    assert last["next"] is None


async def test_an_execution_is_signalled_and_cancelled(api: ApiUnderTest) -> None:
    await api.post("/v1/workflows", WAITING)
    signalled, ended = [
        (await api.post("/v1/workflows/waiting/run"))["execution_id"] for _ in range(2)
    ]

    await api.post(f"/v1/executions/{signalled}/signal", {"name": "go", "payload": {"by": "ada"}})
    await api.post(f"/v1/executions/{ended}/cancel", {"reason": "enough"})
    views = [await api.wait_for_end(id_) for id_ in (signalled, ended)]
    late = await api.http.post(f"/v1/executions/{signalled}/cancel")

    assert [view["status"] for view in views] == ["COMPLETED", "CANCELLED"]
    assert views[0]["output"] == {"by": "ada"}
    assert "enough" in views[1]["error"]
    assert late.status_code == 409


async def test_a_failed_execution_is_rerun_from_where_it_failed(api: ApiUnderTest) -> None:
    api.work.failures["shout"] = [ValueError("too loud")]
    once = {**HELLO["nodes"][1], "retry": {"max_retries": 0}}
    await api.post("/v1/workflows", {**HELLO, "nodes": [HELLO["nodes"][0], once]})
    first = (await api.post("/v1/workflows/hello/run", {"input": {"name": "Ada"}}))["execution_id"]
    failed = await api.wait_for_end(first)

    rerun = await api.post(f"/v1/executions/{first}/rerun")
    ended = await api.wait_for_end(rerun["execution_id"])
    history = await api.get(f"/v1/executions/{first}/history")

    assert (failed["status"], ended["status"]) == ("FAILED", "COMPLETED")
    assert ended["rerun_of"] == first
    assert api.work.calls == ["shout", "shout"]
    assert history["items"][0]["event"] == "ExecutionCreated"


async def test_a_wait_ends_when_the_execution_does(api: ApiUnderTest) -> None:
    await api.post("/v1/workflows", WAITING)
    execution_id = (await api.post("/v1/workflows/waiting/run"))["execution_id"]

    early = await api.get(f"/v1/executions/{execution_id}/wait", params={"timeout": 0.01})
    waiting = asyncio.ensure_future(
        api.get(f"/v1/executions/{execution_id}/wait", params={"timeout": 30})
    )
    await api.post(f"/v1/executions/{execution_id}/signal", {"name": "go"})
    execution = await waiting

    assert early["finished_at"] is None
    assert execution["status"] == "COMPLETED"


async def test_a_run_that_waits_answers_with_the_final_execution(api: ApiUnderTest) -> None:
    await api.post("/v1/workflows", HELLO)
    body = {"input": {"name": "Ada"}}

    ended = await api.post("/v1/workflows/hello/run?wait=30", body)
    repeated = await api.post(
        "/v1/workflows/hello/run?wait=30", body, headers={"Idempotency-Key": "k"}
    )
    again = await api.post(
        "/v1/workflows/hello/run?wait=30", body, headers={"Idempotency-Key": "k"}
    )

    assert (ended["status"], ended["output"]) == ("COMPLETED", {"said": "Hello Ada!"})
    assert repeated["execution_id"] == again["execution_id"] != ended["execution_id"]


async def test_a_run_that_waits_answers_after_its_time(api: ApiUnderTest) -> None:
    await api.post("/v1/workflows", WAITING)

    early = await api.post("/v1/workflows/waiting/run?wait=0.01")

    assert early["status"] in {"PENDING", "RUNNING"}


async def test_a_waiting_request_is_answered_when_the_server_stops(local: ApiUnderTest) -> None:
    await local.post("/v1/workflows", WAITING)
    execution_id = (await local.post("/v1/workflows/waiting/run"))["execution_id"]

    waiting = asyncio.ensure_future(
        local.get(f"/v1/executions/{execution_id}/wait", params={"timeout": 60})
    )
    await asyncio.wait([waiting], timeout=0.05)
    local.site.stopping.set()

    assert (await waiting)["status"] in {"PENDING", "RUNNING"}


async def test_the_paths_also_work_under_the_prefix_api(local: ApiUnderTest) -> None:
    execution_id = (await local.post("/api/workflow", HELLO))["execution_id"]

    assert (await local.get(f"/api/workflow/{execution_id}"))["status"] == "PENDING"


async def test_a_workflow_may_be_yaml(local: ApiUnderTest) -> None:
    stored = await local.call(
        "POST", "/v1/workflows", content=YAML, headers={"Content-Type": "application/yaml"}
    )

    assert (stored["name"], stored["nodes"]) == ("written", 1)


async def test_a_child_workflow_is_found_by_its_name(local: ApiUnderTest) -> None:
    child = {
        "id": "child",
        "handler": "workflow",
        "config": {"workflow": "hello", "input": {"name": "Cy"}},
    }
    above = {"name": "above", "nodes": [child]}
    unknown = await local.http.post("/v1/workflows", json=above)
    await local.post("/v1/workflows", HELLO)
    await local.post("/v1/workflows", above)

    execution = await local.post("/v1/workflows/above/run")
    ended = await local.wait_for_end(execution["execution_id"])

    assert unknown.status_code == 422
    assert "there is no workflow 'hello'" in unknown.json()["detail"]
    assert ended["output"] == {"said": "Hello Cy!"}


async def test_a_graph_is_drawn_as_data_and_as_text(local: ApiUnderTest) -> None:
    await local.post("/v1/workflows", HELLO)

    data = await local.get("/v1/workflows/hello/graph")
    text = await local.http.get("/v1/workflows/hello/graph", params={"format": "mermaid"})

    assert data["edges"] == [["greet", "shout"]]
    assert data["layers"] == [["greet"], ["shout"]]
    assert text.text.startswith("flowchart TD")


async def test_the_name_of_a_workflow_may_contain_a_slash(local: ApiUnderTest) -> None:
    await local.post("/v1/workflows", {**HELLO, "name": "team/hello"})

    execution = await local.post("/v1/workflows/team%2Fhello/run", {"input": {"name": "Di"}})

    assert (await local.get("/v1/workflows/team%2Fhello"))["name"] == "team/hello"
    assert (await local.wait_for_end(execution["execution_id"]))["output"] == {"said": "Hello Di!"}


async def test_every_problem_of_a_workflow_names_its_path(local: ApiUnderTest) -> None:
    wrong = {
        "name": "wrong",
        "nodes": [
            {"id": "a", "handler": "output", "retry": "often"},
            {"id": "b", "handlr": "output"},
        ],
    }

    answer = await local.http.post("/v1/workflows/validate", json=wrong)

    assert answer.status_code == 422
    assert answer.headers["content-type"] == "application/problem+json"
    assert [problem["path"] for problem in answer.json()["errors"]] == [
        "$.nodes[0].retry",
        "$.nodes[1]",
        "$.nodes[1]",
    ]


async def test_an_input_is_validated_when_it_is_sent(local: ApiUnderTest) -> None:
    await local.post("/v1/workflows", CHECKED)

    answer = await local.http.post("/v1/workflows/checked/run", json={"input": {}})

    assert (answer.status_code, answer.json()["code"]) == (422, "invalid_input")
    [problem] = answer.json()["errors"]
    assert problem["path"] == "$.input"
    assert problem["message"].endswith("is missing")
    assert (await local.get("/v1/executions"))["items"] == []
