"""The connections of the HTTP client: reuse, ends of bodies, and responses that are not HTTP."""

import asyncio
import gzip
import ssl
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path

import pytest

from runnel import Client
from runnel.client import http_connections, transport
from runnel.errors import NoServerError
from tests.certificates import make_certificate
from tests.scripted_http_server import (
    LOOPBACK,
    ScriptedAnswer,
    ScriptedServer,
    make_answer,
    make_json_answer,
    open_scripted_server,
)
from tests.waiting import wait_until

HISTORY = "/v1/executions/01x/history"
BODY = b'{"items": []}'
NOTHING = make_json_answer(BODY)
CHUNKED = b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n"
LARGE = b'{"items": [' + b" " * http_connections.WHOLE_BODY_BYTES_MAX * 3 + b"]}"


@pytest.fixture
async def scripted() -> AsyncIterator[ScriptedServer]:
    async with open_scripted_server() as server:
        yield server


@pytest.fixture
async def client(scripted: ScriptedServer) -> AsyncIterator[Client]:
    async with Client(scripted.url(), timeout_s=5, retries=0) as opened:
        yield opened


async def test_calls_one_after_another_share_a_connection(
    scripted: ScriptedServer, client: Client
) -> None:
    scripted.says(HISTORY, NOTHING)

    for _ in range(5):
        await client.history("01x")

    assert [request.connection for request in scripted.requests] == [1] * 5


async def test_concurrent_calls_have_a_connection_each_and_keep_them(
    scripted: ScriptedServer, client: Client
) -> None:
    scripted.says(HISTORY, NOTHING)

    for _ in range(3):
        await asyncio.gather(*[client.history("01x") for _ in range(8)])

    assert (len(scripted.requests), scripted.connections) == (24, 8)


async def test_a_call_waits_while_all_connections_are_in_use(
    scripted: ScriptedServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(transport, "CONNECTIONS_MAX", 2)
    scripted.says(HISTORY, NOTHING)

    async with Client(scripted.url(), timeout_s=5, retries=0) as client:
        await asyncio.gather(*[client.history("01x") for _ in range(6)])

    assert (len(scripted.requests), scripted.connections) == (6, 2)


async def test_a_call_fails_if_no_connection_becomes_free_in_time(
    scripted: ScriptedServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(transport, "CONNECTIONS_MAX", 1)
    scripted.says(HISTORY, ScriptedAnswer(hangs=True))

    async with Client(scripted.url(), timeout_s=0.1, retries=0) as client:
        results = await asyncio.gather(
            *[client.history("01x") for _ in range(2)], return_exceptions=True
        )

    assert ["does not respond in time" in str(result) for result in results] == [True, True]
    assert len(scripted.requests) == 1


@pytest.mark.parametrize(
    "closing",
    [
        ScriptedAnswer(NOTHING.data, is_last=True),
        make_json_answer(BODY, connection="close"),
        ScriptedAnswer(NOTHING.data.replace(b"HTTP/1.1", b"HTTP/1.0"), is_last=True),
    ],
    ids=["closed by the server", "connection: close", "HTTP/1.0"],
)
async def test_a_closed_connection_is_not_used_again(
    scripted: ScriptedServer,
    client: Client,
    monkeypatch: pytest.MonkeyPatch,
    *,
    closing: ScriptedAnswer,
) -> None:
    monkeypatch.setattr(http_connections, "UNCHECKED_IDLE_S", -1.0)
    scripted.says(HISTORY, closing, NOTHING)

    await client.history("01x")
    await wait_until(lambda: scripted.open_connections == 0)
    await client.history("01x")

    assert [request.connection for request in scripted.requests] == [1, 2]


@pytest.mark.parametrize(("name", "value"), [("IDLE_S_MAX", -1.0), ("UNCHECKED_IDLE_S", -1.0)])
async def test_an_old_connection_or_one_with_unread_bytes_is_not_used_again(
    scripted: ScriptedServer,
    client: Client,
    monkeypatch: pytest.MonkeyPatch,
    *,
    name: str,
    value: float,
) -> None:
    monkeypatch.setattr(http_connections, name, value)
    scripted.says(HISTORY, NOTHING)
    await client.history("01x")
    scripted.send_more(b"HTTP/1.1 408 Request Timeout\r\n\r\n")

    await client.history("01x")

    assert [request.connection for request in scripted.requests] == [1, 2]


@pytest.mark.parametrize(
    "answer",
    [
        ScriptedAnswer(
            CHUNKED + b"6;a=b\r\n" + BODY[:6] + b"\r\n7\r\n" + BODY[6:] + b"\r\n0\r\n\r\n"
        ),
        ScriptedAnswer(CHUNKED + b"d\r\n" + BODY + b"\r\n0\r\nX-After: 1\r\n\r\n"),
        ScriptedAnswer(b"HTTP/1.1 103 Early Hints\r\nlink: </a>\r\n\r\n" + NOTHING.data),
        make_json_answer(LARGE),
    ],
    ids=["chunks", "trailer", "early hints", "large"],
)
async def test_a_body_is_read_to_its_end_and_the_connection_is_used_again(
    scripted: ScriptedServer, client: Client, answer: ScriptedAnswer
) -> None:
    scripted.says(HISTORY, answer)

    for _ in range(2):
        assert await client.history("01x") == []

    assert scripted.connections == 1


async def test_a_body_without_a_length_ends_with_its_connection(
    scripted: ScriptedServer, client: Client
) -> None:
    scripted.says(HISTORY, ScriptedAnswer(b"HTTP/1.1 200 OK\r\n\r\n" + BODY, is_last=True))

    for _ in range(2):
        assert await client.history("01x") == []

    assert scripted.connections == 2


@pytest.mark.parametrize(
    ("data", "reason"),
    [
        (b"", "closed the connection before the end"),
        (b"HTTP/1.1 200 OK\r\ncontent-le", "closed the connection before the end"),
        (make_json_answer(LARGE).data[:-9], "closed the connection before the end"),
        (CHUNKED + b"d\r\n" + BODY, "closed the connection before the end"),
        (CHUNKED + b"zz\r\n", "the size of a chunk is not a number"),
        (b"+OK ready\r\n\r\n", "does not begin with an HTTP/1.1 status"),
        (b"HTTP/1.1 200 OK\r\nno header\r\n\r\n", "has a header without a name"),
        (b"HTTP/1.1 200 OK\r\ncontent-length: x\r\n\r\n", "Content-Length of the response is not"),
        (
            b"HTTP/1.1 200 OK\r\na: " + b"x" * 2 * http_connections.HEAD_BYTES_MAX,
            "the head of the response has more than",
        ),
    ],
    ids=["nothing", "head", "length", "chunk", "size", "status", "header", "number", "long"],
)
async def test_a_response_that_is_not_http_is_reported_with_its_reason(
    scripted: ScriptedServer, client: Client, data: bytes, reason: str
) -> None:
    scripted.says(HISTORY, ScriptedAnswer(data, is_last=True))

    with pytest.raises(NoServerError, match=reason):
        await client.history("01x")


async def test_a_body_that_can_not_be_decoded_is_reported_and_frees_its_place(
    scripted: ScriptedServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(transport, "CONNECTIONS_MAX", 1)
    scripted.says(HISTORY, make_answer(200, BODY, content_encoding="gzip"), NOTHING)

    async with Client(scripted.url(), timeout_s=5, retries=0) as client:
        with pytest.raises(NoServerError):
            await client.history("01x")
        assert await client.history("01x") == []

    assert [request.connection for request in scripted.requests] == [1, 2]


async def test_a_compressed_body_is_decoded(scripted: ScriptedServer, client: Client) -> None:
    answer = make_answer(200, gzip.compress(BODY), content_encoding="gzip")
    scripted.says(HISTORY, answer)

    assert await client.history("01x") == []
    assert "gzip" in scripted.requests[0].headers["accept-encoding"]


async def test_a_cancelled_call_closes_its_connection_and_frees_its_place(
    scripted: ScriptedServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(transport, "CONNECTIONS_MAX", 1)
    scripted.says(HISTORY, ScriptedAnswer(hangs=True), NOTHING)

    async with Client(scripted.url(), timeout_s=5, retries=0) as client:
        hanging = asyncio.create_task(client.history("01x"))
        await wait_until(lambda: bool(scripted.requests))
        hanging.cancel()
        await asyncio.wait([hanging])

        await asyncio.wait_for(scripted.client_left.wait(), 5)
        assert await client.history("01x") == []


async def test_a_host_with_several_addresses_is_refused_with_the_reason_of_the_system() -> None:
    async with open_scripted_server() as closed:
        url = closed.url(host="localhost")

    async with Client(url, timeout_s=5, retries=0) as client:
        with pytest.raises(NoServerError, match=f":{closed.port}: connection refused; "):
            await client.history("01x")


async def test_a_token_with_a_line_break_is_not_sent(scripted: ScriptedServer) -> None:
    async with Client(scripted.url(), timeout_s=5, retries=0) as client:
        headers = client.transport._http.headers  # noqa: SLF001  # no option accepts such a token
        headers["Authorization"] = "Bearer a\r\nX-Admin: 1"
        with pytest.raises(NoServerError, match="the header Authorization has a line break"):
            await client.history("01x")

    assert scripted.requests == []


# TLS, and proxies.

Serve = Callable[[asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]]


async def call_with_tls(path: Path, serve: Serve) -> None:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(path)
    async with await asyncio.start_server(serve, LOOPBACK, 0, ssl=context) as server:
        port = server.sockets[0].getsockname()[1]
        async with Client(f"https://localhost:{port}", timeout_s=5, retries=0) as client:
            await client.history("01x")


async def test_a_trusted_certificate_is_accepted(
    openssl: str, tmp_path: Path, scripted: ScriptedServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = make_certificate(openssl, tmp_path)
    monkeypatch.setenv("SSL_CERT_FILE", str(path))
    scripted.says(HISTORY, NOTHING)

    await call_with_tls(path, scripted.serve)

    assert len(scripted.requests) == 1


async def test_an_unknown_certificate_is_refused_before_anything_is_sent(
    openssl: str, tmp_path: Path, scripted: ScriptedServer
) -> None:
    path = make_certificate(openssl, tmp_path)

    with pytest.raises(NoServerError, match="the server's certificate is not trusted"):
        await call_with_tls(path, scripted.serve)

    assert scripted.requests == []


async def test_a_proxy_of_the_environment_is_used_for_another_machine(
    scripted: ScriptedServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HTTP_PROXY", scripted.url())
    monkeypatch.delenv("NO_PROXY", raising=False)
    monkeypatch.delenv("no_proxy", raising=False)
    scripted.says("http://runnel.example/v1/executions/01x/history", NOTHING)

    async with Client("http://runnel.example", timeout_s=5, retries=0) as client:
        assert await client.history("01x") == []

    [request] = scripted.requests
    assert request.headers["host"] == "runnel.example"


async def test_a_proxy_of_the_environment_is_not_used_for_this_machine(
    scripted: ScriptedServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HTTP_PROXY", "http://127.0.0.1:1")
    scripted.says(HISTORY, make_answer(200, BODY))

    async with Client(scripted.url(), timeout_s=5, retries=0) as client:
        assert await client.history("01x") == []
