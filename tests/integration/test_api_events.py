"""What happens is told as it happens, and nothing is missed by who comes back."""

import asyncio
import json
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, NamedTuple, cast

import httpx
import pytest
import uvicorn

from runnel.api.sse_messages import HistoryCache, HistorySource
from runnel.core.ids import ExecutionId
from runnel.ports.archive import Archive
from tests.api import KINDS, ApiUnderTest, open_api

WAITING = {
    "name": "waiting",
    "nodes": [
        {"id": "ask", "handler": "wait_for_signal", "config": {"signal": "go"}},
        {"id": "last", "handler": "work", "config": {"got": "{{ ask }}"}},
    ],
}
DEADLINE_S = 30.0


class Message(NamedTuple):
    id: str
    event: str
    data: Any


class ApiOnSocket:
    """An API behind a real socket: without one, a stream that has no end is never sent."""

    def __init__(self, api: ApiUnderTest, http: httpx.AsyncClient) -> None:
        self.api = api
        self.http = http

    async def begin(self) -> str:
        return str((await self.api.post("/v1/workflows/waiting/run"))["execution_id"])

    async def let_go(self, execution_id: str) -> None:
        await self.api.post(f"/v1/executions/{execution_id}/signal", {"name": "go", "payload": 1})

    @asynccontextmanager
    async def following(
        self, path: str, last: str | None = None
    ) -> AsyncIterator[AsyncIterator[Message]]:
        headers = {} if last is None else {"Last-Event-ID": last}
        async with self.http.stream("GET", path, headers=headers) as answer:
            assert answer.status_code == 200, await answer.aread()
            assert answer.headers["content-type"].startswith("text/event-stream")
            yield _messages(answer)

    async def all_of(self, execution_id: str, last: str | None = None) -> list[Message]:
        async with self.following(f"/v1/executions/{execution_id}/events", last) as messages:
            return [each async for each in messages]


async def _messages(answer: httpx.Response) -> AsyncIterator[Message]:
    found: dict[str, str] = {}
    async for line in answer.aiter_lines():
        name, _, value = line.partition(": ")
        if line:
            found[name] = value
        elif "event" in found:
            yield Message(found["id"], found["event"], json.loads(found["data"]))
            found = {}


@pytest.fixture(params=KINDS)
async def stage(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[ApiOnSocket]:
    async with open_api(request.param, request, tmp_path) as api:
        await api.post("/v1/workflows", WAITING)
        async with serving(api) as http:
            yield ApiOnSocket(api, http)


@asynccontextmanager
async def serving(api: ApiUnderTest) -> AsyncIterator[httpx.AsyncClient]:
    config = uvicorn.Config(api.app, port=0, lifespan="off", log_config=None)
    server = uvicorn.Server(config)
    task = asyncio.create_task(server.serve())
    async with asyncio.timeout(DEADLINE_S):
        while not server.started:
            await asyncio.wait([task], timeout=0.01)
    port = server.servers[0].sockets[0].getsockname()[1]
    try:
        async with httpx.AsyncClient(
            base_url=f"http://127.0.0.1:{port}", timeout=DEADLINE_S
        ) as http:
            yield http
    finally:
        api.site.stopping.set()
        server.should_exit = True
        await task


async def next_of(messages: AsyncIterator[Message]) -> Message:
    async with asyncio.timeout(DEADLINE_S):
        return await anext(messages)


async def test_an_execution_is_followed_to_its_end(stage: ApiOnSocket) -> None:
    execution_id = await stage.begin()
    async with stage.following(f"/v1/executions/{execution_id}/events") as messages:
        first = await next_of(messages)
        await stage.let_go(execution_id)
        async with asyncio.timeout(DEADLINE_S):
            rest = [each async for each in messages]

    assert first.event == "ExecutionCreated"
    assert rest[-2].event == "ExecutionFinished"
    assert (rest[-1].event, rest[-1].data) == ("end", {"status": "COMPLETED"})


async def test_who_comes_back_goes_on_behind_the_last_message(stage: ApiOnSocket) -> None:
    execution_id = await stage.begin()
    await stage.let_go(execution_id)
    await stage.api.ended(execution_id)

    whole = await stage.all_of(execution_id)
    rest = await stage.all_of(execution_id, whole[2].id)
    unknown = await stage.all_of(execution_id, "whatever")
    over = await stage.http.get(
        f"/v1/executions/{execution_id}/events", headers={"Last-Event-ID": whole[-1].id}
    )

    assert rest == whole[3:]
    assert unknown == whole
    assert over.status_code == 204


async def test_who_comes_back_at_the_end_does_not_have_the_history_read_again(
    stage: ApiOnSocket,
) -> None:
    execution_id = ExecutionId(await stage.begin())
    await stage.let_go(execution_id)
    await stage.api.ended(execution_id)
    archive, site = stage.api.backend.archive, stage.api.site
    loads = 0

    class Counting:
        async def load(self, of: ExecutionId, *, after: int = 0) -> Sequence[bytes]:
            nonlocal loads
            loads += 1
            return await archive.load(of, after=after)

    source = HistorySource(
        client=site.client,
        archive=cast("Archive", Counting()),
        clock=site.clock,
        stopping=site.stopping,
    )
    stories = HistoryCache(source)
    at_once = await asyncio.gather(*(stories.count_messages(execution_id) for _ in range(20)))
    later = await stories.count_messages(execution_id)

    history = (await stage.api.get(f"/v1/executions/{execution_id}/history"))["items"]
    assert {*at_once, later} == {len(history)}
    assert loads == 1


async def test_every_execution_that_changes_is_told(stage: ApiOnSocket) -> None:
    async with stage.following("/v1/events") as messages:
        hello = await next_of(messages)
        execution_id = await stage.begin()
        await stage.let_go(execution_id)
        found: list[Message] = []
        while not found or found[-1].data["status"] != "COMPLETED":
            found.append(await next_of(messages))
    states = [each.data["status"] for each in found if each.data["status"] is not None]
    async with stage.following("/v1/events", hello.id) as again:
        assert (await next_of(again)).event == "hello"
        told = [await next_of(again) for _ in found]

    assert hello.event == "hello"
    assert {each.data["execution_id"] for each in found} == {execution_id}
    assert list(dict.fromkeys(states)) == ["PENDING", "RUNNING", "COMPLETED"]
    assert told == found


async def test_a_place_that_is_not_known_any_more_is_a_gap(stage: ApiOnSocket) -> None:
    async with stage.following("/v1/events", "nowhere") as messages:
        found = [await next_of(messages) for _ in range(2)]

    assert [each.event for each in found] == ["hello", "gap"]


async def test_changes_come_in_pages_too(stage: ApiOnSocket) -> None:
    start = await stage.api.get("/v1/changes")
    execution_id = await stage.begin()

    page = await stage.api.get("/v1/changes", params={"after": start["position"], "wait": 10})
    none = await stage.api.get("/v1/changes", params={"after": "nowhere"})

    assert page["items"][0]["execution_id"] == execution_id
    assert (none["items"], none["has_gap"]) == ([], True)


async def test_an_execution_is_read_once_for_all_who_follow_it(
    request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with open_api("memory", request, tmp_path) as api:
        await api.post("/v1/workflows", WAITING)
        async with serving(api) as http:
            stage = ApiOnSocket(api, http)
            execution_id = await stage.begin()
            reads = _counted_reads(api, monkeypatch)
            async with asyncio.timeout(DEADLINE_S), asyncio.TaskGroup() as group:
                following = [group.create_task(stage.all_of(execution_id)) for _ in range(50)]
                while api.site.stream_count < len(following):
                    await asyncio.wait(following, timeout=0.01)
                await stage.let_go(execution_id)
            told = [each.result() for each in following]
        left = api.site.stream_count

    assert told[0][-1].data == {"status": "COMPLETED"}
    assert all(each == told[0] for each in told)
    assert len(reads) < 2 * len(told)  # one each to begin with, and a few for all
    assert left == 0


def _counted_reads(api: ApiUnderTest, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    archive = api.backend.archive
    load, found = archive.load, list[str]()

    async def counted(execution_id: ExecutionId, *, after: int = 0) -> Sequence[bytes]:
        found.append(execution_id)
        return await load(execution_id, after=after)

    monkeypatch.setattr(archive, "load", counted)
    return found


async def test_streams_end_with_the_server(request: pytest.FixtureRequest, tmp_path: Path) -> None:
    async with open_api("memory", request, tmp_path) as api:
        await api.post("/v1/workflows", WAITING)
        async with serving(api) as http:
            stage = ApiOnSocket(api, http)
            execution_id = await stage.begin()
            path = f"/v1/executions/{execution_id}/events"
            async with stage.following(path) as one, stage.following("/v1/events") as all_:
                await next_of(one)
                await next_of(all_)
                api.site.stopping.set()
                async with asyncio.timeout(DEADLINE_S):
                    rest = [each async for each in one], [each async for each in all_]

    assert all(message.event != "end" for messages in rest for message in messages)


async def test_following_nothing_is_refused(request: pytest.FixtureRequest, tmp_path: Path) -> None:
    async with open_api("memory", request, tmp_path) as api:
        answer = await api.http.get("/v1/executions/nope/events")

    assert answer.status_code == 404
