"""The access guard with unusual requests, and with stores that do not answer."""

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator, Sequence
from pathlib import Path

import pytest
from starlette.types import Message

from runnel.api.security.access_control import AccessControl, AccessRules
from runnel.api.security.tokens import (
    CACHE_AGE_S_MAX,
    REFRESH_INTERVAL_S,
    TokenStore,
)
from runnel.backends.memory import MemoryBackend
from runnel.errors import StoreError, TooManyRequestsError
from runnel.ports.records import Record
from runnel.settings.model import Settings
from runnel.testing.clock import FakeClock, FakeIds
from runnel.views.token import Scope
from tests.api import ApiUnderTest, open_api

LOCAL = {"host": "localhost"}


@pytest.fixture
async def api(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[ApiUnderTest]:
    async with open_api("memory", request, tmp_path) as api:
        yield api


@pytest.mark.parametrize("origin", ["http://[::1", "httpx://localhost", "http://localhost/", ""])
async def test_an_invalid_origin_counts_as_foreign(api: ApiUnderTest, origin: str) -> None:
    answer = await api.http.get("/v1/server", headers={"Origin": origin})

    assert (answer.status_code, answer.json()["code"]) == (403, "foreign_request")


async def test_a_body_with_two_lengths_is_refused_and_closes_its_connection(
    api: ApiUnderTest,
) -> None:
    answer = await api.http.post(
        "/v1/workflows",
        content=b"{}",
        headers={"Content-Type": "application/json", "Transfer-Encoding": "chunked"},
    )

    assert (answer.status_code, answer.json()["code"]) == (400, "malformed_body")
    assert answer.headers["connection"] == "close"


async def test_a_client_that_disconnects_during_its_request_causes_no_server_error(
    api: ApiUnderTest,
) -> None:
    headers = {"host": "localhost", "content-type": "application/json", "content-length": "9"}
    scope = {
        "type": "http",
        "http_version": "1.1",
        "method": "POST",
        "scheme": "http",
        "path": "/v1/workflows",
        "query_string": b"",
        "headers": [(name.encode(), value.encode()) for name, value in headers.items()],
        "client": ("127.0.0.1", 1),
    }
    arriving: list[Message] = [
        {"type": "http.request", "body": b"{", "more_body": True},
        {"type": "http.disconnect"},
    ]
    sent: list[Message] = []

    async def receive() -> Message:
        return arriving.pop(0)

    async def send(message: Message) -> None:
        sent.append(message)

    await api.app(scope, receive, send)

    assert sent[0]["status"] == 400


async def test_a_path_with_a_trailing_slash_is_not_redirected(api: ApiUnderTest) -> None:
    """A redirect would use the Host header of the request, which an attacker may choose."""
    answer = await api.http.get("/v1/server/")

    assert answer.status_code == 404


async def test_an_anonymous_caller_does_not_learn_names_of_webhooks(
    request: pytest.FixtureRequest, tmp_path: Path
) -> None:
    async with open_api("memory", request, tmp_path, is_open=False) as api:
        headers = {"Authorization": f"Bearer {await api.token(Scope.OPERATE)}"}
        await api.post(
            "/v1/workflows",
            {"name": "payroll", "nodes": [{"id": "a", "handler": "output"}]},
            headers=headers,
        )
        path = "/v1/workflows/payroll/triggers/webhook"
        await api.call("PUT", path, json={"kind": "none"}, headers=headers)

        answer = await api.http.post("/v1/workflows/payrol/triggers/webhook")

    assert answer.status_code == 404
    assert "payroll" not in answer.text


async def test_every_request_that_adds_work_is_refused_while_a_queue_is_full(
    request: pytest.FixtureRequest, tmp_path: Path
) -> None:
    """Webhooks, triggers of held executions and reruns are refused as well."""
    settings = Settings(queue_tasks_max=2)
    document = {"name": "hello", "nodes": [{"id": "a", "handler": "output"}]}
    async with open_api("memory", request, tmp_path, settings=settings) as api:
        held = (await api.post("/v1/workflow", document))["execution_id"]
        ended = (await api.post("/v1/workflows/hello/run"))["execution_id"]
        await api.wait_for_end(ended)
        hook = "/v1/workflows/hello/triggers/webhook"
        await api.call("PUT", hook, json={"kind": "none"})
        api.site._depths = {"tasks:slow": 3}  # noqa: SLF001 - as if it had just read them
        api.site._depths_read_at = api.site.clock.monotonic() + 1_000  # noqa: SLF001

        answers = [
            await api.http.post(f"/v1/workflow/trigger/{held}"),
            await api.http.post(f"/v1/executions/{ended}/rerun", json={"whole": True}),
            await api.http.post("/v1/executions/rerun", json={"every": True, "whole": True}),
            await api.http.post(hook),
        ]

    assert [answer.json()["code"] for answer in answers] == ["overloaded"] * 4


async def test_a_stream_ends_when_its_token_is_revoked(
    request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("runnel.api.state.RECHECK_INTERVAL_S", 0.0)
    ended = asyncio.Event()

    async def beats() -> AsyncGenerator[bytes, None]:
        try:
            while True:
                yield b": "
        finally:
            ended.set()

    async with open_api("memory", request, tmp_path, is_open=False) as api:
        token = await api.token(Scope.READ)
        token_id = token.split("_")[1]
        chunks = aiter(api.site.make_stream_response(beats(), token_id=token_id).body_iterator)
        first = await anext(chunks)
        await api.tokens.revoke(token_id)
        remaining = [chunk async for chunk in chunks]

    assert (first, remaining) == (b": ", [])
    assert ended.is_set()


# -- a store that does not answer --------------------------------------------------------------


class SlowRecords:
    """Records of a store. While `is_away`, a list waits for `answers` and raises StoreError."""

    def __init__(self, backend: MemoryBackend) -> None:
        self._records = backend.records
        self.is_away = False
        self.reads = 0
        self.answers = asyncio.Event()

    async def list(self, kind: str, *, after: str = "", limit: int = 50) -> Sequence[Record]:
        self.reads += 1
        if self.is_away:
            await self.answers.wait()
            raise StoreError("away")
        return await self._records.list(kind, after=after, limit=limit)

    async def put(self, kind: str, key: str, data: bytes, *, revision: int) -> int:
        return await self._records.put(kind, key, data, revision=revision)

    async def get(self, kind: str, key: str) -> Record | None:
        return await self._records.get(kind, key)

    async def delete(self, kind: str, key: str, *, revision: int | None = None) -> bool:
        return await self._records.delete(kind, key, revision=revision)


class GuardHarness:
    """A guard with a clock and a store that the test controls."""

    def __init__(self, *, is_open: bool) -> None:
        self.clock = FakeClock(1_700_000_000.0)
        backend = MemoryBackend(self.clock, FakeIds())
        self.records = SlowRecords(backend)
        self.tokens = TokenStore(self.records, self.clock)
        self.guard = AccessControl(
            self.tokens, backend.windows, AccessRules(is_open=is_open, per_minute=2)
        )


async def test_liveness_is_answered_while_the_store_does_not_respond() -> None:
    harness = GuardHarness(is_open=True)
    harness.records.is_away = True

    caller = await harness.guard.admit("/health/live", LOCAL, "127.0.0.1")

    assert (caller.scopes, harness.records.reads) == (None, 0)


async def test_only_one_request_waits_for_an_unresponsive_store() -> None:
    harness = GuardHarness(is_open=False)
    token = (await harness.tokens.create("ci", [Scope.READ])).token
    headers = {**LOCAL, "authorization": f"Bearer {token}"}
    await harness.guard.admit("/v1/server", headers, "127.0.0.1")
    harness.records.is_away = True
    await harness.clock.advance(REFRESH_INTERVAL_S)
    reads_before = harness.records.reads

    first = asyncio.create_task(harness.guard.admit("/v1/server", headers, "127.0.0.1"))
    await asyncio.sleep(0)
    callers = [await harness.guard.admit("/v1/server", headers, "127.0.0.1") for _ in range(3)]
    harness.records.answers.set()

    assert {caller.name for caller in (*callers, await first)} == {"ci"}
    assert harness.records.reads == reads_before + 1
    await harness.clock.advance(CACHE_AGE_S_MAX + 1)
    with pytest.raises(StoreError):
        await harness.guard.admit("/v1/server", headers, "127.0.0.1")


# -- one caller with many addresses --------------------------------------------------------------


@pytest.mark.parametrize(
    "addresses",
    [
        ("2001:db8:1:2::1", "2001:db8:1:2::2", "2001:db8:1:2:ffff::3"),
        ("::ffff:192.0.2.1", "192.0.2.1", "::ffff:192.0.2.1"),
        ("fe80::1%eth0", "fe80::2%eth1", "fe80::3"),
    ],
)
async def test_the_addresses_of_one_network_are_counted_together(addresses: Sequence[str]) -> None:
    harness = GuardHarness(is_open=False)
    for address in addresses[:2]:
        await harness.guard.admit("/v1/server", LOCAL, address)

    with pytest.raises(TooManyRequestsError):
        await harness.guard.admit("/v1/server", LOCAL, addresses[2])
    await harness.guard.admit("/v1/server", LOCAL, "2001:db8:1:3::1")
    await harness.guard.admit("/v1/server", LOCAL, "unknown")
