"""Access to the HTTP API: tokens, scopes, rate limits, origins and body sizes."""

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import httpx
import pytest

from runnel.api.security.tokens import RECORD_KIND
from runnel.settings.model import Settings
from runnel.views.token import Scope
from tests.api import ApiUnderTest, open_api

HELLO = {"name": "hello", "nodes": [{"id": "a", "handler": "output"}]}
LIST, RUN = "/v1/executions", "/v1/workflows/hello/run"
FEW = Settings(requests_per_minute=3, token_requests_per_minute=5)


@pytest.fixture
async def opened(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[ApiUnderTest]:
    async with open_api("memory", request, tmp_path) as api:
        yield api


@pytest.fixture(params=["memory", "redis", "archived"])
async def closed(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[ApiUnderTest]:
    async with open_api(request.param, request, tmp_path, is_open=False, settings=FEW) as api:
        yield api


def bearer_header(token: str) -> dict[str, str]:
    return {"Authorization": f"Bearer {token}"}


def status_and_code(answer: httpx.Response) -> tuple[int, str]:
    return answer.status_code, answer.json()["code"]


# -- tokens and scopes -------------------------------------------------------------------------


async def test_a_token_allows_its_scope_and_lower_scopes(closed: ApiUnderTest) -> None:
    reading, running = await closed.token(Scope.READ), await closed.token(Scope.RUN)

    answers = [
        await closed.http.get(LIST, headers=bearer_header(reading)),
        await closed.http.post("/v1/workflows", json=HELLO, headers=bearer_header(reading)),
        await closed.http.post("/v1/workflows", json=HELLO, headers=bearer_header(running)),
        await closed.http.get(LIST, headers=bearer_header(running)),
    ]

    assert [answer.status_code for answer in answers] == [200, 403, 201, 200]
    assert status_and_code(answers[1]) == (403, "missing_scope")
    assert "'run'; the given token has: read" in answers[1].json()["detail"]


@pytest.mark.parametrize(
    "header",
    ["Bearer rnl_00000000_nope", "Bearer nope", "Bearer", "Basic YTpi", "rnl_1_2", ""],
)
async def test_an_unknown_token_is_refused(closed: ApiUnderTest, header: str) -> None:
    answer = await closed.http.get(LIST, headers={"Authorization": header})

    assert status_and_code(answer) == (401, "not_authenticated")
    assert answer.headers["www-authenticate"].startswith("Bearer")


async def test_without_a_token_only_health_is_shown(closed: ApiUnderTest) -> None:
    assert status_and_code(await closed.http.get(LIST)) == (401, "not_authenticated")
    assert (await closed.http.get("/health/live")).status_code == 200


async def test_an_expired_or_revoked_token_is_refused(closed: ApiUnderTest) -> None:
    expired = await closed.token(Scope.ADMIN, days=-1)
    revoked = await closed.token(Scope.ADMIN)
    before = await closed.http.get(LIST, headers=bearer_header(revoked))

    await closed.tokens.revoke(revoked.split("_")[1])

    assert before.status_code == 200
    assert status_and_code(await closed.http.get(LIST, headers=bearer_header(expired))) == (
        401,
        "not_authenticated",
    )
    assert status_and_code(await closed.http.get(LIST, headers=bearer_header(revoked)))[0] == 401


async def test_a_token_is_stored_as_a_hash_only(closed: ApiUnderTest) -> None:
    token = await closed.token(Scope.READ)

    stored = b"".join(record.data for record in await closed.backend.records.list(RECORD_KIND))

    assert token.split("_")[1].encode() in stored
    assert token.split("_")[2].encode() not in stored


async def test_the_first_token_closes_an_open_server_for_good(opened: ApiUnderTest) -> None:
    before = await opened.http.get(LIST)
    token = await opened.token(Scope.READ)
    opened.tokens._read_at = None  # noqa: SLF001 - as if the seconds had passed

    during = await opened.http.get(LIST)
    await opened.tokens.revoke(token.split("_")[1])
    after = await opened.http.get(LIST)

    assert [answer.status_code for answer in (before, during, after)] == [200, 401, 401]


# -- rate limits -------------------------------------------------------------------------------


async def test_callers_without_a_token_have_a_rate_limit(closed: ApiUnderTest) -> None:
    answers = [await closed.http.get(LIST) for _ in range(5)]

    assert [answer.status_code for answer in answers] == [401, 401, 401, 429, 429]
    assert status_and_code(answers[-1]) == (429, "too_many_requests")
    assert 1 <= int(answers[-1].headers["retry-after"]) <= 60


async def test_a_wrong_token_counts_towards_the_anonymous_limit(closed: ApiUnderTest) -> None:
    answers = [await closed.http.get(LIST, headers=bearer_header("rnl_1_2")) for _ in range(4)]

    assert [answer.status_code for answer in answers] == [401, 401, 401, 429]


async def test_health_requests_have_no_rate_limit(closed: ApiUnderTest) -> None:
    answers = [await closed.http.get("/health/live") for _ in range(10)]

    assert {answer.status_code for answer in answers} == {200}


async def test_a_server_without_tokens_has_no_rate_limit(
    request: pytest.FixtureRequest, tmp_path: Path
) -> None:
    async with open_api("memory", request, tmp_path, settings=FEW) as api:
        answers = [await api.http.get(LIST) for _ in range(10)]

    assert {answer.status_code for answer in answers} == {200}


async def test_each_token_has_a_limit_of_its_own(closed: ApiUnderTest) -> None:
    usual, special = await closed.token(Scope.READ), await closed.token(Scope.READ, per_minute=2)
    free = await closed.token(Scope.READ, per_minute=0)

    counts = {
        token: [
            (await closed.http.get(LIST, headers=bearer_header(token))).status_code
            for _ in range(7)
        ].count(200)
        for token in (usual, special, free)
    }

    assert list(counts.values()) == [5, 2, 7]


# -- hosts and origins -------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("headers", "status"),
    [
        ({"Host": "localhost"}, 200),
        ({"Host": "LocalHost:8080"}, 200),
        ({"Host": "127.0.0.1:8080"}, 200),
        ({"Host": "[::1]:8080"}, 200),
        ({"Host": "evil.example"}, 403),
        ({"Host": "localhost.evil.example"}, 403),
        ({"Host": "evil.example:80"}, 403),
        ({"Host": "localhost:1@evil.example"}, 403),
        ({"Host": "[::1]evil.example"}, 403),
        ({"Host": ""}, 403),
        ({"Origin": "http://localhost"}, 200),
        ({"Origin": "http://evil.example"}, 403),
        ({"Origin": "null"}, 403),
        ({"Origin": "http://localhost:3000"}, 403),
        ({"Origin": "https://localhost.evil.example"}, 403),
        ({"Sec-Fetch-Site": "cross-site"}, 403),
        ({"Sec-Fetch-Site": "same-origin"}, 200),
    ],
)
async def test_an_open_server_refuses_foreign_hosts_and_origins(
    opened: ApiUnderTest, headers: dict[str, str], status: int
) -> None:
    answer = await opened.http.get(LIST, headers=headers)

    assert answer.status_code == status


async def test_the_settings_may_allow_a_host_and_an_origin(
    request: pytest.FixtureRequest, tmp_path: Path
) -> None:
    hosts, origins = ("runnel.example",), ("https://app.example",)
    settings = Settings(api_origins=origins)
    async with open_api(
        "memory", request, tmp_path, hosts=hosts, origins=origins, settings=settings
    ) as api:
        page = {"Host": "runnel.example", "Origin": "https://app.example"}
        answer = await api.http.get(LIST, headers=page)
        preflight = await api.http.options(
            LIST, headers={**page, "Access-Control-Request-Method": "POST"}
        )
        foreign = await api.http.options(
            LIST,
            headers={"Origin": "https://evil.example", "Access-Control-Request-Method": "POST"},
        )

    assert answer.status_code == 200
    assert answer.headers["access-control-allow-origin"] == "https://app.example"
    assert preflight.status_code == 200
    assert "access-control-allow-origin" not in foreign.headers


async def test_no_web_page_may_read_answers_by_default(opened: ApiUnderTest) -> None:
    answer = await opened.http.get(LIST, headers={"Origin": "http://localhost"})

    assert "access-control-allow-origin" not in answer.headers


async def test_every_answer_has_the_security_headers(opened: ApiUnderTest) -> None:
    answers: list[Any] = [
        await opened.http.get("/health/live"),
        await opened.http.get("/nope"),
        await opened.http.get(LIST, headers={"Host": "evil.example"}),
    ]

    for answer in answers:
        assert answer.headers["x-content-type-options"] == "nosniff"
        assert answer.headers["x-frame-options"] == "DENY"
        assert answer.headers["cache-control"] == "no-store"


# -- body size and backlog ---------------------------------------------------------------------


async def test_a_body_without_a_length_is_refused_at_the_size_limit(opened: ApiUnderTest) -> None:
    async def endless() -> AsyncIterator[bytes]:
        for _ in range(200):
            yield b"x" * 100_000

    answer = await opened.http.post(
        "/v1/workflows", content=endless(), headers={"Content-Type": "application/json"}
    )

    assert status_and_code(answer) == (413, "body_too_large")


async def test_a_run_is_refused_while_a_queue_is_full(
    request: pytest.FixtureRequest, tmp_path: Path
) -> None:
    settings = Settings(queue_tasks_max=2)
    node = {"id": "hold", "handler": "work", "queue": "slow", "for_each": "input.items"}
    async with open_api("redis", request, tmp_path, settings=settings) as api:
        gate = api.work.gate("hold")
        await api.post("/v1/workflows", {"name": "hello", "nodes": [node]})
        await api.post(RUN, {"input": {"items": list(range(40))}})
        await api.work.entered["hold"].wait()
        refused = await _run_until_refused(api)
        gate.set()

    assert status_and_code(refused) == (503, "overloaded")
    assert "'slow'" in refused.json()["detail"]
    assert refused.headers["retry-after"] == "5"


async def _run_until_refused(api: ApiUnderTest) -> httpx.Response:
    async with asyncio.timeout(20.0):
        while True:
            api.site._depths_read_at = None  # noqa: SLF001 - as if a second had passed
            answer = await api.http.post(RUN, json={"input": {"items": []}})
            if answer.status_code != 201:
                return answer
