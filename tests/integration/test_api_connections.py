"""The server closes a connection whose request does not arrive in time, and no other."""

import asyncio
import json
import logging
import socket
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from runnel.api.server import ApiRole, RequestTimeoutProtocol, listen
from runnel.app.embedded_engine import StopEvents
from tests.api import ApiUnderTest, open_api

DEADLINE_S = 20.0
HEAD = (
    b"POST /v1/workflows/validate HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
)
NO_CHUNK = b"zz\r\n{}\r\n"
LIVE = b"GET /health/live HTTP/1.1\r\nHost: localhost\r\n\r\n"


@pytest.fixture
async def api(
    request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> AsyncIterator[ApiUnderTest]:
    monkeypatch.setattr(RequestTimeoutProtocol, "request_timeout_s", 0.3)
    async with open_api("memory", request, tmp_path) as api:
        yield api


@asynccontextmanager
async def open_connection(
    api: ApiUnderTest,
) -> AsyncIterator[tuple[asyncio.StreamReader, asyncio.StreamWriter]]:
    """Starts a server on a socket and connects to it."""
    listening = listen("127.0.0.1", 0)
    role = ApiRole("api", api.app, api.site, listening)
    stops = StopEvents(asyncio.Event(), asyncio.Event())
    async with asyncio.timeout(DEADLINE_S), asyncio.TaskGroup() as group:
        group.create_task(role.run(stops))
        reader, writer = await asyncio.open_connection(*listening.getsockname())
        try:
            yield reader, writer
        finally:
            writer.close()
            stops.drain.set()


@pytest.mark.parametrize(
    "sent",
    [
        b"",
        b"GET /health/live HTTP/1.1\r\n",
        HEAD + b"Content-Length: 100\r\n\r\n{",
        HEAD + b"Transfer-Encoding: chunked\r\n\r\n1\r\n{\r\n",
        LIVE + b"GET /health/live HTTP/1.1\r\n",
    ],
)
async def test_a_connection_without_a_complete_request_is_closed(
    api: ApiUnderTest, sent: bytes
) -> None:
    async with open_connection(api) as (reader, writer):
        writer.write(sent)
        answered = await reader.read()

    assert answered.count(b"HTTP/1.1 200") == sent.count(LIVE)
    assert b"HTTP/1.1 5" not in answered


async def test_a_slow_answer_does_not_close_the_connection(api: ApiUnderTest) -> None:
    node = {"id": "ask", "handler": "wait_for_signal", "config": {"signal": "go"}}
    held = await api.post("/v1/workflow", {"name": "held", "nodes": [node]})
    path = f"/v1/executions/{held['execution_id']}/wait?timeout=1"
    async with open_connection(api) as (reader, writer):
        writer.write(f"GET {path} HTTP/1.1\r\nHost: localhost\r\n\r\n".encode())
        waited = await reader.readuntil(b"\r\n")
        await reader.readuntil(b"\r\n\r\n")

    assert waited == b"HTTP/1.1 200 OK\r\n"


def test_answers_are_sent_without_delay() -> None:
    """TCP_NODELAY needs this protocol: asyncio sets the option only on sockets that have it."""
    with listen("127.0.0.1", 0) as listening, socket.create_connection(listening.getsockname()):
        accepted, _ = listening.accept()
        with accepted:
            kind = accepted.proto

    assert kind == socket.IPPROTO_TCP


@pytest.mark.parametrize(
    "sent", [b"hello\r\n\r\n", b"GET / HTTP/1.1\r\nHost: a\r\nHost: b\r\n\r\n"]
)
async def test_a_malformed_request_is_answered_with_a_problem(
    api: ApiUnderTest, sent: bytes
) -> None:
    async with open_connection(api) as (reader, writer):
        writer.write(sent)
        answer = await reader.read()

    head, _, body = answer.partition(b"\r\n\r\n")
    problem = json.loads(body)
    assert head.startswith(b"HTTP/1.1 400 Bad Request\r\n")
    assert b"content-type: application/problem+json" in head.lower()
    assert (problem["status"], problem["code"]) == (400, "malformed_request")


async def test_a_body_with_an_invalid_chunk_is_refused_once(
    api: ApiUnderTest, caplog: pytest.LogCaptureFixture
) -> None:
    head = HEAD.replace(b"application/json", b"text/plain")
    async with open_connection(api) as (reader, writer):
        writer.write(head + b"Transfer-Encoding: chunked\r\n\r\n" + NO_CHUNK)
        answer = await reader.read()

    assert answer.startswith(b"HTTP/1.1 400 Bad Request\r\n")
    assert answer.count(b"\r\n\r\n") == 1
    assert list_errors(caplog) == []


async def test_an_invalid_chunk_after_the_answer_closes_the_connection_silently(
    api: ApiUnderTest, caplog: pytest.LogCaptureFixture
) -> None:
    head = HEAD.replace(b"application/json", b"text/plain")
    async with open_connection(api) as (reader, writer):
        writer.write(head + b"Transfer-Encoding: chunked\r\n\r\n")
        answer = await reader.readuntil(b"\r\n")
        writer.write(NO_CHUNK)
        remainder = await reader.read()

    assert answer == b"HTTP/1.1 415 Unsupported Media Type\r\n"
    assert remainder.count(b"\r\n\r\n") == 1
    assert list_errors(caplog) == []


def list_errors(caplog: pytest.LogCaptureFixture) -> list[str]:
    return [record.getMessage() for record in caplog.records if record.levelno >= logging.ERROR]
