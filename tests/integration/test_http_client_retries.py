"""The HTTP client with servers that are unreachable, busy, slow, broken or not Runnel."""

import asyncio
import json
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any

import pytest

from runnel import Client
from runnel.authoring.documents import read_document
from runnel.core.values import Json
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


def make_problem(
    status: int, code: str, details: dict[str, Any] | None = None, **headers: str
) -> ScriptedAnswer:
    body = {"code": code, "detail": f"it is {code}", "details": details or {}}
    return make_answer(status, json.dumps(body).encode(), **headers)


AWAY = make_problem(503, "store", retry_after="0")
BUSY = make_problem(429, "too_many_requests", {"most": 60, "retry_after_s": 1.0}, retry_after="0")
GATEWAY = make_answer(502, b"<html>Bad Gateway</html>", content_type="text/html")


@pytest.fixture
async def scripted() -> AsyncIterator[ScriptedServer]:
    async with open_scripted_server() as server:
        yield server


@pytest.fixture
async def client(scripted: ScriptedServer) -> AsyncIterator[Client]:
    async with Client(scripted.url(), timeout_s=5, retries=2) as opened:
        yield opened


@pytest.mark.parametrize("first", [AWAY, BUSY, GATEWAY, BROKEN], ids=["503", "429", "502", "cut"])
async def test_a_read_is_retried(
    scripted: ScriptedServer, client: Client, first: ScriptedAnswer
) -> None:
    scripted.says(HISTORY, first, first, NOTHING)

    assert await client.history("01x") == []
    assert len(scripted.requests) == 3


@pytest.mark.parametrize("first", [AWAY, BUSY, GATEWAY, BROKEN], ids=["503", "429", "502", "cut"])
async def test_a_submit_is_retried_with_the_same_key(
    scripted: ScriptedServer, client: Client, first: ScriptedAnswer
) -> None:
    scripted.says(RUN, first, BEGUN)

    assert await client.submit("report", {"year": 2026}) == "01x"
    keys = {request.headers["idempotency-key"] for request in scripted.requests}
    assert (len(scripted.requests), len(keys)) == (2, 1)


@pytest.mark.parametrize("key", ["a\nb", " a", "a\t", "a\x7f", "\ud800", "x" * 501])
async def test_a_key_that_does_not_fit_in_a_header_is_refused_before_a_request(
    scripted: ScriptedServer, client: Client, key: str
) -> None:
    with pytest.raises(InputError, match="idempotency key"):
        await client.submit("report", idempotency_key=key)

    assert scripted.requests == []


async def test_each_submit_has_its_own_key(scripted: ScriptedServer, client: Client) -> None:
    scripted.says(RUN, BEGUN)

    await client.submit("report")
    await client.submit("report")

    assert len({request.headers["idempotency-key"] for request in scripted.requests}) == 2


async def test_a_retried_signal_keeps_its_id(scripted: ScriptedServer, client: Client) -> None:
    scripted.says(
        "/v1/executions/01x/signal", BROKEN, make_json_answer(b'{"execution_id": "01x"}', 202)
    )

    await client.signal("01x", "approve")

    ids = [json.loads(request.body)["signal_id"] for request in scripted.requests]
    assert len(ids) == 2
    assert ids[0] == ids[1]


async def test_a_write_without_a_key_is_not_retried_after_a_broken_answer(
    scripted: ScriptedServer, client: Client
) -> None:
    scripted.says(CANCEL, BROKEN, make_json_answer(b"{}"))

    with pytest.raises(NoServerError):
        await client.cancel("01x")
    assert len(scripted.requests) == 1


async def test_a_rate_limited_write_is_retried(scripted: ScriptedServer, client: Client) -> None:
    scripted.says(CANCEL, BUSY, make_json_answer(b"{}", 202))

    await client.cancel("01x")

    assert len(scripted.requests) == 2


async def test_the_last_answer_is_raised_after_all_retries(
    scripted: ScriptedServer, client: Client
) -> None:
    scripted.says(HISTORY, AWAY)

    with pytest.raises(StoreError, match="it is store"):
        await client.history("01x")
    assert len(scripted.requests) == 3


async def test_a_long_retry_after_is_raised_at_once(
    scripted: ScriptedServer, client: Client
) -> None:
    scripted.says(HISTORY, make_problem(429, "too_many_requests", {"most": 60}, retry_after="3600"))

    with pytest.raises(TooManyRequestsError) as caught:
        await client.history("01x")
    assert (caught.value.most, len(scripted.requests)) == (60, 1)


VIEW = {
    "execution_id": "01x",
    "workflow": "report",
    "version": 1,
    "output": 7,
    "error": None,
    "nodes": {},
    "input": {},
    "created_at": "2026-01-31T09:30:00.250Z",
    "started_at": None,
    "finished_at": None,
    "parent_id": None,
    "rerun_of": None,
    "labels": {},
}
WAIT = "/v1/executions/01x/wait"


def make_view(status: str) -> ScriptedAnswer:
    return make_json_answer(json.dumps({**VIEW, "status": status}).encode())


@pytest.mark.parametrize("first", [AWAY, BUSY, GATEWAY, BROKEN], ids=["503", "429", "502", "cut"])
async def test_a_run_is_one_request_which_is_retried_with_the_same_key(
    scripted: ScriptedServer, client: Client, first: ScriptedAnswer
) -> None:
    scripted.says(RUN, first, make_view("COMPLETED"))

    assert (await client.run("report")).output == 7
    keys = {request.headers["idempotency-key"] for request in scripted.requests}
    assert (len(scripted.requests), len(keys)) == (2, 1)
    assert {request.target for request in scripted.requests} == {f"{RUN}?wait=30.000"}


async def test_workflows_that_are_run_in_turn_are_stored_once_each(
    scripted: ScriptedServer, client: Client
) -> None:
    node: Json = {"id": "a", "handler": "input"}
    flows = [read_document({"name": name, "nodes": [node]}, source=name) for name in ("one", "two")]
    stored = [
        {"name": flow.name, "version": 1, "workflow_definition_id": "h", "nodes": 1}
        for flow in flows
    ]
    answers = [make_json_answer(json.dumps(view).encode(), 201) for view in stored]
    scripted.says("/v1/workflows", *answers)
    for flow in flows:
        scripted.says(f"/v1/workflows/{flow.name}/run", make_view("COMPLETED"))

    for flow in (*flows, *flows):
        await client.run(flow)

    paths = [request.target.partition("?")[0] for request in scripted.requests]
    runs = ["/v1/workflows/one/run", "/v1/workflows/two/run"]
    assert paths == ["/v1/workflows", runs[0], "/v1/workflows", runs[1], *runs]


@pytest.mark.parametrize("first", [make_view("RUNNING"), BEGUN], ids=["long", "earlier server"])
async def test_a_run_continues_to_wait_if_its_first_answer_is_not_final(
    scripted: ScriptedServer, client: Client, first: ScriptedAnswer
) -> None:
    scripted.says(RUN, first)
    scripted.says(WAIT, make_view("RUNNING"), make_view("COMPLETED"))

    assert (await client.run("report")).output == 7
    paths = [request.target.partition("?")[0] for request in scripted.requests]
    assert paths == [RUN, WAIT, WAIT]


async def test_a_run_that_is_not_final_in_time_is_reported_with_its_timeout(
    scripted: ScriptedServer, client: Client
) -> None:
    scripted.says(RUN, make_view("RUNNING"))
    scripted.says(WAIT, make_view("RUNNING"))

    with pytest.raises(TimeoutError, match=r"execution 01x is not final after 0\.01 s"):
        await client.run("report", timeout_s=0.01)
    assert scripted.requests[0].target == f"{RUN}?wait=0.010"


async def test_readiness_names_the_part_that_is_not_ready(
    scripted: ScriptedServer, client: Client
) -> None:
    parts = b'{"status": "not ready", "parts": {"store": "Redis: it is away", "archive": null}}'
    scripted.says("/health/ready", make_json_answer(parts, 503))

    readiness = await client.ready()

    assert (readiness.is_ready, readiness.parts["store"]) == (False, "Redis: it is away")
    assert len(scripted.requests) == 1


async def test_a_retry_after_with_a_date_is_understood(
    scripted: ScriptedServer, client: Client
) -> None:
    past = "Wed, 21 Oct 2015 07:28:00 GMT"
    scripted.says(HISTORY, make_problem(503, "store", retry_after=past), NOTHING)

    assert await client.history("01x") == []


async def test_a_request_without_an_answer_times_out(
    scripted: ScriptedServer,
) -> None:
    scripted.says(HISTORY, ScriptedAnswer(hangs=True))

    async with Client(scripted.url(), timeout_s=0.1, retries=0) as impatient:
        with pytest.raises(NoServerError, match="does not respond in time"):
            await impatient.history("01x")


async def test_an_unreachable_server_is_reported_with_its_address(scripted: ScriptedServer) -> None:
    async with open_scripted_server() as closed:
        url = closed.url()

    async with Client(url, timeout_s=1, retries=1) as client:
        with pytest.raises(NoServerError) as caught:
            await client.get("01x")
    assert str(caught.value) == (
        f"can't use the Runnel server at {url.rstrip('/')}: connection refused; check that the "
        "server runs and listens at this address"
    )


async def test_a_server_without_tls_is_reported_as_such() -> None:
    async def refuse(_reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Answers like an HTTP server that receives something other than HTTP."""
        writer.write(b"HTTP/1.1 400 Bad Request\r\n\r\n")
        writer.close()

    async with await asyncio.start_server(refuse, "127.0.0.1", 0) as server:
        port = server.sockets[0].getsockname()[1]
        async with Client(f"https://127.0.0.1:{port}", timeout_s=5, retries=0) as client:
            with pytest.raises(
                NoServerError,
                match="the server does not use TLS, but the address begins with https://; ",
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
async def test_an_answer_of_another_server_is_reported_as_not_runnel(
    scripted: ScriptedServer, client: Client, strange: ScriptedAnswer
) -> None:
    scripted.says(HISTORY, strange)

    with pytest.raises(NotRunnelError, match="is not a Runnel server: it answered "):
        await client.history("01x")
    assert len(scripted.requests) == 1


async def test_the_server_document_of_another_program_is_refused(
    scripted: ScriptedServer, client: Client
) -> None:
    scripted.says("/v1/server", make_json_answer(b'{"name": "elsewhere", "version": 3}'))

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
async def test_an_answer_of_an_unknown_shape_raises_not_runnel_error(
    scripted: ScriptedServer,
    client: Client,
    path: str,
    answer: bytes,
    call: Callable[[Client], Awaitable[object]],
) -> None:
    scripted.says(path, make_json_answer(answer))

    with pytest.raises(NotRunnelError, match="it answered with unexpected JSON "):
        await call(client)


async def test_a_stream_event_of_an_unknown_shape_raises_not_runnel_error(
    scripted: ScriptedServer, client: Client
) -> None:
    scripted.says(EVENTS, make_stream(b'id: n1\nevent: NodeQueued\ndata: {"at": 7}\n\n'))

    with pytest.raises(NotRunnelError, match="it answered with unexpected JSON "):
        await anext(client.follow("01x"))


async def test_a_token_is_sent_and_a_missing_one_is_reported(scripted: ScriptedServer) -> None:
    scripted.says(HISTORY, make_problem(401, "not_authenticated"))

    async with (
        Client(scripted.url(), "rnl_1_secret") as with_token,
        Client(scripted.url(), "") as without,
    ):
        with pytest.raises(NotAuthenticatedError, match="it is not_authenticated"):
            await with_token.history("01x")
        with pytest.raises(NotAuthenticatedError, match="requires a token: set RUNNEL_TOKEN"):
            await without.history("01x")
    assert scripted.requests[0].headers["authorization"] == "Bearer rnl_1_secret"
    assert "authorization" not in scripted.requests[1].headers


def make_event(id_: str, event: str) -> bytes:
    data = json.dumps({"at": "2026-01-31T09:30:00.250Z", "event": event, "fields": {}})
    return f"id: {id_}\nevent: {event}\ndata: {data}\n\n".encode()


def make_stream(*parts: bytes) -> ScriptedAnswer:
    head = b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\n\r\n"
    return ScriptedAnswer(head + b"".join(parts), is_last=True)


async def test_a_broken_stream_continues_after_its_last_message(
    scripted: ScriptedServer, client: Client
) -> None:
    first = make_stream(b": \n\n", make_event("n1", "ExecutionCreated"), b"id: n2\nevent: Exec")
    second = make_stream(make_event("n2", "ExecutionFinished"), b"id: n2\nevent: end\ndata: {}\n\n")
    scripted.says(EVENTS, BROKEN, first, AWAY, second)

    events = [entry.event async for entry in client.follow("01x")]

    assert events == ["ExecutionCreated", "ExecutionFinished"]
    last_ids = [request.headers.get("last-event-id") for request in scripted.requests]
    assert last_ids == [None, None, "n1", "n1"]


async def test_unicode_line_separators_do_not_split_a_message(
    scripted: ScriptedServer, client: Client
) -> None:
    text = "a\u0085b\u2028c\u2029d"
    data = {"at": "2026-01-31T09:30:00.250Z", "event": "Said", "fields": {"text": text}}
    message = f"id: n1\r\nevent: Said\r\ndata: {json.dumps(data, ensure_ascii=False)}\r\n\r\n"
    scripted.says(EVENTS, make_stream(message.encode()), make_answer(204))

    assert [entry.fields["text"] async for entry in client.follow("01x")] == [text]


async def test_a_stream_ends_when_the_server_has_no_more_events(
    scripted: ScriptedServer, client: Client
) -> None:
    scripted.says(
        EVENTS,
        make_stream(make_event("n1", "ExecutionCreated")),
        make_answer(204),
    )

    assert [entry.event async for entry in client.follow("01x")] == ["ExecutionCreated"]


async def test_a_stream_that_breaks_repeatedly_is_given_up(
    scripted: ScriptedServer, client: Client
) -> None:
    scripted.says(EVENTS, BROKEN)

    with pytest.raises(NoServerError):
        assert [entry async for entry in client.follow("01x")] == []
    assert len(scripted.requests) == 3
