"""What a client does about servers that are away, busy, slow, broken or no Runnel at all."""

import asyncio
import json
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any

import pytest

from runnel import Client
from runnel.errors import (
    InputError,
    NoServerError,
    NotAuthenticatedError,
    NotRunnelError,
    StoreError,
    TooManyRequestsError,
)
from tests.scripted_http_server import (
    ScriptedAnswer,
    ScriptedServer,
    make_answer,
    make_json_answer,
    open_scripted_server,
)

RUN = "/v1/workflows/report/run"
CANCEL = "/v1/executions/01x/cancel"
HISTORY = "/v1/executions/01x/history"
EVENTS = "/v1/executions/01x/events"
NOTHING = make_json_answer(b'{"items": []}')
BEGUN = make_json_answer(b'{"execution_id": "01x"}', 201)
BROKEN = ScriptedAnswer(b"HTTP/1.1 200 OK\r\ncontent-length: 100\r\n\r\n{", is_last=True)


def problem(
    status: int, code: str, details: dict[str, Any] | None = None, **headers: str
) -> ScriptedAnswer:
    body = {"code": code, "detail": f"it is {code}", "details": details or {}}
    return make_answer(status, json.dumps(body).encode(), **headers)


AWAY = problem(503, "store", retry_after="0")
BUSY = problem(429, "too_many_requests", {"most": 60, "retry_after_s": 1.0}, retry_after="0")
GATEWAY = make_answer(502, b"<html>Bad Gateway</html>", content_type="text/html")


@pytest.fixture
async def odd() -> AsyncIterator[ScriptedServer]:
    async with open_scripted_server() as server:
        yield server


@pytest.fixture
async def client(odd: ScriptedServer) -> AsyncIterator[Client]:
    async with Client(odd.url(), timeout_s=5, retries=2) as opened:
        yield opened


@pytest.mark.parametrize("first", [AWAY, BUSY, GATEWAY, BROKEN], ids=["503", "429", "502", "cut"])
async def test_what_only_reads_is_tried_again(
    odd: ScriptedServer, client: Client, first: ScriptedAnswer
) -> None:
    odd.says(HISTORY, first, first, NOTHING)

    assert await client.history("01x") == []
    assert len(odd.requests) == 3


@pytest.mark.parametrize("first", [AWAY, BUSY, GATEWAY, BROKEN], ids=["503", "429", "502", "cut"])
async def test_a_submit_is_tried_again_with_the_same_key(
    odd: ScriptedServer, client: Client, first: ScriptedAnswer
) -> None:
    odd.says(RUN, first, BEGUN)

    assert await client.submit("report", {"year": 2026}) == "01x"
    keys = {request.headers["idempotency-key"] for request in odd.requests}
    assert (len(odd.requests), len(keys)) == (2, 1)


@pytest.mark.parametrize("key", ["a\nb", " a", "a\t", "a\x7f", "\ud800", "x" * 501])
async def test_a_key_that_no_header_can_have_is_refused_before_anything_is_sent(
    odd: ScriptedServer, client: Client, key: str
) -> None:
    with pytest.raises(InputError, match="idempotency key"):
        await client.submit("report", idempotency_key=key)

    assert odd.requests == []


async def test_two_submits_have_two_keys(odd: ScriptedServer, client: Client) -> None:
    odd.says(RUN, BEGUN)

    await client.submit("report")
    await client.submit("report")

    assert len({request.headers["idempotency-key"] for request in odd.requests}) == 2


async def test_a_signal_that_is_sent_again_is_the_same_signal(
    odd: ScriptedServer, client: Client
) -> None:
    odd.says("/v1/executions/01x/signal", BROKEN, make_json_answer(b'{"execution_id": "01x"}', 202))

    await client.signal("01x", "approve")

    ids = [json.loads(request.body)["signal_id"] for request in odd.requests]
    assert len(ids) == 2
    assert ids[0] == ids[1]


async def test_what_may_have_been_acted_on_and_has_no_key_is_not_repeated(
    odd: ScriptedServer, client: Client
) -> None:
    odd.says(CANCEL, BROKEN, make_json_answer(b"{}"))

    with pytest.raises(NoServerError):
        await client.cancel("01x")
    assert len(odd.requests) == 1


async def test_what_was_turned_away_at_the_door_is_repeated_in_any_case(
    odd: ScriptedServer, client: Client
) -> None:
    odd.says(CANCEL, BUSY, make_json_answer(b"{}", 202))

    await client.cancel("01x")

    assert len(odd.requests) == 2


async def test_it_gives_up_after_its_retries_with_what_the_server_said(
    odd: ScriptedServer, client: Client
) -> None:
    odd.says(HISTORY, AWAY)

    with pytest.raises(StoreError, match="it is store"):
        await client.history("01x")
    assert len(odd.requests) == 3


async def test_whoever_is_asked_to_come_back_much_later_is_told_so_at_once(
    odd: ScriptedServer, client: Client
) -> None:
    odd.says(HISTORY, problem(429, "too_many_requests", {"most": 60}, retry_after="3600"))

    with pytest.raises(TooManyRequestsError) as caught:
        await client.history("01x")
    assert (caught.value.most, len(odd.requests)) == (60, 1)


async def test_a_server_that_is_not_ready_says_which_part_is_not(
    odd: ScriptedServer, client: Client
) -> None:
    parts = b'{"status": "not ready", "parts": {"store": "Redis: it is away", "archive": null}}'
    odd.says("/health/ready", make_json_answer(parts, 503))

    found = await client.ready()

    assert (found.is_ready, found.parts["store"]) == (False, "Redis: it is away")
    assert len(odd.requests) == 1


async def test_a_date_to_come_back_at_is_understood(odd: ScriptedServer, client: Client) -> None:
    past = "Wed, 21 Oct 2015 07:28:00 GMT"
    odd.says(HISTORY, problem(503, "store", retry_after=past), NOTHING)

    assert await client.history("01x") == []


async def test_an_answer_that_does_not_come_is_not_waited_for_for_ever(odd: ScriptedServer) -> None:
    odd.says(HISTORY, ScriptedAnswer(hangs=True))

    async with Client(odd.url(), timeout_s=0.1, retries=0) as impatient:
        with pytest.raises(NoServerError, match="does not answer in time"):
            await impatient.history("01x")


async def test_nobody_there_is_one_sentence_with_the_address(odd: ScriptedServer) -> None:
    async with open_scripted_server() as gone:
        url = gone.url()

    async with Client(url, timeout_s=1, retries=1) as client:
        with pytest.raises(NoServerError) as caught:
            await client.get("01x")
    assert str(caught.value) == (
        f"can't use the Runnel server at {url.rstrip('/')}: connection refused; check that it "
        "runs, and that it listens at this address"
    )


async def test_a_server_without_tls_is_told_from_one_that_is_away() -> None:
    async def refuse(_reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """As an HTTP server does with what is no HTTP."""
        writer.write(b"HTTP/1.1 400 Bad Request\r\n\r\n")
        writer.close()

    async with await asyncio.start_server(refuse, "127.0.0.1", 0) as server:
        port = server.sockets[0].getsockname()[1]
        async with Client(f"https://127.0.0.1:{port}", timeout_s=5, retries=0) as client:
            with pytest.raises(
                NoServerError, match="it does not speak TLS, but the address begins with https://; "
            ):
                await client.get("01x")


@pytest.mark.parametrize(
    "strange",
    [
        make_answer(404, b"<html>", content_type="text/html"),
        make_answer(200, b"<html>", content_type="text/html"),
        make_answer(302, b"", location="https://elsewhere.example/"),
        make_answer(500, b"oops", content_type="text/plain"),
        make_json_answer(b'{"message": "Not Found"}', 404),
        make_json_answer(b'{"message": "Hello"}'),
        make_json_answer(b"[]"),
        make_json_answer(b"null"),
        make_json_answer(b""),
    ],
    ids=["404", "200", "redirect", "500", "json", "object", "list", "null", "nothing"],
)
async def test_somebody_else_who_answers_is_no_runnel(
    odd: ScriptedServer, client: Client, strange: ScriptedAnswer
) -> None:
    odd.says(HISTORY, strange)

    with pytest.raises(NotRunnelError, match="is not a Runnel server: it answered "):
        await client.history("01x")
    assert len(odd.requests) == 1


async def test_what_another_server_says_of_itself_is_not_taken_for_runnel(
    odd: ScriptedServer, client: Client
) -> None:
    odd.says("/v1/server", make_json_answer(b'{"name": "elsewhere", "version": 3}'))

    with pytest.raises(
        NotRunnelError, match="is not a Runnel server: it answered with unexpected JSON"
    ):
        await client.server()


@pytest.mark.parametrize(
    ("path", "answer", "call"),
    [
        ("/v1/workers", b'{"items": [{"worker": 7}]}', lambda client: client.operations.workers()),
        (HISTORY, b'{"items": 3}', lambda client: client.history("01x")),
        (
            "/v1/workflows/w/versions",
            b'{"items": [{"name": "w"}], "next": null}',
            lambda client: client.versions("w"),
        ),
        (
            "/v1/dead-letters/count",
            b'{"count": "many"}',
            lambda client: client.dead_letters.count(),
        ),
        ("/v1/executions/01x/wait", b'{"status": "NEW"}', lambda client: client.wait("01x")),
    ],
    ids=["items", "no list", "page", "number", "state"],
)
async def test_an_answer_that_this_version_does_not_know_is_the_usual_error(
    odd: ScriptedServer,
    client: Client,
    path: str,
    answer: bytes,
    call: Callable[[Client], Awaitable[object]],
) -> None:
    odd.says(path, make_json_answer(answer))

    with pytest.raises(NotRunnelError, match="it answered with unexpected JSON "):
        await call(client)


async def test_a_message_of_a_stream_that_this_version_does_not_know_is_the_usual_error(
    odd: ScriptedServer, client: Client
) -> None:
    odd.says(EVENTS, stream(b'id: n1\nevent: NodeQueued\ndata: {"at": 7}\n\n'))

    with pytest.raises(NotRunnelError, match="it answered with unexpected JSON "):
        await anext(client.follow("01x"))


async def test_a_token_is_sent_and_one_that_lacks_is_asked_for(odd: ScriptedServer) -> None:
    odd.says(HISTORY, problem(401, "not_authenticated"))

    async with (
        Client(odd.url(), "rnl_1_secret") as with_token,
        Client(odd.url(), "") as without,
    ):
        with pytest.raises(NotAuthenticatedError, match="it is not_authenticated"):
            await with_token.history("01x")
        with pytest.raises(NotAuthenticatedError, match="requires a token: set RUNNEL_TOKEN"):
            await without.history("01x")
    assert odd.requests[0].headers["authorization"] == "Bearer rnl_1_secret"
    assert "authorization" not in odd.requests[1].headers


def told(id_: str, event: str) -> bytes:
    data = json.dumps({"at": "2026-01-31T09:30:00.250Z", "event": event, "fields": {}})
    return f"id: {id_}\nevent: {event}\ndata: {data}\n\n".encode()


def stream(*parts: bytes) -> ScriptedAnswer:
    head = b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\n\r\n"
    return ScriptedAnswer(head + b"".join(parts), is_last=True)


async def test_a_stream_that_breaks_goes_on_behind_its_last_message(
    odd: ScriptedServer, client: Client
) -> None:
    first = stream(b": \n\n", told("n1", "ExecutionCreated"), b"id: n2\nevent: Exec")
    second = stream(told("n2", "ExecutionFinished"), b"id: n2\nevent: end\ndata: {}\n\n")
    odd.says(EVENTS, BROKEN, first, AWAY, second)

    events = [each.event async for each in client.follow("01x")]

    assert events == ["ExecutionCreated", "ExecutionFinished"]
    asked = [request.headers.get("last-event-id") for request in odd.requests]
    assert asked == [None, None, "n1", "n1"]


async def test_what_only_looks_like_the_end_of_a_line_is_part_of_a_message(
    odd: ScriptedServer, client: Client
) -> None:
    text = "a\u0085b\u2028c\u2029d"
    data = {"at": "2026-01-31T09:30:00.250Z", "event": "Said", "fields": {"text": text}}
    said = f"id: n1\r\nevent: Said\r\ndata: {json.dumps(data, ensure_ascii=False)}\r\n\r\n"
    odd.says(EVENTS, stream(said.encode()), make_answer(204))

    assert [each.fields["text"] async for each in client.follow("01x")] == [text]


async def test_a_stream_that_has_told_all_ends(odd: ScriptedServer, client: Client) -> None:
    odd.says(
        EVENTS,
        stream(told("n1", "ExecutionCreated")),
        make_answer(204),
    )

    assert [each.event async for each in client.follow("01x")] == ["ExecutionCreated"]


async def test_a_stream_that_breaks_at_once_again_and_again_is_given_up(
    odd: ScriptedServer, client: Client
) -> None:
    odd.says(EVENTS, BROKEN)

    with pytest.raises(NoServerError):
        assert [each async for each in client.follow("01x")] == []
    assert len(odd.requests) == 3
