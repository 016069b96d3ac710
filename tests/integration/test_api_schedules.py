"""Schedules over HTTP, on every backend."""

from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from tests.api import BOTH, ApiUnderTest, open_api

HELLO = {
    "name": "hello",
    "input": {"type": "object", "properties": {"day": {"type": "string"}}},
    "nodes": [{"id": "a", "handler": "output", "config": {"day": "{{ input.day }}"}}],
}
NIGHTLY: dict[str, Any] = {
    "id": "nightly",
    "workflow": "hello",
    "cron": "0 3 * * *",
    "timezone": "Europe/Berlin",
    "input": {"day": "{{ tick.date }}"},
    "starts_at": "2040-01-01T00:00:00Z",
}


@pytest.fixture(params=BOTH)
async def api(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[ApiUnderTest]:
    async with open_api(request.param, request, tmp_path) as opened:
        await opened.post("/v1/workflows", HELLO)
        yield opened


async def test_a_schedule_is_added_paused_changed_and_removed(api: ApiUnderTest) -> None:
    added = await api.post("/v1/schedules", NIGHTLY)
    paused = await api.post("/v1/schedules/nightly/pause")
    resumed = await api.post("/v1/schedules/nightly/resume")
    body = {key: value for key, value in NIGHTLY.items() if key != "id"}
    changed = await api.call(
        "PUT", "/v1/schedules/nightly", json={**body, "cron": "@hourly", "overlap": "skip"}
    )
    listed = await api.get("/v1/schedules")
    removed = await api.http.delete("/v1/schedules/nightly")
    after_removal = await api.http.get("/v1/schedules/nightly")

    assert added["next_ticks"][0] == "2040-01-01T03:00:00+01:00"
    assert (paused["is_paused"], paused["next_ticks"]) == (True, [])
    assert len(resumed["next_ticks"]) == 5
    assert (changed["cron"], changed["overlap"]) == ("@hourly", "skip")
    assert [schedule["id"] for schedule in listed["items"]] == ["nightly"]
    assert (removed.status_code, after_removal.status_code) == (204, 404)


async def test_a_tick_is_dispatched_once(api: ApiUnderTest) -> None:
    await api.post("/v1/schedules", NIGHTLY)
    now = {"now": "2040-01-01T02:30:00Z"}

    first = await api.post("/api/triggers/cron/dispatch", now)
    again = await api.post("/v1/triggers/cron/dispatch", now)
    before = await api.post("/v1/triggers/cron/dispatch")
    [fired] = first["items"]
    ended = await api.wait_for_end(fired["execution_id"])

    assert fired["tick"] == "2040-01-01T02:00:00.000Z"
    assert (again["items"], before["items"]) == ([], [])
    assert ended["output"] == {"day": "2040-01-01"}
    assert ended["labels"]["schedule"] == "nightly"
    assert (await api.get("/v1/schedules/nightly"))["fired"] == 1


@pytest.mark.parametrize(
    ("change", "status", "path"),
    [
        ({"cron": "61 * * * *"}, 422, "$.cron"),
        ({"cron": None}, 422, "$.cron"),
        ({"interval_s": 5}, 422, "$.cron"),
        ({"cron": None, "interval_s": 0}, 422, "$.interval_s"),
        ({"timezone": "Europe/Berlni"}, 422, "$.timezone"),
        ({"id": "a/b"}, 422, "$.id"),
        ({"overlap": "queue"}, 422, "$.overlap"),
        ({"catch_up": 101}, 422, "$.catch_up"),
        ({"starts_at": "2040-01-01"}, 422, "$.starts_at"),
        ({"ends_at": "2039-01-01T00:00:00Z"}, 422, "$.ends_at"),
        ({"labels": {"runnel.x": "y"}}, 422, "$.labels"),
        ({"input": {"day": "{{ nope }}"}}, 422, "$.input.day"),
        ({"input": {"day": 3}}, 422, None),
        ({"every": 5}, 422, "$.every"),
        ({"workflow": "nope"}, 404, None),
        ({"version": 7}, 404, None),
    ],
)
async def test_an_invalid_schedule_is_refused(
    request: pytest.FixtureRequest,
    tmp_path: Path,
    change: dict[str, Any],
    status: int,
    path: str | None,
) -> None:
    async with open_api("memory", request, tmp_path) as api:
        await api.post("/v1/workflows", HELLO)

        answer = await api.http.post("/v1/schedules", json={**NIGHTLY, **change})

        assert answer.status_code == status, answer.text
        if path is not None:
            assert path in [problem["path"] for problem in answer.json()["errors"]], answer.text
        assert (await api.get("/v1/schedules"))["items"] == []


async def test_the_id_of_a_schedule_can_be_used_once(
    request: pytest.FixtureRequest, tmp_path: Path
) -> None:
    async with open_api("memory", request, tmp_path) as api:
        await api.post("/v1/workflows", HELLO)
        await api.post("/v1/schedules", NIGHTLY)

        again = await api.http.post("/v1/schedules", json=NIGHTLY)

    assert again.status_code == 409
