"""Lookups and tokens over HTTP, the same on every backend."""

import json
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from runnel.views.token import Scope
from tests.api import BOTH, ApiUnderTest, open_api
from tests.integration.test_api_executions import WAITING

LARGE = 300_000


@pytest.fixture(params=BOTH)
async def api(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[ApiUnderTest]:
    async with open_api(request.param, request, tmp_path) as opened:
        yield opened


@pytest.fixture
async def closed(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[ApiUnderTest]:
    async with open_api("sqlite", request, tmp_path, is_open=False) as opened:
        yield opened


async def start_execution(api: ApiUnderTest, document: dict[str, Any], input_: Any = None) -> str:
    await api.post("/v1/workflows", document)
    answer = await api.post(f"/v1/workflows/{document['name']}/run", {"input": input_})
    return str(answer["execution_id"])


async def test_executions_are_found_by_id_and_by_id_prefix(api: ApiUnderTest) -> None:
    first, second = await start_execution(api, WAITING), await start_execution(api, WAITING)

    by_id = await api.get("/v1/executions/lookup", params={"id": [first, "none", second]})
    beginning = await api.get("/v1/executions/lookup", params={"begins": first[:-1]})
    nothing = await api.get("/v1/executions/lookup", params={"begins": "zzz"})

    assert {execution["execution_id"] for execution in by_id["items"]} == {first, second}
    assert [execution["execution_id"] for execution in beginning["items"]] == [first]
    assert nothing == {"items": []}


async def test_the_definition_of_an_execution_is_found_by_its_hash(api: ApiUnderTest) -> None:
    execution_id = await start_execution(api, WAITING)
    (execution,) = (await api.get("/v1/executions"))["items"]

    definition = await api.get(f"/v1/definitions/{execution['workflow_definition_id']}")
    missing = await api.http.get("/v1/definitions/none")

    assert execution["execution_id"] == execution_id
    assert definition["document"] == WAITING
    assert (definition["name"], definition["version"], definition["nodes"]) == ("waiting", 1, 1)
    assert (missing.status_code, missing.json()["code"]) == (404, "not_found")


async def test_the_partition_of_an_execution_is_shown_with_its_owner(api: ApiUnderTest) -> None:
    execution_id = await start_execution(api, WAITING)

    located = await api.get(f"/v1/executions/{execution_id}/partition")
    partitions = (await api.get("/v1/partitions"))["items"]

    owners = {partition["partition"]: partition["owner"] for partition in partitions}
    assert owners[located["partition"]] == located["owner"] is not None


async def test_lists_of_workflows_have_documents_on_request(api: ApiUnderTest) -> None:
    await api.post("/v1/workflows", WAITING)

    plain = await api.get("/v1/workflows")
    with_documents = await api.get("/v1/workflows", params={"documents": True})
    versions = await api.get("/v1/workflows/waiting/versions", params={"documents": True})

    assert plain["items"][0]["document"] is None
    assert with_documents["items"][0]["document"] == versions["items"][0]["document"] == WAITING


async def test_a_run_by_name_uses_the_activated_version(api: ApiUnderTest) -> None:
    await api.post("/v1/workflows", WAITING)
    await api.post("/v1/workflows", {**WAITING, "labels": {"v": "2"}})

    active = await api.post("/v1/workflows/waiting/activate", {"version": 1, "author": "ada"})
    run = await api.post("/v1/workflows/waiting/run", {})
    newest = await api.post("/v1/workflows/waiting/activate", {"version": None})
    run_newest = await api.post("/v1/workflows/waiting/run", {})

    assert (active["version"], active["activations"][0]["activated_by"]) == (1, "ada")
    assert active["activations"][0]["activated_at"].endswith("Z")
    assert (run["version"], newest["version"], run_newest["version"]) == (1, 2, 2)
    assert newest == await api.get("/v1/workflows/waiting/active")
    assert (await api.get("/v1/workflows"))["items"][0]["active_version"] is None


@pytest.mark.parametrize(
    ("name", "body", "status"),
    [
        ("waiting", {"version": 9}, 404),
        ("nope", {"version": 1}, 404),
        ("waiting", {}, 422),
        ("waiting", {"version": 0}, 422),
        ("waiting", {"version": 1, "author": "x" * 201}, 422),
        ("waiting", {"version": 2**63}, 422),
    ],
)
async def test_an_activation_of_an_unknown_version_is_refused(
    api: ApiUnderTest, name: str, body: dict[str, Any], status: int
) -> None:
    await api.post("/v1/workflows", WAITING)

    answer = await api.http.post(f"/v1/workflows/{name}/activate", json=body)

    assert answer.status_code == status, answer.text
    assert (await api.get("/v1/workflows/waiting/active"))["activations"] == []


async def test_the_author_of_an_activation_is_the_name_of_the_token(closed: ApiUnderTest) -> None:
    operator = {"Authorization": f"Bearer {await closed.token(Scope.OPERATE)}"}
    runner = {"Authorization": f"Bearer {await closed.token(Scope.RUN)}"}
    await closed.post("/v1/workflows", WAITING, headers=runner)
    body = {"version": 1, "author": "mallory"}

    refused = await closed.http.post("/v1/workflows/waiting/activate", json=body, headers=runner)
    active = await closed.http.post("/v1/workflows/waiting/activate", json=body, headers=operator)

    assert refused.status_code == 403
    assert active.json()["activations"][0]["activated_by"] not in {"", "mallory"}


@pytest.mark.parametrize(
    "path",
    [
        "/v1/executions/lookup?begins=%00",
        "/v1/executions/lookup?id=%00",
        "/v1/executions/%00/partition",
        "/v1/definitions/%00",
    ],
)
async def test_a_lookup_with_a_null_byte_finds_nothing(api: ApiUnderTest, path: str) -> None:
    answer = await api.http.get(path)

    assert answer.status_code in {200, 404, 422}, answer.text
    assert answer.json().get("items", []) == []


async def test_the_server_shows_its_engine_and_version(closed: ApiUnderTest) -> None:
    token = await closed.token(Scope.READ)

    server = await closed.get("/v1/server", headers={"Authorization": f"Bearer {token}"})

    assert server["engine"] == "embedded"
    assert server["version"].count(".") == 2


async def test_an_administrator_can_create_list_and_revoke_a_token(closed: ApiUnderTest) -> None:
    boss = {"Authorization": f"Bearer {await closed.token(Scope.ADMIN)}"}
    new_token = {"name": "ci", "scopes": ["run"], "days": 90, "per_minute": 5}

    made = await closed.post("/v1/tokens", new_token, headers=boss)
    listed = (await closed.get("/v1/tokens", headers=boss))["items"]
    ci = {"Authorization": f"Bearer {made['token']}"}
    allowed = await closed.http.get("/v1/executions", headers=ci)
    refused = [
        await closed.http.get("/v1/tokens", headers=ci),
        await closed.http.post("/v1/tokens", json=new_token, headers=ci),
        await closed.http.delete(f"/v1/tokens/{made['id']}", headers=ci),
    ]
    revoked = await closed.http.delete(f"/v1/tokens/{made['id']}", headers=boss)
    again = await closed.http.delete(f"/v1/tokens/{made['id']}", headers=boss)

    (listed_token,) = [token for token in listed if token["id"] == made["id"]]
    assert (listed_token["name"], listed_token["scopes"], listed_token["per_minute"]) == (
        "ci",
        ["run"],
        5,
    )
    assert "secret" not in json.dumps(listed)
    assert made["token"] not in json.dumps(listed)
    assert allowed.status_code == 200
    assert [answer.status_code for answer in refused] == [403, 403, 403]
    assert (revoked.status_code, again.status_code) == (204, 404)


@pytest.mark.parametrize(
    "new_token",
    [
        {},
        {"name": "", "scopes": ["run"]},
        {"name": "x", "scopes": []},
        {"name": "x", "scopes": ["all"]},
        {"name": "x", "scopes": ["run"], "days": 0},
        {"name": "x", "scopes": ["run"], "per_minute": -1},
        {"name": "x", "scopes": ["run"], "per_minute": False},
        {"name": "x", "scopes": ["run"], "secret": "mine"},
        {"name": "x" * 101, "scopes": ["run"]},
    ],
)
async def test_an_invalid_token_request_is_refused(
    closed: ApiUnderTest, new_token: dict[str, Any]
) -> None:
    boss = {"Authorization": f"Bearer {await closed.token(Scope.ADMIN)}"}

    answer = await closed.http.post("/v1/tokens", json=new_token, headers=boss)

    assert answer.status_code == 422
    assert len(await closed.tokens.list()) == 1
