"""`llm_service` against a server that speaks OpenAI's API, well and badly."""

import json
from collections.abc import AsyncIterator
from typing import Any

import pytest

from runnel.app.secrets import KnownSecrets
from runnel.core.commands import TaskFailed
from runnel.core.retry import RetryPolicy
from runnel.engine.clock import RealClock
from runnel.handlers import create_builtin_registry
from runnel.handlers.environment import HandlerEnvironment
from runnel.handlers.permissions import AddressPermissions
from runnel.ports.telemetry import HANDLER_METRIC
from tests.scripted_http_server import (
    ScriptedAnswer,
    ScriptedServer,
    make_answer,
    make_json_answer,
    open_scripted_server,
)
from tests.unit.engine.worker.worker_harness import WorkerHarness

HANDLER = "llm_service"
PATH = "/v1/chat/completions"
USAGE = {"prompt_tokens": 7, "completion_tokens": 5, "total_tokens": 12}


@pytest.fixture
async def server() -> AsyncIterator[ScriptedServer]:
    async with open_scripted_server() as server:
        yield server


@pytest.fixture
def stage(server: ScriptedServer) -> WorkerHarness:
    """The operator's service is the server, by the name localhost, with a key."""
    clock = RealClock()
    stage = WorkerHarness(clock)
    stage.handlers = create_builtin_registry(
        HandlerEnvironment(
            addresses=AddressPermissions(("127.0.0.1", "localhost")),
            llm_url=server.url("/v1", host="localhost"),
            llm_api_key="sk-operator",
            clock=clock,
        )
    )
    return stage


def completion(text: str | None = "Hello", **message: Any) -> bytes:
    choice = {
        "index": 0,
        "message": {"role": "assistant", "content": text, **message},
        "finish_reason": "stop",
    }
    return json.dumps({"model": "m-1", "choices": [choice], "usage": USAGE}).encode()


def streamed(*pieces: Any, end: str = "data: [DONE]\n\n") -> ScriptedAnswer:
    lines = "".join(f"data: {json.dumps(piece)}\n\n" for piece in pieces)
    return make_answer(body=(": ping\n\n" + lines + end).encode(), content_type="text/event-stream")


def piece(**delta: Any) -> dict[str, Any]:
    return {"model": "m-1", "choices": [{"index": 0, "delta": delta}]}


async def asked(stage: WorkerHarness, **config: Any) -> Any:
    return await stage.output(stage.task(HANDLER, {"model": "m", **config}))


async def failure(stage: WorkerHarness, **config: Any) -> TaskFailed:
    return await stage.error(stage.task(HANDLER, {"model": "m", "prompt": "Hi", **config}))


def is_retried(failed: TaskFailed) -> bool:
    return RetryPolicy().is_retryable(failed.error)


async def test_a_prompt_becomes_a_completion_with_its_usage(
    stage: WorkerHarness, server: ScriptedServer
) -> None:
    server.says(PATH, make_json_answer(completion()))

    output = await asked(
        stage, prompt="Hi", system="Be brief", temperature=0.2, max_tokens=9, extra={"seed": 1}
    )

    [request] = server.requests
    assert output == {
        "text": "Hello",
        "message": {"role": "assistant", "content": "Hello"},
        "finish_reason": "stop",
        "model": "m-1",
        "usage": USAGE,
    }
    assert json.loads(request.body) == {
        "model": "m",
        "messages": [
            {"role": "system", "content": "Be brief"},
            {"role": "user", "content": "Hi"},
        ],
        "temperature": 0.2,
        "max_tokens": 9,
        "seed": 1,
    }
    assert request.headers["authorization"] == "Bearer sk-operator"
    assert request.headers["idempotency-key"] == "x1/node"


async def test_tokens_are_measured(stage: WorkerHarness, server: ScriptedServer) -> None:
    server.says(PATH, make_json_answer(completion()))

    await asked(stage, messages=[{"role": "user", "content": "Hi"}])

    measured = [
        (fields["metric"], fields["labels"], fields["value"])
        for fields in stage.telemetry.named(HANDLER_METRIC)
    ]
    assert measured == [
        ("llm_tokens", {"kind": "prompt", "model": "m-1"}, 7),
        ("llm_tokens", {"kind": "completion", "model": "m-1"}, 5),
    ]


async def test_the_operators_key_goes_to_the_operators_service_only(
    stage: WorkerHarness, server: ScriptedServer
) -> None:
    server.says(PATH, make_json_answer(completion()))
    elsewhere = server.url("/v1/")
    tasks = [
        stage.task(HANDLER, {"model": "m", "prompt": "Hi", "base_url": elsewhere}, node="a"),
        stage.task(
            HANDLER,
            {"model": "m", "prompt": "Hi", "base_url": elsewhere, "api_key": "sk-own"},
            node="b",
        ),
    ]

    async with stage.working():
        await stage.issue(*tasks)
        await stage.results(2)

    keys = {
        request.headers["idempotency-key"]: request.headers.get("authorization")
        for request in server.requests
    }
    assert keys == {"x1/a": None, "x1/b": "Bearer sk-own"}


async def test_the_operators_key_is_not_in_the_output(
    stage: WorkerHarness, server: ScriptedServer
) -> None:
    """No config names it, and a service may well repeat what it was sent."""
    server.says(PATH, make_json_answer(completion("your key is sk-operator")))

    task = stage.task(HANDLER, {"model": "m", "prompt": "Hi"})
    output = await stage.output(task, secrets=KnownSecrets({}, unnamed=["sk-operator"]))

    assert output["text"] == "your key is ***"


async def test_a_password_in_the_operators_url_is_not_told(server: ScriptedServer) -> None:
    stage = WorkerHarness(RealClock())
    url = server.url("/v1").replace("://", "://ada:geheim@")
    stage.handlers = create_builtin_registry(
        HandlerEnvironment(addresses=AddressPermissions(("127.0.0.1",)), llm_url=url)
    )
    server.says(PATH, make_answer(500, b"broken"))

    failed = await failure(stage)

    assert failed.error.message == f"{server.url(PATH)} answered 500: broken"


async def test_json_is_read_where_it_was_asked_for(
    stage: WorkerHarness, server: ScriptedServer
) -> None:
    server.says(PATH, make_json_answer(completion('{"a": 1}')))

    output = await asked(stage, prompt="Hi", response_format={"type": "json_object"})

    assert (output["json"], output["text"]) == ({"a": 1}, '{"a": 1}')


async def test_a_stream_is_one_output(stage: WorkerHarness, server: ScriptedServer) -> None:
    call = {"index": 0, "id": "c1", "function": {"name": "look", "arguments": '{"a"'}}
    rest = {"index": 0, "function": {"arguments": ": 1}"}}
    last = {"choices": [{"index": 0, "delta": {}, "finish_reason": "stop"}]}
    server.says(
        PATH,
        streamed(
            piece(role="assistant", content="Hel"),
            piece(content="lo ä"),
            piece(tool_calls=[call]),
            piece(tool_calls=[rest]),
            last,
            {"choices": [], "usage": USAGE},
        ),
    )

    output = await asked(stage, prompt="Hi", stream=True)

    assert (output["text"], output["usage"], output["finish_reason"]) == ("Hello ä", USAGE, "stop")
    assert output["message"]["tool_calls"] == [
        {"id": "c1", "type": "function", "function": {"name": "look", "arguments": '{"a": 1}'}}
    ]
    sent = json.loads(server.requests[0].body)
    assert (sent["stream"], sent["stream_options"]) == (True, {"include_usage": True})


async def test_a_service_that_does_not_stream_is_understood_too(
    stage: WorkerHarness, server: ScriptedServer
) -> None:
    server.says(PATH, make_json_answer(completion()))

    assert (await asked(stage, prompt="Hi", stream=True))["text"] == "Hello"


BROKEN: dict[str, tuple[ScriptedAnswer, dict[str, Any], str]] = {
    "no choices": (
        make_json_answer(b'{"choices": []}'),
        {},
        "not a chat completion: it has no choices",
    ),
    "an error that looks like success": (
        make_json_answer(b'{"error": {"message": "the model is loading"}}'),
        {},
        'answered with an error: {"message":"the model is loading"}',
    ),
    "a list": (make_json_answer(b"[1]"), {}, "not a chat completion"),
    "no message": (make_json_answer(b'{"choices": [{}]}'), {}, "its first choice has no message"),
    "content of parts": (
        make_json_answer(b'{"choices": [{"message": {"content": [1]}}]}'),
        {},
        "is not a text",
    ),
    "no JSON at all": (make_answer(body=b"<html>"), {}, "invalid JSON"),
    "not the JSON asked for": (
        make_json_answer(completion("Sure! {")),
        {"response_format": {"type": "json_object"}},
        "answered with invalid JSON",
    ),
    "a stream without an end": (
        streamed(piece(content="Hel"), end=""),
        {"stream": True},
        "ended its response before it was complete",
    ),
    "a stream with an error": (
        streamed(piece(content="Hel"), {"error": {"message": "overloaded"}}),
        {"stream": True},
        "overloaded",
    ),
    "a stream of garbage": (
        make_answer(body=b"data: {half\n\n", content_type="text/event-stream"),
        {"stream": True},
        "sent an event that is not JSON",
    ),
    "a stream of bytes": (
        make_answer(body=b"data: \xff\xfe\n\n", content_type="text/event-stream"),
        {"stream": True},
        "answered with data that is not text",
    ),
    "a stream of numbers": (streamed(1), {"stream": True}, "an event that is not an object"),
    "a call out of place": (
        streamed(piece(tool_calls=[{"index": 10**9}])),
        {"stream": True},
        "with an invalid index",
    ),
}


@pytest.mark.parametrize("name", BROKEN)
async def test_an_answer_that_is_no_completion_is_tried_again(
    stage: WorkerHarness, server: ScriptedServer, name: str
) -> None:
    said, config, sentence = BROKEN[name]
    server.says(PATH, said)

    failed = await failure(stage, **config)

    assert sentence in failed.error.message
    assert (failed.error.type, is_retried(failed)) == ("ServiceError", True)


async def test_a_stream_is_bounded_too(stage: WorkerHarness, server: ScriptedServer) -> None:
    server.says(PATH, streamed(*[piece(content="x" * 500)] * 10))

    failed = await failure(stage, stream=True, max_response_bytes=1_000)

    assert "is larger than 1,000 bytes" in failed.error.message
    assert not is_retried(failed)


async def test_a_busy_service_names_its_time(stage: WorkerHarness, server: ScriptedServer) -> None:
    server.says(PATH, make_answer(429, b'{"error": {"code": "rate_limit"}}', retry_after="20"))

    failed = await failure(stage)

    assert (failed.error.retry_after_s, is_retried(failed)) == (20.0, True)


@pytest.mark.parametrize(
    ("status", "body"), [(401, b"bad key"), (429, b'{"error": {"code": "insufficient_quota"}}')]
)
async def test_what_no_waiting_helps_is_not_tried_again(
    stage: WorkerHarness, server: ScriptedServer, status: int, body: bytes
) -> None:
    server.says(PATH, make_answer(status, body))

    failed = await failure(stage)

    assert f"answered {status}" in failed.error.message
    assert (failed.error.type, is_retried(failed)) == ("ServiceRefusedError", False)


async def test_no_credit_is_final_also_where_the_status_says_success(
    stage: WorkerHarness, server: ScriptedServer
) -> None:
    server.says(PATH, make_json_answer(b'{"error": {"code": "insufficient_quota"}}'))

    failed = await failure(stage)

    assert (failed.error.type, is_retried(failed)) == ("ServiceRefusedError", False)


async def test_the_key_of_a_node_in_any_language_is_sent_in_ascii(
    stage: WorkerHarness, server: ScriptedServer
) -> None:
    server.says(PATH, make_json_answer(completion()))

    await stage.output(stage.task(HANDLER, {"model": "m", "prompt": "Hi"}, node="prüfen"))

    assert "pr%C3%BCfen" in server.requests[-1].headers["idempotency-key"]


async def test_a_redirect_is_not_followed_with_a_key(
    stage: WorkerHarness, server: ScriptedServer
) -> None:
    server.says(PATH, make_answer(307, location="https://evil.example/v1/chat/completions"))

    failed = await failure(stage)

    assert "answered 307" in failed.error.message
    assert len(server.requests) == 1


async def test_a_mock_writes_a_completion_without_calling_anybody(
    stage: WorkerHarness, server: ScriptedServer
) -> None:
    task = stage.task(HANDLER, {"prompt": "Summarise this", "mock": {"delay": 0}})

    output = await stage.output(task)

    assert output["text"] == "This is a mock completion of: Summarise this"
    assert (output["model"], output["usage"]["total_tokens"]) == ("mock", 4 + 11)
    assert not server.requests


async def test_a_mock_may_answer_json_and_fail(stage: WorkerHarness) -> None:
    form = {"type": "json_object"}
    mock = {"delay": 0, "response": {"sentiment": "good"}}
    busy = {"delay": 0, "status": [429, 200]}

    async with stage.working():
        await stage.issue(
            stage.task(HANDLER, {"prompt": "x", "mock": mock, "response_format": form}, node="a"),
        )
        [good] = await stage.results()
        await stage.issue(stage.task(HANDLER, {"prompt": "x", "mock": busy}, node="b"))
        [_, failed] = await stage.results(2)

    assert good.output.decode()["json"] == {"sentiment": "good"}  # type: ignore[union-attr]
    assert isinstance(failed, TaskFailed)
    assert failed.error.message == "the mock answered 429"
