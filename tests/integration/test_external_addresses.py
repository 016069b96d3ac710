"""Targets of `call_external_service`: redirects, private addresses and DNS rebinding."""

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import pytest

from tests.integration.service_calls import call_service, fail_call, is_retried, make_worker
from tests.scripted_http_server import (
    ScriptedServer,
    make_answer,
    make_json_answer,
    open_scripted_server,
)
from tests.unit.engine.worker.worker_harness import WorkerHarness


@pytest.fixture
async def server() -> AsyncIterator[ScriptedServer]:
    async with open_scripted_server() as server:
        yield server


@pytest.fixture
def stage() -> WorkerHarness:
    return make_worker("127.0.0.1", "localhost")


async def test_a_redirect_is_followed(stage: WorkerHarness, server: ScriptedServer) -> None:
    server.says("/b", make_json_answer(b"[1]"))
    url = server.says("/a", make_answer(302, location="/b?x=1"))

    output = await call_service(stage, url=url, method="POST", json={}, headers={"X-Key": "geheim"})

    first, second = server.requests
    assert output["body"] == [1]
    assert (second.method, second.target, second.body) == ("GET", "/b?x=1", b"")
    assert second.headers["x-key"] == "geheim"
    assert "content-type" not in second.headers
    assert first.method == "POST"


async def test_a_redirect_to_another_host_carries_no_credentials(
    stage: WorkerHarness, server: ScriptedServer
) -> None:
    server.says("/b", make_answer(body=b"hello"))
    url = server.says("/a", make_answer(302, location=server.url("/b", host="localhost")))
    headers = {"Authorization": "Bearer geheim", "X-Api-Key": "geheim", "Accept": "text/plain"}

    output = await call_service(stage, url=url, headers=headers)

    last = server.requests[-1]
    assert output["body"] == "hello"
    assert last.headers["host"].startswith("localhost")
    assert last.headers["accept"] == "text/plain"
    assert "geheim" not in str(last)


REDIRECTS = [
    ("/a", "redirected more than 5 times"),
    ("file:///etc/passwd", "expected an http or https URL"),
    ("ftp://127.0.0.1/x", "expected an http or https URL"),
    ("http://user:pass@127.0.0.1/", "without user and password"),
    ("http://[::1", "expected an http or https URL"),
    ("http:////[a", "expected an http or https URL"),
    ("http://xn--/", "expected an http or https URL"),
    ("http://10.0.0.1/", "'10.0.0.1' has the address 10.0.0.1, which is not public"),
    ("http://169.254.169.254/latest/meta-data/", "which is not public"),
    ("http://[::ffff:10.0.0.1]/", "which is not public"),
]


@pytest.mark.parametrize(("location", "sentence"), REDIRECTS)
async def test_a_redirect_to_a_forbidden_target_is_refused(
    stage: WorkerHarness, server: ScriptedServer, location: str, sentence: str
) -> None:
    failed = await fail_call(stage, url=server.says("/a", make_answer(302, location=location)))

    assert sentence in failed.error.message
    assert not is_retried(failed)


async def test_a_redirect_does_not_send_a_body_to_another_host(
    stage: WorkerHarness, server: ScriptedServer
) -> None:
    url = server.says("/a", make_answer(307, location=server.url("/b", host="localhost")))

    failed = await fail_call(stage, url=url, method="POST", json={"password": "geheim"})

    assert "redirects a request with a body to another host" in failed.error.message
    assert len(server.requests) == 1


async def test_redirects_may_be_forbidden(stage: WorkerHarness, server: ScriptedServer) -> None:
    failed = await fail_call(
        stage, url=server.says("/a", make_answer(302, location="/b")), max_redirects=0
    )

    assert "answered 302" in failed.error.message


@pytest.mark.parametrize(
    "host", ["127.0.0.1", "localhost", "127.1", "2130706433", "0x7f000001", "[::ffff:127.0.0.1]"]
)
async def test_private_addresses_are_refused_unless_allowed(
    server: ScriptedServer, host: str
) -> None:
    failed = await fail_call(make_worker(), url=server.url("/a", host=host))

    assert "is not public; the operator of the worker can allow it, for example with" in str(
        failed.error
    )
    assert (failed.error.retryable, server.requests) == (False, [])


async def test_the_call_connects_to_the_address_that_was_checked(
    server: ScriptedServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The name has an allowed address in the first lookup and another later (DNS rebinding)."""
    loop = asyncio.get_running_loop()
    lookups: list[str] = []

    async def resolve(host: str, port: int, **_: Any) -> list[Any]:
        lookups.append(host)
        return [(2, 1, 6, "", ("10.0.0.1" if len(lookups) > 1 else "127.0.0.1", port))]

    monkeypatch.setattr(loop, "getaddrinfo", resolve)
    url = server.says("/a", make_answer(body=b"x"))

    output = await call_service(
        make_worker("127.0.0.1"), url=url.replace("127.0.0.1", "rebinding.example")
    )

    assert (output["body"], lookups) == ("x", ["rebinding.example"])
    assert server.requests[0].headers["host"].startswith("rebinding.example")
