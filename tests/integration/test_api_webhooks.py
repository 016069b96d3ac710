"""Webhook calls are verified and mapped, and each delivery starts one execution."""

import asyncio
import hashlib
import hmac
import json
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import httpx
import pytest

from runnel.authoring.documents import read_document
from runnel.ports.archive import ExecutionFilter
from runnel.settings.model import Settings
from runnel.views.trigger import Webhook, WebhookKind
from tests.api import BOTH, ApiUnderTest, open_api

SECRET = "a secret of the server"
SETTINGS = Settings(secrets={"hook": SECRET})
HELLO = {
    "name": "hello",
    "nodes": [{"id": "a", "handler": "work", "config": {"got": "{{ input }}"}}],
}
PATH = "/v1/workflows/hello/triggers/webhook"
TOKEN = {"X-Webhook-Token": SECRET}
BODY = {"repository": {"name": "runnel"}, "n": 3}


@pytest.fixture(params=BOTH)
async def api(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[ApiUnderTest]:
    async with open_api(request.param, request, tmp_path, settings=SETTINGS) as opened:
        await opened.post("/v1/workflows", HELLO)
        yield opened


@pytest.fixture
async def local(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[ApiUnderTest]:
    async with open_api("memory", request, tmp_path, settings=SETTINGS, is_open=False) as opened:
        await opened.site.client.library.store(read_document(HELLO))
        yield opened


async def put_webhook(api: ApiUnderTest, **webhook: Any) -> None:
    kind = WebhookKind(webhook.pop("kind", "token"))
    await api.site.webhooks.add(Webhook(workflow="hello", kind=kind, **webhook), replaces=True)


def github_headers(body: bytes, secret: str = SECRET) -> dict[str, str]:
    digest = hmac.new(secret.encode(), body, hashlib.sha256).hexdigest()
    return {"X-Hub-Signature-256": f"sha256={digest}", "X-GitHub-Delivery": "d1"}


def slack_headers(body: bytes, at: float, secret: str = SECRET) -> dict[str, str]:
    signed = f"v0:{at:.0f}:".encode() + body
    digest = hmac.new(secret.encode(), signed, hashlib.sha256).hexdigest()
    return {"X-Slack-Signature": f"v0={digest}", "X-Slack-Request-Timestamp": f"{at:.0f}"}


async def deliver(
    api: ApiUnderTest, body: Any, headers: dict[str, str], **more: Any
) -> httpx.Response:
    raw = body if isinstance(body, bytes) else json.dumps(body).encode()
    kind = {"Content-Type": "application/json"}
    return await api.http.post(PATH, content=raw, headers={**kind, **headers}, **more)


async def test_a_webhook_call_is_stored_as_an_execution_before_the_answer(
    api: ApiUnderTest,
) -> None:
    mapping = {"repository": "{{ body.repository.name }}", "ref": "{{ query.ref }}"}
    await api.call("PUT", PATH, json={"secret": "hook", "mapping": mapping})

    answer = await deliver(api, BODY, TOKEN, params={"ref": "main"})
    accepted = answer.json()
    ended = await api.wait_for_end(accepted["execution_id"])

    assert answer.status_code == 202
    assert accepted["run_id"] == accepted["execution_id"]
    assert accepted["status"] in {"PENDING", "RUNNING", "COMPLETED"}
    assert ended["input"] == {"repository": "runnel", "ref": "main"}


async def test_the_same_delivery_is_the_same_execution(api: ApiUnderTest) -> None:
    await api.call("PUT", PATH, json={"secret": "hook"})
    named = {**TOKEN, "X-Request-Id": "r1"}

    answers = await asyncio.gather(*(deliver(api, BODY, named) for _ in range(5)))
    listed = await api.get("/v1/executions")

    assert {answer.status_code for answer in answers} == {202}
    assert len({answer.json()["execution_id"] for answer in answers}) == 1
    assert len(listed["items"]) == 1


async def test_a_webhook_is_read_listed_and_removed(api: ApiUnderTest) -> None:
    await api.call("PUT", PATH, json={"kind": "github", "secret": "hook"})

    read = await api.get(PATH)
    listed = await api.get("/v1/webhooks")
    removed = await api.http.delete(PATH)

    assert (read["kind"], read["secret"]) == ("github", "hook")
    assert [webhook["workflow"] for webhook in listed["items"]] == ["hello"]
    assert removed.status_code == 204
    assert (await deliver(api, BODY, TOKEN)).status_code == 404


async def test_a_github_webhook_checks_the_signature_of_the_body(local: ApiUnderTest) -> None:
    await put_webhook(local, kind="github", secret="hook")
    body = json.dumps(BODY).encode()

    good = await deliver(local, body, github_headers(body))
    forged = await deliver(local, body + b" ", github_headers(body))
    foreign = await deliver(local, body, github_headers(body, "another secret"))
    unsigned = await deliver(local, body, {})

    assert good.status_code == 202
    assert [answer.status_code for answer in (forged, foreign, unsigned)] == [401, 401, 401]


async def test_a_slack_webhook_checks_the_signature_and_answers_the_challenge(
    local: ApiUnderTest,
) -> None:
    await put_webhook(local, kind="slack", secret="hook")
    now = local.site.clock.now()
    asking = json.dumps({"type": "url_verification", "challenge": "abc"}).encode()
    body = json.dumps({"event_id": "E1"}).encode()

    challenge = await deliver(local, asking, slack_headers(asking, now))
    good = await deliver(local, body, slack_headers(body, now))
    replayed = await deliver(local, body, slack_headers(body, now - 301))
    ahead = await deliver(local, body, slack_headers(body, now + 301))
    again = await deliver(local, body, slack_headers(body, now + 1))

    assert (challenge.status_code, challenge.json()) == (200, {"challenge": "abc"})
    assert (good.status_code, again.status_code) == (202, 202)
    assert good.json()["execution_id"] == again.json()["execution_id"]
    assert [replayed.status_code, ahead.status_code] == [401, 401]


async def test_a_webhook_call_needs_no_api_token_but_managing_webhooks_does(
    local: ApiUnderTest,
) -> None:
    await put_webhook(local, secret="hook")

    called = await deliver(local, BODY, TOKEN)
    managed = await local.http.put(PATH, json={"secret": "hook"})

    assert (called.status_code, managed.status_code) == (202, 401)


@pytest.mark.parametrize(
    ("headers", "body", "status"),
    [
        ({}, BODY, 401),
        ({"X-Webhook-Token": "guess"}, BODY, 401),
        ({"X-Webhook-Token": ""}, BODY, 401),
        (TOKEN, b"{", 422),
        (TOKEN, b"\xff", 422),
        (TOKEN, {"n": 3}, 422),
        (TOKEN, [1], 422),
    ],
)
async def test_an_invalid_webhook_call_stores_nothing(
    local: ApiUnderTest, headers: dict[str, str], body: Any, status: int
) -> None:
    await put_webhook(local, secret="hook", mapping={"name": "{{ body.repository.name }}"})

    answer = await deliver(local, body, headers)

    assert answer.status_code == status, answer.text
    assert SECRET not in answer.text
    assert list(await local.backend.archive.list_headers(ExecutionFilter())) == []


async def test_the_credentials_of_a_webhook_call_do_not_reach_the_workflow(
    local: ApiUnderTest,
) -> None:
    await put_webhook(local, secret="hook")
    headers = {**TOKEN, "Cookie": "a=b", "X-Kind": "push"}

    answer = await deliver(local, BODY, {**headers, "Authorization": "Bearer of another"})
    execution_id = answer.json()["execution_id"]
    await local.site.client.wait_for_end(execution_id, timeout_s=10.0)
    execution = await local.site.client.get(execution_id)

    assert execution.input["headers"]["x-kind"] == "push"
    assert not {"x-webhook-token", "cookie", "authorization"} & set(execution.input["headers"])
