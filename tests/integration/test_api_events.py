"""Event streams over HTTP: they report changes as they happen, and a reconnect misses none."""

import asyncio
import json
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, NamedTuple, cast

import httpx
import pytest
import uvicorn

from runnel.api import event_streams
from runnel.api.sse_messages import HistoryCache, HistorySource
from runnel.core.ids import ExecutionId
from runnel.errors import StoreError
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
    """An API on a real socket: the in-process transport never sends a stream without an end."""

    def __init__(self, api: ApiUnderTest, http: httpx.AsyncClient) -> None:
        self.api = api
        self.http = http

    async def start_execution(self) -> str:
        return str((await self.api.post("/v1/workflows/waiting/run"))["execution_id"])

    async def send_signal(self, execution_id: str) -> None:
        await self.api.post(f"/v1/executions/{execution_id}/signal", {"name": "go", "payload": 1})

    @asynccontextmanager
    async def follow(
        self, path: str, last: str | None = None
    ) -> AsyncIterator[AsyncIterator[Message]]:
        headers = {} if last is None else {"Last-Event-ID": last}
        async with self.http.stream("GET", path, headers=headers) as answer:
            assert answer.status_code == 200, await answer.aread()
            assert answer.headers["content-type"].startswith("text/event-stream")
            yield _parse_messages(answer)

    async def read_stream(self, execution_id: str, last: str | None = None) -> list[Message]:
        async with self.follow(f"/v1/executions/{execution_id}/events", last) as messages:
            return [message async for message in messages]


async def _parse_messages(answer: httpx.Response) -> AsyncIterator[Message]:
    fields: dict[str, str] = {}
    async for line in answer.aiter_lines():
        name, _, value = line.partition(": ")
        if line:
            fields[name] = value
        elif "event" in fields:
            yield Message(fields["id"], fields["event"], json.loads(fields["data"]))
            fields = {}


@pytest.fixture(params=KINDS)
async def stage(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[ApiOnSocket]:
    async with open_api(request.param, request, tmp_path) as api:
        await api.post("/v1/workflows", WAITING)
        async with serve(api) as http:
            yield ApiOnSocket(api, http)


@asynccontextmanager
async def serve(api: ApiUnderTest) -> AsyncIterator[httpx.AsyncClient]:
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


async def read_next(messages: AsyncIterator[Message]) -> Message:
    async with asyncio.timeout(DEADLINE_S):
        return await anext(messages)


async def test_an_execution_is_followed_to_its_end(stage: ApiOnSocket) -> None:
    execution_id = await stage.start_execution()
    async with stage.follow(f"/v1/executions/{execution_id}/events") as messages:
        first = await read_next(messages)
        await stage.send_signal(execution_id)
        async with asyncio.timeout(DEADLINE_S):
            remaining = [message async for message in messages]

    assert first.event == "ExecutionCreated"
    assert remaining[-2].event == "ExecutionFinished"
    assert (remaining[-1].event, remaining[-1].data) == ("end", {"status": "COMPLETED"})


async def test_a_reconnect_continues_after_the_last_message(stage: ApiOnSocket) -> None:
    execution_id = await stage.start_execution()
    await stage.send_signal(execution_id)
    await stage.api.wait_for_end(execution_id)

    all_messages = await stage.read_stream(execution_id)
    after_third = await stage.read_stream(execution_id, all_messages[2].id)
    unknown = await stage.read_stream(execution_id, "whatever")
    after_last = await stage.http.get(
        f"/v1/executions/{execution_id}/events", headers={"Last-Event-ID": all_messages[-1].id}
    )

    assert after_third == all_messages[3:]
    assert unknown == all_messages
    assert after_last.status_code == 204


async def test_reconnects_after_the_end_read_the_history_once(
    stage: ApiOnSocket,
) -> None:
    execution_id = ExecutionId(await stage.start_execution())
    await stage.send_signal(execution_id)
    await stage.api.wait_for_end(execution_id)
    archive, site = stage.api.backend.archive, stage.api.site
    loads = 0

    class CountingArchive:
        async def load(self, of: ExecutionId, *, after: int = 0) -> Sequence[bytes]:
            nonlocal loads
            loads += 1
            return await archive.load(of, after=after)

    source = HistorySource(
        client=site.client,
        archive=cast("Archive", CountingArchive()),
        clock=site.clock,
        stopping=site.stopping,
    )
    cache = HistoryCache(source)
    at_once = await asyncio.gather(*(cache.count_messages(execution_id) for _ in range(20)))
    later = await cache.count_messages(execution_id)

    history = (await stage.api.get(f"/v1/executions/{execution_id}/history"))["items"]
    assert {*at_once, later} == {len(history)}
    assert loads == 1


async def test_the_event_stream_reports_every_changed_execution(stage: ApiOnSocket) -> None:
    async with stage.follow("/v1/events") as messages:
        hello = await read_next(messages)
        execution_id = await stage.start_execution()
        await stage.send_signal(execution_id)
        changes: list[Message] = []
        while not changes or changes[-1].data["status"] != "COMPLETED":
            changes.append(await read_next(messages))
    states = [change.data["status"] for change in changes if change.data["status"] is not None]
    async with stage.follow("/v1/events", hello.id) as again:
        assert (await read_next(again)).event == "hello"
        repeated = [await read_next(again) for _ in changes]

    assert hello.event == "hello"
    assert {change.data["execution_id"] for change in changes} == {execution_id}
    assert list(dict.fromkeys(states)) == ["PENDING", "RUNNING", "COMPLETED"]
    assert repeated == changes


async def test_an_unknown_position_of_the_event_stream_is_reported_as_a_gap(
    stage: ApiOnSocket,
) -> None:
    async with stage.follow("/v1/events", "nowhere") as messages:
        received = [await read_next(messages) for _ in range(2)]

    assert [message.event for message in received] == ["hello", "gap"]


async def test_changes_can_be_read_in_pages(stage: ApiOnSocket) -> None:
    start = await stage.api.get("/v1/changes")
    execution_id = await stage.start_execution()

    page = await stage.api.get("/v1/changes", params={"after": start["position"], "wait": 10})
    unknown = await stage.api.get("/v1/changes", params={"after": "nowhere"})

    assert page["items"][0]["execution_id"] == execution_id
    assert (unknown["items"], unknown["has_gap"]) == ([], True)


async def test_followers_of_an_execution_share_its_reads(
    request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with open_api("memory", request, tmp_path) as api:
        await api.post("/v1/workflows", WAITING)
        async with serve(api) as http:
            stage = ApiOnSocket(api, http)
            execution_id = await stage.start_execution()
            reads = _count_reads(api, monkeypatch)
            async with asyncio.timeout(DEADLINE_S), asyncio.TaskGroup() as group:
                following = [group.create_task(stage.read_stream(execution_id)) for _ in range(50)]
                while api.site.stream_count < len(following):
                    await asyncio.wait(following, timeout=0.01)
                await stage.send_signal(execution_id)
            streams = [task.result() for task in following]
        open_streams = api.site.stream_count

    assert streams[0][-1].data == {"status": "COMPLETED"}
    assert all(stream == streams[0] for stream in streams)
    assert len(reads) < 2 * len(streams)  # one for each follower at the start, then shared ones
    assert open_streams == 0


@asynccontextmanager
async def listen_in_vain(_execution_id: ExecutionId) -> AsyncIterator[asyncio.Event]:
    """Replaces `FeedReader.listen`; the event is never set."""
    yield asyncio.Event()


async def test_a_missed_notification_delays_a_stream_until_the_next_keepalive(
    request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(event_streams, "KEEPALIVE_INTERVAL_S", 0.05)
    async with open_api("memory", request, tmp_path) as api:
        await api.post("/v1/workflows", WAITING)
        monkeypatch.setattr(api.site.feed_reader, "listen", listen_in_vain)
        async with serve(api) as http:
            stage = ApiOnSocket(api, http)
            execution_id = await stage.start_execution()
            async with stage.follow(f"/v1/executions/{execution_id}/events") as messages:
                await read_next(messages)
                await stage.send_signal(execution_id)
                async with asyncio.timeout(DEADLINE_S):
                    events = [message.event async for message in messages]

    assert events[-2:] == ["ExecutionFinished", "end"]


async def test_a_stream_survives_a_store_that_fails_while_nothing_happens(
    request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(event_streams, "KEEPALIVE_INTERVAL_S", 0.05)
    failed = asyncio.Event()

    async def fail(_execution_id: ExecutionId, *, after: int = 0) -> Sequence[bytes]:
        failed.set()
        raise StoreError("down")

    async with open_api("memory", request, tmp_path) as api:
        await api.post("/v1/workflows", WAITING)
        monkeypatch.setattr(api.site.feed_reader, "listen", listen_in_vain)
        async with serve(api) as http:
            stage = ApiOnSocket(api, http)
            execution_id = await stage.start_execution()
            async with stage.follow(f"/v1/executions/{execution_id}/events") as messages:
                await read_next(messages)
                with monkeypatch.context() as broken:
                    broken.setattr(api.backend.archive, "load", fail)
                    async with asyncio.timeout(DEADLINE_S):
                        await failed.wait()
                await stage.send_signal(execution_id)
                async with asyncio.timeout(DEADLINE_S):
                    events = [message.event async for message in messages]

    assert events[-2:] == ["ExecutionFinished", "end"]


def _count_reads(api: ApiUnderTest, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    archive = api.backend.archive
    load, reads = archive.load, list[str]()

    async def counted(execution_id: ExecutionId, *, after: int = 0) -> Sequence[bytes]:
        reads.append(execution_id)
        return await load(execution_id, after=after)

    monkeypatch.setattr(archive, "load", counted)
    return reads


async def test_streams_end_with_the_server(request: pytest.FixtureRequest, tmp_path: Path) -> None:
    async with open_api("memory", request, tmp_path) as api:
        await api.post("/v1/workflows", WAITING)
        async with serve(api) as http:
            stage = ApiOnSocket(api, http)
            execution_id = await stage.start_execution()
            path = f"/v1/executions/{execution_id}/events"
            async with (
                stage.follow(path) as execution_stream,
                stage.follow("/v1/events") as change_stream,
            ):
                await read_next(execution_stream)
                await read_next(change_stream)
                api.site.stopping.set()
                async with asyncio.timeout(DEADLINE_S):
                    remaining = (
                        [message async for message in execution_stream],
                        [message async for message in change_stream],
                    )

    assert all(message.event != "end" for messages in remaining for message in messages)


async def test_following_an_unknown_execution_is_refused(
    request: pytest.FixtureRequest, tmp_path: Path
) -> None:
    async with open_api("memory", request, tmp_path) as api:
        answer = await api.http.get("/v1/executions/nope/events")

    assert answer.status_code == 404
