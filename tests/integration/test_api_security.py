"""Who may call the HTTP API, how often, and what for."""

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


def bearer(token: str) -> dict[str, str]:
    return {"Authorization": f"Bearer {token}"}


def told(answer: httpx.Response) -> tuple[int, str]:
    return answer.status_code, answer.json()["code"]


# -- tokens and scopes -------------------------------------------------------------------------


async def test_a_token_allows_its_scope_and_those_below(closed: ApiUnderTest) -> None:
    reading, running = await closed.token(Scope.READ), await closed.token(Scope.RUN)

    answers = [
        await closed.http.get(LIST, headers=bearer(reading)),
        await closed.http.post("/v1/workflows", json=HELLO, headers=bearer(reading)),
        await closed.http.post("/v1/workflows", json=HELLO, headers=bearer(running)),
        await closed.http.get(LIST, headers=bearer(running)),
    ]

    assert [each.status_code for each in answers] == [200, 403, 201, 200]
    assert told(answers[1]) == (403, "missing_scope")
    assert "'run'; the given token has: read" in answers[1].json()["detail"]


@pytest.mark.parametrize(
    "given",
    ["Bearer rnl_00000000_nope", "Bearer nope", "Bearer", "Basic YTpi", "rnl_1_2", ""],
)
async def test_a_token_that_nobody_made_is_refused(closed: ApiUnderTest, given: str) -> None:
    answer = await closed.http.get(LIST, headers={"Authorization": given})

    assert told(answer) == (401, "not_authenticated")
    assert answer.headers["www-authenticate"].startswith("Bearer")


async def test_without_a_token_nothing_is_shown_but_health(closed: ApiUnderTest) -> None:
    assert told(await closed.http.get(LIST)) == (401, "not_authenticated")
    assert (await closed.http.get("/health/live")).status_code == 200


async def test_a_token_ends_with_its_time_and_when_it_is_revoked(closed: ApiUnderTest) -> None:
    over = await closed.token(Scope.ADMIN, days=-1)
    revoked = await closed.token(Scope.ADMIN)
    before = await closed.http.get(LIST, headers=bearer(revoked))

    await closed.tokens.revoke(revoked.split("_")[1])

    assert before.status_code == 200
    assert told(await closed.http.get(LIST, headers=bearer(over))) == (401, "not_authenticated")
    assert told(await closed.http.get(LIST, headers=bearer(revoked)))[0] == 401


async def test_a_token_is_stored_as_a_hash_only(closed: ApiUnderTest) -> None:
    token = await closed.token(Scope.READ)

    stored = b"".join(each.data for each in await closed.backend.records.list(RECORD_KIND))

    assert token.split("_")[1].encode() in stored
    assert token.split("_")[2].encode() not in stored


async def test_the_first_token_closes_an_open_server_for_good(opened: ApiUnderTest) -> None:
    before = await opened.http.get(LIST)
    token = await opened.token(Scope.READ)
    opened.tokens._read_at = None  # noqa: SLF001 - as if the seconds had passed

    during = await opened.http.get(LIST)
    await opened.tokens.revoke(token.split("_")[1])
    after = await opened.http.get(LIST)

    assert [each.status_code for each in (before, during, after)] == [200, 401, 401]


# -- how often ---------------------------------------------------------------------------------


async def test_callers_without_a_token_are_few_a_minute(closed: ApiUnderTest) -> None:
    answers = [await closed.http.get(LIST) for _ in range(5)]

    assert [each.status_code for each in answers] == [401, 401, 401, 429, 429]
    assert told(answers[-1]) == (429, "too_many_requests")
    assert 1 <= int(answers[-1].headers["retry-after"]) <= 60


async def test_a_wrong_token_counts_as_none(closed: ApiUnderTest) -> None:
    answers = [await closed.http.get(LIST, headers=bearer("rnl_1_2")) for _ in range(4)]

    assert [each.status_code for each in answers] == [401, 401, 401, 429]


async def test_health_is_asked_as_often_as_one_likes(closed: ApiUnderTest) -> None:
    answers = [await closed.http.get("/health/live") for _ in range(10)]

    assert {each.status_code for each in answers} == {200}


async def test_each_token_has_a_limit_of_its_own(closed: ApiUnderTest) -> None:
    usual, special = await closed.token(Scope.READ), await closed.token(Scope.READ, per_minute=2)
    free = await closed.token(Scope.READ, per_minute=0)

    counts = {
        token: [
            (await closed.http.get(LIST, headers=bearer(token))).status_code for _ in range(7)
        ].count(200)
        for token in (usual, special, free)
    }

    assert list(counts.values()) == [5, 2, 7]


# -- from where --------------------------------------------------------------------------------


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
async def test_an_open_server_answers_only_to_itself(
    opened: ApiUnderTest, headers: dict[str, str], status: int
) -> None:
    answer = await opened.http.get(LIST, headers=headers)

    assert answer.status_code == status


async def test_a_name_and_a_page_may_be_allowed(
    request: pytest.FixtureRequest, tmp_path: Path
) -> None:
    hosts, origins = ("runnel.example",), ("https://app.example",)
    settings = Settings(api_origins=origins)
    async with open_api(
        "memory", request, tmp_path, hosts=hosts, origins=origins, settings=settings
    ) as api:
        page = {"Host": "runnel.example", "Origin": "https://app.example"}
        answer = await api.http.get(LIST, headers=page)
        asked = await api.http.options(
            LIST, headers={**page, "Access-Control-Request-Method": "POST"}
        )
        foreign = await api.http.options(
            LIST,
            headers={"Origin": "https://evil.example", "Access-Control-Request-Method": "POST"},
        )

    assert answer.status_code == 200
    assert answer.headers["access-control-allow-origin"] == "https://app.example"
    assert asked.status_code == 200
    assert "access-control-allow-origin" not in foreign.headers


async def test_no_page_may_read_answers_by_default(opened: ApiUnderTest) -> None:
    answer = await opened.http.get(LIST, headers={"Origin": "http://localhost"})

    assert "access-control-allow-origin" not in answer.headers


async def test_every_answer_has_the_headers_that_protect_its_reader(opened: ApiUnderTest) -> None:
    answers: list[Any] = [
        await opened.http.get("/health/live"),
        await opened.http.get("/nope"),
        await opened.http.get(LIST, headers={"Host": "evil.example"}),
    ]

    for answer in answers:
        assert answer.headers["x-content-type-options"] == "nosniff"
        assert answer.headers["x-frame-options"] == "DENY"
        assert answer.headers["cache-control"] == "no-store"


# -- how much ----------------------------------------------------------------------------------


async def test_a_body_that_does_not_say_how_long_it_is_is_cut_off(opened: ApiUnderTest) -> None:
    async def endless() -> AsyncIterator[bytes]:
        for _ in range(200):
            yield b"x" * 100_000

    answer = await opened.http.post(
        "/v1/workflows", content=endless(), headers={"Content-Type": "application/json"}
    )

    assert told(answer) == (413, "body_too_large")


async def test_nothing_new_is_taken_on_while_too_much_waits(
    request: pytest.FixtureRequest, tmp_path: Path
) -> None:
    settings = Settings(queue_tasks_max=2)
    node = {"id": "hold", "handler": "work", "queue": "slow", "for_each": "input.items"}
    async with open_api("redis", request, tmp_path, settings=settings) as api:
        gate = api.work.gate("hold")
        await api.post("/v1/workflows", {"name": "hello", "nodes": [node]})
        await api.post(RUN, {"input": {"items": list(range(40))}})
        await api.work.entered["hold"].wait()
        refused = await _until_refused(api)
        gate.set()

    assert told(refused) == (503, "overloaded")
    assert "'slow'" in refused.json()["detail"]
    assert refused.headers["retry-after"] == "5"


async def _until_refused(api: ApiUnderTest) -> httpx.Response:
    async with asyncio.timeout(20.0):
        while True:
            api.site._depths_read_at = None  # noqa: SLF001 - as if a second had passed
            answer = await api.http.post(RUN, json={"input": {"items": []}})
            if answer.status_code != 201:
                return answer
