"""`llm_service` against a server with OpenAI's API, with correct and broken answers."""

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
    """Returns a worker whose operator has set this server and a key as the LLM service."""
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


def make_completion(text: str | None = "Hello", **message: Any) -> bytes:
    choice = {
        "index": 0,
        "message": {"role": "assistant", "content": text, **message},
        "finish_reason": "stop",
    }
    return json.dumps({"model": "m-1", "choices": [choice], "usage": USAGE}).encode()


def make_stream(*pieces: Any, end: str = "data: [DONE]\n\n") -> ScriptedAnswer:
    lines = "".join(f"data: {json.dumps(piece)}\n\n" for piece in pieces)
    return make_answer(body=(": ping\n\n" + lines + end).encode(), content_type="text/event-stream")


def make_chunk(**delta: Any) -> dict[str, Any]:
    return {"model": "m-1", "choices": [{"index": 0, "delta": delta}]}


async def call_model(stage: WorkerHarness, **config: Any) -> Any:
    return await stage.output(stage.task(HANDLER, {"model": "m", **config}))


async def fail_model_call(stage: WorkerHarness, **config: Any) -> TaskFailed:
    return await stage.error(stage.task(HANDLER, {"model": "m", "prompt": "Hi", **config}))


def is_retried(failed: TaskFailed) -> bool:
    return RetryPolicy().is_retryable(failed.error)


async def test_a_prompt_becomes_a_completion_with_its_usage(
    stage: WorkerHarness, server: ScriptedServer
) -> None:
    server.says(PATH, make_json_answer(make_completion()))

    output = await call_model(
        stage, prompt="Hi", system="Be brief", temperature=0.2, max_tokens=9, extra={"seed": 1}
    )

    [request] = server.requests
    assert output == {
        "result": "Hello",
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


async def test_used_tokens_are_recorded_as_metrics(
    stage: WorkerHarness, server: ScriptedServer
) -> None:
    server.says(PATH, make_json_answer(make_completion()))

    await call_model(stage, messages=[{"role": "user", "content": "Hi"}])

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
    server.says(PATH, make_json_answer(make_completion()))
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
    """No config names the key, but a service may repeat it in its answer."""
    server.says(PATH, make_json_answer(make_completion("your key is sk-operator")))

    task = stage.task(HANDLER, {"model": "m", "prompt": "Hi"})
    output = await stage.output(task, secrets=KnownSecrets({}, unnamed=["sk-operator"]))

    assert output["text"] == "your key is ***"


async def test_a_password_in_the_operators_url_is_not_in_the_error(server: ScriptedServer) -> None:
    stage = WorkerHarness(RealClock())
    url = server.url("/v1").replace("://", "://ada:geheim@")
    stage.handlers = create_builtin_registry(
        HandlerEnvironment(addresses=AddressPermissions(("127.0.0.1",)), llm_url=url)
    )
    server.says(PATH, make_answer(500, b"broken"))

    failed = await fail_model_call(stage)

    assert failed.error.message == f"{server.url(PATH)} answered 500: broken"


async def test_a_requested_json_completion_is_decoded(
    stage: WorkerHarness, server: ScriptedServer
) -> None:
    server.says(PATH, make_json_answer(make_completion('{"a": 1}')))

    output = await call_model(stage, prompt="Hi", response_format={"type": "json_object"})

    assert (output["json"], output["text"]) == ({"a": 1}, '{"a": 1}')


async def test_a_stream_is_combined_into_one_output(
    stage: WorkerHarness, server: ScriptedServer
) -> None:
    call = {"index": 0, "id": "c1", "function": {"name": "look", "arguments": '{"a"'}}
    second_call = {"index": 0, "function": {"arguments": ": 1}"}}
    last = {"choices": [{"index": 0, "delta": {}, "finish_reason": "stop"}]}
    server.says(
        PATH,
        make_stream(
            make_chunk(role="assistant", content="Hel"),
            make_chunk(content="lo ä"),
            make_chunk(tool_calls=[call]),
            make_chunk(tool_calls=[second_call]),
            last,
            {"choices": [], "usage": USAGE},
        ),
    )

    output = await call_model(stage, prompt="Hi", stream=True)

    assert (output["text"], output["usage"], output["finish_reason"]) == ("Hello ä", USAGE, "stop")
    assert output["message"]["tool_calls"] == [
        {"id": "c1", "type": "function", "function": {"name": "look", "arguments": '{"a": 1}'}}
    ]
    sent = json.loads(server.requests[0].body)
    assert (sent["stream"], sent["stream_options"]) == (True, {"include_usage": True})


async def test_an_answer_without_streaming_is_accepted(
    stage: WorkerHarness, server: ScriptedServer
) -> None:
    server.says(PATH, make_json_answer(make_completion()))

    assert (await call_model(stage, prompt="Hi", stream=True))["text"] == "Hello"


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
    "HTML instead of JSON": (make_answer(body=b"<html>"), {}, "invalid JSON"),
    "text instead of the requested JSON": (
        make_json_answer(make_completion("Sure! {")),
        {"response_format": {"type": "json_object"}},
        "answered with invalid JSON",
    ),
    "a stream without an end": (
        make_stream(make_chunk(content="Hel"), end=""),
        {"stream": True},
        "ended its response before it was complete",
    ),
    "a stream with an error": (
        make_stream(make_chunk(content="Hel"), {"error": {"message": "overloaded"}}),
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
    "a stream of numbers": (make_stream(1), {"stream": True}, "an event that is not an object"),
    "a call out of place": (
        make_stream(make_chunk(tool_calls=[{"index": 10**9}])),
        {"stream": True},
        "with an invalid index",
    ),
}


@pytest.mark.parametrize("name", BROKEN)
async def test_an_answer_that_is_not_a_completion_is_retried(
    stage: WorkerHarness, server: ScriptedServer, name: str
) -> None:
    answer, config, sentence = BROKEN[name]
    server.says(PATH, answer)

    failed = await fail_model_call(stage, **config)

    assert sentence in failed.error.message
    assert (failed.error.type, is_retried(failed)) == ("ServiceError", True)


async def test_a_stream_has_a_size_limit(stage: WorkerHarness, server: ScriptedServer) -> None:
    server.says(PATH, make_stream(*[make_chunk(content="x" * 500)] * 10))

    failed = await fail_model_call(stage, stream=True, max_response_bytes=1_000)

    assert "is larger than 1,000 bytes" in failed.error.message
    assert not is_retried(failed)


async def test_a_busy_service_sets_the_delay_of_the_retry(
    stage: WorkerHarness, server: ScriptedServer
) -> None:
    server.says(PATH, make_answer(429, b'{"error": {"code": "rate_limit"}}', retry_after="20"))

    failed = await fail_model_call(stage)

    assert (failed.error.retry_after_s, is_retried(failed)) == (20.0, True)


@pytest.mark.parametrize(
    ("status", "body"), [(401, b"bad key"), (429, b'{"error": {"code": "insufficient_quota"}}')]
)
async def test_a_permanent_error_is_not_retried(
    stage: WorkerHarness, server: ScriptedServer, status: int, body: bytes
) -> None:
    server.says(PATH, make_answer(status, body))

    failed = await fail_model_call(stage)

    assert f"answered {status}" in failed.error.message
    assert (failed.error.type, is_retried(failed)) == ("ServiceRefusedError", False)


async def test_an_exceeded_quota_is_final_even_with_a_success_status(
    stage: WorkerHarness, server: ScriptedServer
) -> None:
    server.says(PATH, make_json_answer(b'{"error": {"code": "insufficient_quota"}}'))

    failed = await fail_model_call(stage)

    assert (failed.error.type, is_retried(failed)) == ("ServiceRefusedError", False)


async def test_the_idempotency_key_of_a_non_ascii_node_is_sent_in_ascii(
    stage: WorkerHarness, server: ScriptedServer
) -> None:
    server.says(PATH, make_json_answer(make_completion()))

    await stage.output(stage.task(HANDLER, {"model": "m", "prompt": "Hi"}, node="prüfen"))

    assert "pr%C3%BCfen" in server.requests[-1].headers["idempotency-key"]


async def test_a_redirect_is_not_followed_with_a_key(
    stage: WorkerHarness, server: ScriptedServer
) -> None:
    server.says(PATH, make_answer(307, location="https://evil.example/v1/chat/completions"))

    failed = await fail_model_call(stage)

    assert "answered 307" in failed.error.message
    assert len(server.requests) == 1


async def test_a_mock_returns_a_completion_without_a_request(
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
