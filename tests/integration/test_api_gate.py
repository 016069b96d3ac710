"""What the gate makes of odd requests, and of stores that are away."""

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator, Sequence
from pathlib import Path

import pytest
from starlette.types import Message

from runnel.api.security.guard import AccessRules, Guard
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
async def test_a_page_that_is_none_is_a_foreign_one(api: ApiUnderTest, origin: str) -> None:
    answer = await api.http.get("/v1/server", headers={"Origin": origin})

    assert (answer.status_code, answer.json()["code"]) == (403, "foreign_request")


async def test_a_body_with_two_lengths_is_refused_and_its_connection_closed(
    api: ApiUnderTest,
) -> None:
    answer = await api.http.post(
        "/v1/workflows",
        content=b"{}",
        headers={"Content-Type": "application/json", "Transfer-Encoding": "chunked"},
    )

    assert (answer.status_code, answer.json()["code"]) == (400, "malformed_body")
    assert answer.headers["connection"] == "close"


async def test_a_client_that_leaves_in_the_middle_is_no_error_of_the_server(
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


async def test_a_path_with_a_slash_too_many_is_not_there(api: ApiUnderTest) -> None:
    """A redirect would lead to whatever Host the request has named."""
    answer = await api.http.get("/v1/server/")

    assert answer.status_code == 404


async def test_a_stranger_is_not_told_which_webhooks_there_are(
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


async def test_all_doors_are_closed_while_too_much_waits(
    request: pytest.FixtureRequest, tmp_path: Path
) -> None:
    """Also those for webhooks, for what is held, and for what is run again."""
    settings = Settings(queue_tasks_max=2)
    document = {"name": "hello", "nodes": [{"id": "a", "handler": "output"}]}
    async with open_api("memory", request, tmp_path, settings=settings) as api:
        held = (await api.post("/v1/workflow", document))["execution_id"]
        ended = (await api.post("/v1/workflows/hello/run"))["execution_id"]
        await api.ended(ended)
        hook = "/v1/workflows/hello/triggers/webhook"
        await api.call("PUT", hook, json={"kind": "none"})
        api.site._depths = {"tasks:slow": 3}  # noqa: SLF001 - as if it had just looked
        api.site._depths_read_at = api.site.clock.monotonic() + 1_000  # noqa: SLF001

        answers = [
            await api.http.post(f"/v1/workflow/trigger/{held}"),
            await api.http.post(f"/v1/executions/{ended}/rerun", json={"whole": True}),
            await api.http.post("/v1/executions/rerun", json={"every": True, "whole": True}),
            await api.http.post(hook),
        ]

    assert [each.json()["code"] for each in answers] == ["overloaded"] * 4


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
        told = aiter(api.site.make_stream_response(beats(), token_id=token_id).body_iterator)
        first = await anext(told)
        await api.tokens.revoke(token_id)
        rest = [each async for each in told]

    assert (first, rest) == (b": ", [])
    assert ended.is_set()


# -- a store that is away ----------------------------------------------------------------------


class SlowRecords:
    """Those of a store that says after a while that it is away, once it is."""

    def __init__(self, backend: MemoryBackend) -> None:
        self._records = backend.records
        self.is_away = False
        self.asked = 0
        self.answers = asyncio.Event()

    async def list(self, kind: str, *, after: str = "", limit: int = 50) -> Sequence[Record]:
        self.asked += 1
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


class Door:
    """A guard whose clock and store a test has in its hands."""

    def __init__(self, *, is_open: bool) -> None:
        self.clock = FakeClock(1_700_000_000.0)
        backend = MemoryBackend(self.clock, FakeIds())
        self.records = SlowRecords(backend)
        self.tokens = TokenStore(self.records, self.clock)
        self.guard = Guard(self.tokens, backend.windows, AccessRules(is_open=is_open, per_minute=2))


async def test_whether_a_process_lives_is_told_while_its_store_does_not_answer() -> None:
    door = Door(is_open=True)
    door.records.is_away = True

    caller = await door.guard.admit("/health/live", LOCAL, "127.0.0.1")

    assert (caller.scopes, door.records.asked) == (None, 0)


async def test_one_request_asks_a_store_that_is_away_and_the_others_go_on() -> None:
    door = Door(is_open=False)
    token = (await door.tokens.create("ci", [Scope.READ])).token
    headers = {**LOCAL, "authorization": f"Bearer {token}"}
    await door.guard.admit("/v1/server", headers, "127.0.0.1")
    door.records.is_away = True
    await door.clock.advance(REFRESH_INTERVAL_S)
    asked = door.records.asked

    first = asyncio.create_task(door.guard.admit("/v1/server", headers, "127.0.0.1"))
    await asyncio.sleep(0)
    others = [await door.guard.admit("/v1/server", headers, "127.0.0.1") for _ in range(3)]
    door.records.answers.set()

    assert {each.name for each in (*others, await first)} == {"ci"}
    assert door.records.asked == asked + 1
    await door.clock.advance(CACHE_AGE_S_MAX + 1)
    with pytest.raises(StoreError):
        await door.guard.admit("/v1/server", headers, "127.0.0.1")


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
    door = Door(is_open=False)
    for address in addresses[:2]:
        await door.guard.admit("/v1/server", LOCAL, address)

    with pytest.raises(TooManyRequestsError):
        await door.guard.admit("/v1/server", LOCAL, addresses[2])
    await door.guard.admit("/v1/server", LOCAL, "2001:db8:1:3::1")
    await door.guard.admit("/v1/server", LOCAL, "unknown")
