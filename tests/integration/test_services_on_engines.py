"""Handlers that call services behave the same embedded and on Redis."""

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from runnel.app.embedded_engine import EmbeddedEngine
from runnel.core.retry import RetryPolicy
from runnel.core.workflow import Workflow
from runnel.handlers.environment import HandlerEnvironment
from runnel.handlers.permissions import AddressPermissions
from tests.core_driver import make_node, make_workflow
from tests.engines import WorkHandler, flush_redis, get_node_states, open_engine, run_to_end
from tests.scripted_http_server import (
    ScriptedServer,
    make_answer,
    make_json_answer,
    open_scripted_server,
)

QUICK = RetryPolicy(max_retries=3, initial_delay=0.01, jitter=False)


@pytest.fixture
async def server() -> AsyncIterator[ScriptedServer]:
    async with open_scripted_server() as server:
        yield server


@pytest.fixture(params=["memory", "sqlite", "redis"])
async def engine(
    request: pytest.FixtureRequest, tmp_path: Path, server: ScriptedServer
) -> AsyncIterator[EmbeddedEngine]:
    kind = str(request.param)
    url = flush_redis(request) if kind == "redis" else None
    environment = HandlerEnvironment(
        addresses=AddressPermissions(("127.0.0.1",)),
        llm_url=server.url("/v1"),
        llm_api_key="sk-operator",
    )
    async with open_engine(
        kind, tmp_path, WorkHandler(), redis_url=url, environment=environment
    ) as opened:
        yield opened


def pipeline(server: ScriptedServer) -> Workflow:
    fetch = server.says("/rows", make_answer(503), make_json_answer(b'[{"n": 2}, {"n": 1}]'))
    completion = (
        b'{"choices": [{"message": {"role": "assistant", "content": "three"}}], "usage": {}}'
    )
    server.says(
        "/v1/chat/completions",
        make_answer(429, retry_after="0"),
        make_answer(500),
        make_json_answer(completion),
    )
    return make_workflow(
        make_node("fetch", handler="call_external_service", config={"url": fetch}, retry=QUICK),
        make_node(
            "add",
            "fetch",
            handler="data_processor",
            config={
                "operation": "aggregate",
                "data": "{{ fetch.body }}",
                "function": "sum",
                "field": "n",
            },
        ),
        make_node(
            "words",
            "add",
            handler="llm_service",
            config={"model": "m", "prompt": "Write {{ add }} as a word"},
            retry=QUICK,
        ),
        make_node(
            "shout",
            "words",
            handler="shell",
            config={"command": ["tr", "a-z", "A-Z"], "stdin": "{{ words.text }}"},
        ),
    )


async def test_a_pipeline_of_services_completes_with_its_retries(
    engine: EmbeddedEngine, server: ScriptedServer
) -> None:
    view = await run_to_end(engine, pipeline(server))

    assert set(get_node_states(view).values()) == {"COMPLETED"}
    assert view.nodes["shout"].output["stdout"] == "THREE"
    assert [view.nodes[name].attempts for name in ("fetch", "words")] == [2, 3]
    keys = {request.headers.get("idempotency-key") for request in server.requests[2:]}
    assert keys == {f"{view.execution_id}/words"}


async def test_a_retry_waits_for_the_delay_that_the_service_asks_for(
    engine: EmbeddedEngine, server: ScriptedServer
) -> None:
    url = server.says("/a", make_answer(429, retry_after="1"), make_answer(body=b"now"))
    definition = make_workflow(
        make_node("a", handler="external_service", config={"url": url}, retry=QUICK),
    )

    view = await run_to_end(engine, definition)

    a = view.nodes["a"]
    assert (a.output["body"], a.attempts) == ("now", 2)
    assert view.finished_at is not None
    assert view.finished_at - view.created_at >= 1.0
