"""`call_external_service` against a real server: requests, statuses, timeouts and mocks."""

import asyncio
import json
from collections.abc import AsyncIterator

import pytest

from runnel.core.commands import TaskFailed
from runnel.engine.clock import RealClock
from runnel.engine.worker.worker import Worker
from tests.integration.service_calls import (
    HANDLER,
    call_service,
    fail_call,
    is_retried,
    make_worker,
)
from tests.scripted_http_server import (
    ScriptedAnswer,
    ScriptedServer,
    make_answer,
    make_json_answer,
    open_scripted_server,
)
from tests.unit.engine.worker.worker_harness import WorkerHarness
from tests.waiting import wait_until


@pytest.fixture
async def server() -> AsyncIterator[ScriptedServer]:
    async with open_scripted_server() as server:
        yield server


@pytest.fixture
def stage() -> WorkerHarness:
    return make_worker("127.0.0.1", "localhost")


async def test_the_output_has_the_decoded_json_and_the_headers_without_cookies(
    stage: WorkerHarness, server: ScriptedServer
) -> None:
    url = server.says("/a", make_json_answer(b'{"x": [1]}', set_cookie="session=geheim", etag="1"))

    output = await call_service(stage, url=url)

    assert (output["status"], output["body"], output["headers"]["etag"]) == (200, {"x": [1]}, "1")
    assert "set-cookie" not in output["headers"]


async def test_a_request_is_sent_as_the_config_says(
    stage: WorkerHarness, server: ScriptedServer
) -> None:
    url = server.says("/a", make_answer(201, b"made"))

    output = await call_service(
        stage,
        url=f"{url}?kept=1",
        method="POST",
        headers={"X-Number": 7},
        params={"q": "a b", "list": [1, 2], "on": True},
        json={"n": None},
        auth={"username": "ada", "password": "pass"},
    )

    [request] = server.requests
    assert (output["status"], output["body"]) == (201, "made")
    assert (request.method, request.target) == ("POST", "/a?kept=1&q=a+b&list=1&list=2&on=true")
    assert json.loads(request.body) == {"n": None}
    assert request.headers["authorization"] == "Basic YWRhOnBhc3M="
    assert request.headers["x-number"] == "7"
    assert request.headers["content-type"] == "application/json"
    assert request.headers["idempotency-key"] == "x1/node"


async def test_a_get_has_no_idempotency_key_and_a_configured_key_is_kept(
    stage: WorkerHarness, server: ScriptedServer
) -> None:
    url = server.says("/a", make_answer())
    tasks = [
        stage.task(HANDLER, {"url": url}),
        stage.task(
            HANDLER,
            {"url": url, "method": "PUT", "headers": {"Idempotency-Key": "mine"}, "body": "ä"},
            node="second",
        ),
    ]

    async with stage.working():
        await stage.issue(*tasks)
        await stage.results(2)

    by_method = {request.method: request for request in server.requests}
    assert "idempotency-key" not in by_method["GET"].headers
    assert by_method["PUT"].headers["idempotency-key"] == "mine"
    assert by_method["PUT"].body == "ä".encode()


async def test_connections_are_reused(stage: WorkerHarness, server: ScriptedServer) -> None:
    url = server.says("/a", make_answer(body=b"1"))

    async with stage.working():
        for number in range(1, 4):
            await stage.issue(stage.task(HANDLER, {"url": url}, node=f"n{number}"))
            await stage.results(number)

    assert [request.connection for request in server.requests] == [1, 1, 1]


async def test_a_running_request_survives_the_end_of_another_worker(
    stage: WorkerHarness, server: ScriptedServer
) -> None:
    """Both workers share a registry, as workers of one process may."""
    half = ScriptedAnswer(b"HTTP/1.1 200 OK\r\nContent-Length: 4\r\n\r\nha")
    url = server.says("/a", half)

    async with stage.working():
        await stage.issue(stage.task(HANDLER, {"url": url}))
        await wait_until(lambda: bool(server.requests))
        await stage.handlers.close()
        server.send_more(b"lf")
        [done] = await stage.results()

    assert done.output.decode()["body"] == "half"  # type: ignore[union-attr]


@pytest.mark.parametrize(
    ("status", "retried"), [(400, False), (404, False), (408, True), (425, True), (503, True)]
)
async def test_the_status_decides_whether_a_call_is_retried(
    stage: WorkerHarness, server: ScriptedServer, status: int, retried: bool
) -> None:
    url = server.says("/a", make_answer(status, b"no\nsuch thing"))

    failed = await fail_call(stage, url=f"{url}?key=geheim")

    assert failed.error.message == f"{url} answered {status}: no such thing"
    assert is_retried(failed) is retried


async def test_a_long_error_answer_is_truncated(
    stage: WorkerHarness, server: ScriptedServer
) -> None:
    url = server.says("/a", make_answer(500, b"word " * 100_000))

    failed = await fail_call(stage, url=url)

    assert failed.error.message.startswith(f"{url} answered 500: word word")
    assert failed.error.message.endswith("word…")
    assert len(failed.error.message) < 600


async def test_the_config_may_accept_other_statuses(
    stage: WorkerHarness, server: ScriptedServer
) -> None:
    url = server.says("/a", make_answer(404, b"gone"))

    output = await call_service(stage, url=url, ok_statuses=["2xx", 404])

    assert (output["status"], output["body"]) == (404, "gone")


async def test_the_config_may_retry_other_statuses(
    stage: WorkerHarness, server: ScriptedServer
) -> None:
    failed = await fail_call(stage, url=server.says("/a", make_answer(409)), retry_statuses=["4xx"])

    assert is_retried(failed)


@pytest.mark.parametrize(
    ("header", "least"),
    [("7", 7.0), ("99999", 3600.0), ("Fri, 01 Jan 2021 00:00:00 GMT", 0.0), ("soon", None)],
)
async def test_the_error_carries_the_retry_after_of_the_answer(
    stage: WorkerHarness, server: ScriptedServer, header: str, least: float | None
) -> None:
    failed = await fail_call(stage, url=server.says("/a", make_answer(429, retry_after=header)))

    assert (failed.error.type, failed.error.retry_after_s) == ("ServiceBusyError", least)


async def test_a_call_to_an_unresponsive_server_fails_after_its_timeout(
    server: ScriptedServer,
) -> None:
    url = server.says(
        "/a", ScriptedAnswer(b"HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\nslow", hangs=True)
    )
    clock = ManualTimeoutClock()
    stage = make_worker("127.0.0.1", clock=clock)

    async with stage.working():
        await stage.issue(stage.task(HANDLER, {"url": url, "timeout_seconds": 7}))
        await wait_until(lambda: bool(server.requests))
        clock.expire()
        [failed] = await stage.results()
        await server.client_left.wait()

    assert isinstance(failed, TaskFailed)
    assert failed.error.message == f"{url} did not answer within 7 s"
    assert is_retried(failed)


class ManualTimeoutClock(RealClock):
    """A clock whose timeouts expire when the test calls `expire`."""

    def __init__(self) -> None:
        self._limit = asyncio.timeout(None)

    def timeout(self, seconds: float) -> asyncio.Timeout:
        self._limit = asyncio.timeout(None)
        return self._limit

    def expire(self) -> None:
        self._limit.reschedule(asyncio.get_running_loop().time())


async def test_a_node_timeout_closes_the_request(
    stage: WorkerHarness, server: ScriptedServer
) -> None:
    url = server.says("/a", ScriptedAnswer(hangs=True))

    failed = await stage.error(stage.task(HANDLER, {"url": url}, timeout_s=1.0))
    await server.client_left.wait()

    assert failed.error.type == "TaskTimeoutError"


async def test_a_cancelled_node_closes_the_request(
    stage: WorkerHarness, server: ScriptedServer
) -> None:
    task = stage.task(HANDLER, {"url": server.says("/a", ScriptedAnswer(hangs=True))})

    async with stage.working() as worker:
        await stage.issue(task)
        await wait_until(lambda: bool(server.requests))
        await stage.drop(task.token)
        await server.client_left.wait()
        await wait_until(lambda: not worker.holds)

    assert isinstance(worker, Worker)
    assert not stage.ended()


async def test_a_refused_connection_is_retried(stage: WorkerHarness) -> None:
    async with open_scripted_server() as closed:
        url = closed.url("/a")

    failed = await fail_call(stage, url=url)

    assert failed.error.message.startswith(f"the connection to {url} failed")
    assert is_retried(failed)


async def test_a_url_with_an_invalid_host_is_refused(stage: WorkerHarness) -> None:
    failed = await fail_call(stage, url="http://xn--/")

    assert "http://xn--/ is not a URL" in failed.error.message
    assert not is_retried(failed)


async def test_the_error_names_an_unknown_host(stage: WorkerHarness) -> None:
    failed = await fail_call(stage, url="http://no-such-host.invalid/x")

    assert failed.error.message.startswith("there is no host 'no-such-host.invalid'")


async def test_a_mock_answers_without_a_request(
    stage: WorkerHarness, server: ScriptedServer
) -> None:
    mock = {"delay": 0, "response": {"ok": True}}

    mocked = await call_service(stage, url=server.url("/a"), mock=mock)
    stage_again = make_worker()
    made_up = await call_service(stage_again, mock={"delay": [0, 0.01]})

    body = {"ok": True}
    assert mocked == {"status": 200, "headers": {}, "body": body, "result": body}
    assert made_up["body"] == {"mock": True, "method": "GET", "url": "https://mock"}
    assert not server.requests


async def test_a_mock_may_fail_like_a_service(stage: WorkerHarness) -> None:
    failed = await fail_call(stage, mock={"delay": 0, "status": [503, 200]})

    assert "the mock of https://mock answered 503" in failed.error.message
    assert is_retried(failed)
