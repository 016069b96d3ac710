"""`/metrics` shows the counters of this process and the gauges of the store, on every backend."""

from collections.abc import AsyncIterator
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from runnel.client import operations as gauges
from runnel.errors import StoreError
from runnel.settings.model import Settings
from runnel.views.token import Scope
from tests.api import BOTH, ApiUnderTest, open_api
from tests.metric_samples import Samples, parse_metric_types, parse_samples
from tests.waiting import wait_for_value

wait_for = partial(wait_for_value, every_s=0.05, deadline_s=15.0)

ONE: dict[str, Any] = {"name": "one", "nodes": [{"id": "a", "handler": "work", "config": {"n": 1}}]}


@pytest.fixture(params=BOTH)
async def api(
    request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> AsyncIterator[ApiUnderTest]:
    monkeypatch.setattr(gauges, "GAUGES_CACHE_S", 0.0)
    async with open_api(request.param, request, tmp_path) as opened:
        yield opened


@pytest.fixture
async def local(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[ApiUnderTest]:
    async with open_api("memory", request, tmp_path) as opened:
        yield opened


async def scrape(api: ApiUnderTest, **given: Any) -> Samples:
    answer = await api.http.get("/metrics", **given)
    assert answer.status_code == 200, answer.text
    assert answer.headers["content-type"].startswith("text/plain; version=")
    return parse_samples(answer.text)


async def test_queues_workers_partitions_and_letters_are_read_from_the_store(
    api: ApiUnderTest,
) -> None:
    gate = api.work.gate("a")
    many = {**ONE, "nodes": [{"id": "a", "handler": "work", "for_each": "{{ input.items }}"}]}
    await api.post("/v1/workflows", many)
    execution = await api.post("/v1/workflows/one/run", {"input": {"items": list(range(200))}})

    async def waiting() -> Samples | None:
        samples = await scrape(api)
        depths = samples.get("runnel_queue_depth", {})
        is_settled = depths.get(("work",)) and not samples["runnel_partitions_orphaned"][()]
        return samples if is_settled and samples["runnel_workers"]["alive",] else None

    samples = await wait_for(waiting)
    gate.set()
    await api.wait_for_end(execution["execution_id"])

    assert 0 < samples["runnel_queue_depth"]["work",] <= 200
    assert samples["runnel_queue_oldest_seconds"]["work",] >= 0
    assert sum(samples["runnel_workers"].values()) == 1
    assert samples["runnel_tasks_held"][()] >= 16
    assert samples["runnel_threads_abandoned"] == {(): 0}
    assert len(samples["runnel_partitions_owned"]) == 1
    assert samples["runnel_dead_letters"] == {(): 0}
    assert samples["runnel_inbox_unread_seconds"][()] >= 0
    assert samples["runnel_store_up"] == {("archive",): 1, ("store",): 1}


async def test_metrics_count_dead_letters(api: ApiUnderTest) -> None:
    api.work.failures["a"] = [ValueError("odd")]
    await api.post("/v1/workflows", ONE)
    execution = await api.post("/v1/workflows/one/run")
    await api.wait_for_end(execution["execution_id"])

    async def letters() -> bool | None:
        return (await scrape(api))["runnel_dead_letters"] == {(): 1} or None

    assert await wait_for(letters)


async def test_requests_are_counted_by_the_template_of_their_path(local: ApiUnderTest) -> None:
    for path in ("/v1/executions/a", "/v1/executions/b", "/api/executions/c", "/nothing/here"):
        await local.http.get(path)
    await local.http.post("/v1/workflows", content=b"x", headers={"Content-Type": "text/odd"})
    await local.http.get("/v1/workers", headers={"Host": "evil.example"})
    await local.http.request("FROB", "/v1/workers")

    samples = await scrape(local)

    counted = samples["runnel_http_requests_total"]
    template = "/executions/{execution_id}"
    assert counted["GET", template, "404"] == 3
    assert counted["GET", "none", "404"] == 1
    assert counted["GET", "none", "403"] == 1
    assert counted["POST", "none", "415"] == 1
    assert counted["other", "/workers", "405"] == 1
    assert samples["runnel_http_request_duration_seconds_count"]["GET", template] == 3
    assert samples["runnel_http_requests_under_way"] == {(): 1}


async def test_scrapes_share_one_cached_read_of_the_store(
    local: ApiUnderTest, monkeypatch: pytest.MonkeyPatch
) -> None:
    reads: list[int] = []
    tasks = local.backend.tasks
    queues = tasks.queues

    async def counted() -> Any:
        reads.append(1)
        return await queues()

    monkeypatch.setattr(tasks, "queues", counted)

    for _ in range(5):
        await scrape(local)

    assert len(reads) == 1


async def test_metrics_of_an_unreachable_store_are_absent_and_it_is_not_up(
    request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with open_api("memory", request, tmp_path) as api:

        async def away(*_args: object, **_named: object) -> Any:
            raise StoreError("Redis: it is away")

        monkeypatch.setattr(api.backend.tasks, "workers", away)
        samples = await scrape(api)
        text = (await api.http.get("/metrics")).text

    assert samples["runnel_store_up"] == {("archive",): 1, ("store",): 0}
    assert "runnel_workers" not in samples
    assert parse_metric_types(text)["runnel_workers"] == "gauge"


async def test_a_guarded_server_requires_a_token_for_metrics_and_does_not_limit_them(
    request: pytest.FixtureRequest, tmp_path: Path
) -> None:
    settings = Settings(token_requests_per_minute=1)
    async with open_api("memory", request, tmp_path, is_open=False, settings=settings) as api:
        token = {"Authorization": f"Bearer {await api.token(Scope.READ)}"}

        without = await api.http.get("/metrics")
        often = [await scrape(api, headers=token) for _ in range(5)]

    assert without.status_code == 401
    assert all("runnel_store_up" in samples for samples in often)
