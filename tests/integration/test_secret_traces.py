"""A used secret appears neither in the store nor in the history nor in the views."""

from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from runnel.app.embedded_engine import EmbeddedEngine
from runnel.app.private_servers.redis import RedisServer
from runnel.core.codec import decode_entry
from runnel.core.retry import RetryPolicy
from runnel.core.workflow import OnFailure, Workflow
from runnel.handlers.environment import HandlerEnvironment
from runnel.handlers.permissions import AddressPermissions
from tests.core_driver import make_node, make_workflow
from tests.engines import WorkHandler, get_node_states, open_engine, wait_for_end
from tests.scripted_http_server import (
    ScriptedServer,
    make_answer,
    make_json_answer,
    open_scripted_server,
)

KEY = b"sk-geheim-0815"
ONCE = RetryPolicy(max_retries=0)


@pytest.fixture
async def server() -> AsyncIterator[ScriptedServer]:
    async with open_scripted_server() as server:
        yield server


def make_definition(server: ScriptedServer) -> Workflow:
    """Returns a workflow whose calls echo the key, fail with it and pass the echo on."""
    headers = {"Authorization": "Bearer {{ secrets.api_key }}"}
    echo = server.says("/echo", make_json_answer(b'{"you sent": "Bearer %s"}' % KEY))
    refuse = server.says("/refuse", make_answer(401, b"bad key " + KEY))
    web: dict[str, Any] = {"handler": "call_external_service", "retry": ONCE}
    return make_workflow(
        make_node("echo", config={"url": echo, "headers": headers}, **web),
        make_node("large", handler="output", config={"x": ["{{ secrets.api_key }}"] * 30_000}),
        make_node("refused", config={"url": refuse, "headers": headers}, **web),
        make_node("shown", "echo", handler="output", config={"x": "{{ echo.body }}"}),
        make_node("missing", handler="output", config={"x": "{{ secrets.other }}"}),
        on_failure=OnFailure.CONTINUE,
    )


@pytest.fixture(params=["sqlite", "redis"])
def kind(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@asynccontextmanager
async def open_engine_with_secret(
    kind: str, folder: Path, redis: RedisServer | None
) -> AsyncIterator[EmbeddedEngine]:
    url = None if redis is None else redis.url
    async with open_engine(
        kind,
        folder,
        WorkHandler(),
        redis_url=url,
        environment=HandlerEnvironment(addresses=AddressPermissions(("127.0.0.1",))),
        secrets={"api_key": KEY.decode()},
    ) as engine:
        yield engine


def read_files(folder: Path) -> Iterator[bytes]:
    for path in folder.rglob("*"):
        if path.is_file():
            yield path.read_bytes()


async def test_a_secret_leaves_no_trace(
    kind: str, tmp_path: Path, server: ScriptedServer, request: pytest.FixtureRequest
) -> None:
    redis: RedisServer | None = request.getfixturevalue("own_redis") if kind == "redis" else None
    async with open_engine_with_secret(kind, tmp_path, redis) as engine:
        execution_id = await engine.client.submit(make_definition(server))
        view = await wait_for_end(engine, execution_id)
        history = await engine.backend.archive.load(execution_id)
        large = await engine.client.values.output(execution_id, "large")
        traces = list(read_files(tmp_path if redis is None else redis.save_aof()))

    assert [request.headers["authorization"].encode() for request in server.requests] == [
        b"Bearer " + KEY
    ] * 2
    assert get_node_states(view) == {
        "echo": "COMPLETED",
        "large": "COMPLETED",
        "refused": "FAILED",
        "shown": "COMPLETED",
        "missing": "FAILED",
    }
    assert view.nodes["shown"].output == {"x": {"you sent": "Bearer ***"}}
    assert "bad key ***" in str(view.nodes["refused"].error)
    assert "this worker has no secret 'other'" in str(view.nodes["missing"].error)
    assert large is not None
    assert KEY not in b"".join(history)
    assert KEY.decode() not in str([decode_entry(entry) for entry in history])
    assert b"***" in b"".join(traces)
    assert not [trace for trace in traces if KEY in trace]
